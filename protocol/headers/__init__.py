"""Typed ext fields: one struct per request or response header, for all dialects; one module per family."""
