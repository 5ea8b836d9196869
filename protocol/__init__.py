"""Bytes to values and back, on the wire and on disk: no asyncio, no socket, no clock, no randomness."""
