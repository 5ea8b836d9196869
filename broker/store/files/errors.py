"""Errors that stop a store from opening, or a read of it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager


class StoreError(Exception):
    """The store directory cannot be served. The message is one line for an operator."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


class LoadStopped(StoreError):
    """The start was canceled while the store was loading. The next start recovers the store again."""

    def __init__(self) -> None:
        super().__init__("the start was canceled; the next start recovers the store again")


class LostBytesError(OSError):
    """Bytes of the log that were written cannot be read: their file was truncated, or its disk fails."""

    def __init__(self, path: str, at: int, reason: str) -> None:
        super().__init__(errno.EIO, f"{reason}, bytes from {at} on are lost", path)


class SegmentNotReadyError(OSError):
    """A new segment of the log was not created in time. Nothing was written: the disk is as it was."""

    def __init__(self, path: str, waited_s: float) -> None:
        super().__init__(errno.EAGAIN, f"the file was not created within {waited_s:g} s", path)


@contextmanager
def refused_by_disk(what: str) -> Iterator[None]:
    """Raise a disk's OSError as a StoreError with the prefix `what`, for example "the store cannot be opened"."""
    try:
        yield
    except OSError as problem:
        raise StoreError(f"{what}: {problem}") from problem
