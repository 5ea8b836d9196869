"""What can stop a store from opening, or a read of it."""

import errno
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


class LostBytesError(OSError):
    """Bytes of the log that were written and cannot be read: their file was truncated, or its disk fails."""

    def __init__(self, path: str, at: int, reason: str) -> None:
        super().__init__(errno.EIO, f"{reason}, bytes from {at} on are lost", path)


@contextmanager
def refused_by_disk(what: str) -> Iterator[None]:
    """A disk's OSError becomes the StoreError of a start that `what` describes: "the store cannot be opened"."""
    try:
        yield
    except OSError as problem:
        raise StoreError(f"{what}: {problem}") from problem
