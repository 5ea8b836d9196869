"""Reads a store directory without a broker, in the layouts of `skylarkmq.protocol`. It never writes."""
