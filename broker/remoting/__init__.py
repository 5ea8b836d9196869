"""Service access layer: connections, frames in, responses out. Knows processors as callables, not what they mean."""
