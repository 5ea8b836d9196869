"""What can stop a store from opening."""


class StoreError(Exception):
    """The store directory cannot be served as it is; the message is one line for an operator."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""
