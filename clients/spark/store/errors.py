"""What keeps a store directory from being read."""


class StoreUnreadable(Exception):
    """The text names file and place, and ends with what to do."""
