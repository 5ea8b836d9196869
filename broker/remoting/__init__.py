"""Service access layer: accepts connections, decodes frames, dispatches by request code, writes once per turn."""
