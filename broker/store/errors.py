"""What can stop a store from opening."""

from collections.abc import Iterator
from contextlib import contextmanager


class StoreError(Exception):
    """The store directory cannot be served as it is; the message is one line for an operator."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


class LoadStopped(StoreError):
    """The start was called off while the store was loaded; the next start recovers it again."""

    def __init__(self) -> None:
        super().__init__("the start was called off, the next one recovers the store again")


@contextmanager
def refused_by_disk(what: str) -> Iterator[None]:
    """A disk's OSError becomes the StoreError of a start that `what` describes: "the store cannot be opened"."""
    try:
        yield
    except OSError as problem:
        raise StoreError(f"{what}: {problem}") from problem
