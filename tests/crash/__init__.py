"""Interruptions of the store: power cuts, I/O errors, damage, kill -9."""
