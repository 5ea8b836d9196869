"""Typed ext fields: one struct per request or response header, a module per family, declared once for all dialects."""
