"""Errors of reading a store directory."""


class StoreUnreadable(Exception):
    """The store cannot be read; the text contains file and position, and ends with the remedy."""
