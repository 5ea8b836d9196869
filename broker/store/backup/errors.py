"""Errors of a backup or a restore."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from skylarkmq.broker.store.files.errors import StoreError

_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


class BackupError(StoreError):
    """A backup or a restore was not done. The message is one line with the cause and the next step."""


@contextmanager
def clear_disk_errors(source: object, target: object, next_step: str) -> Iterator[None]:
    """Raise errors of the disk as BackupErrors that end with `next_step`: of a full one, and of a read, write or sync
    that failed. `source` is read, `target` is written. Errors that name their file are not changed."""
    try:
        yield
    except (OSError, StoreError) as problem:
        cause = problem.__cause__ if isinstance(problem, StoreError) else problem
        if isinstance(cause, OSError) and cause.errno in _FULL:
            raise BackupError(f"the disk of {target} is full: free some space, then {next_step}") from problem
        if isinstance(problem, StoreError) or problem.filename is not None:
            raise
        raise BackupError(
            f"a read or write failed ({problem.strerror}): check the disks of {source} and {target}, then {next_step}"
        ) from problem
