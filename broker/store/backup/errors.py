"""Errors of a backup or a restore."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from skylarkmq.broker.store.errors import StoreError

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


class BackupError(StoreError):
    """A backup or a restore was not done. The message is one line with the cause and the next step."""


@contextmanager
def clear_disk_errors(directory: object, next_step: str) -> Iterator[None]:
    """Raise the error of a full disk as a BackupError that names `directory` and ends with `next_step`."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in _FULL:
            raise
        raise BackupError(f"the disk of {directory} is full: free some space, then {next_step}") from problem
