"""What can stop a store from opening."""

from collections.abc import Iterator
from contextlib import contextmanager


class StoreError(Exception):
    """The store directory cannot be served as it is; the message is one line for an operator."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


@contextmanager
def refused_by_disk(what: str) -> Iterator[None]:
    """A disk's OSError becomes the StoreError of a start that `what` describes: "the store cannot be opened"."""
    try:
        yield
    except OSError as problem:
        raise StoreError(f"{what}: {problem}") from problem
