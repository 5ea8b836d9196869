"""Service access layer: connections, frames in, responses out. Processors are opaque callables here."""
