"""Conversion between bytes and values, on the wire and on disk. No asyncio, socket, clock or randomness."""
