"""The lock of a backup directory: exclusive for a backup, shared by restores."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from skylarkmq.broker.store.backup.errors import BackupError

LOCK_FILE: Final = "lock"
EXCLUSIVE: Final = fcntl.LOCK_EX
SHARED: Final = fcntl.LOCK_SH


@contextmanager
def locked(fd: int, kind: int, refusal: str) -> Iterator[None]:
    """Hold a lock on an open file, and close it at the end. Raises BackupError with `refusal` if the file is in use."""
    try:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise BackupError(refusal) from problem
        yield
    finally:
        os.close(fd)
