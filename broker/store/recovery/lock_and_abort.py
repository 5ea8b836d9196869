"""The files `lock` and `abort`: whether a broker runs on this directory, and whether the last one stopped cleanly.

    lock     contains the four bytes `lock`; a running broker holds a POSIX lock on the first byte
    abort    the process id as text; exists while a broker runs, and after one that did not stop cleanly

A directory in which a restore was interrupted is refused: it may have a part of a store.

Source: docs/reference/disk.md, "abort and lock".
"""

import fcntl
import logging
import os
from pathlib import Path
from typing import Final

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import StoreError, StoreLockedError
from skylarkmq.protocol.disk import ABORT_FILE, LOCK_FILE

log = logging.getLogger(__name__)

RESTORING_DIRECTORY: Final = "restoring"
"""In a store's directory while a restore builds the store, and after one that was interrupted."""
_LOCK_TEXT = b"lock"


class RunningFiles:
    """The two files of one store root."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root = str(root)
        self._disk = disk
        self._abort = f"{self._root}/{ABORT_FILE}"
        self._lock_fd = -1

    def lock(self) -> None:
        """Create the root directory and take the lock. Raises StoreLockedError if another process has it, StoreError
        if the directory cannot be used or has an interrupted restore."""
        self._check_restored()
        path = f"{self._root}/{LOCK_FILE}"
        try:
            self._make_root(os.path.abspath(self._root))
            fd = self._disk.open_or_make(path)
        except OSError as problem:
            raise StoreError(f"the store directory {self._root} cannot be used: {problem.strerror}") from problem
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            self._disk.pwrite(fd, _LOCK_TEXT, 0)
        except BlockingIOError as problem:
            os.close(fd)
            raise StoreLockedError(f"the store directory {self._root} is in use by another broker") from problem
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd
        try:
            self._check_restored()  # a restore that began meanwhile sees the file `lock`, or is seen here
        except StoreError:
            self.unlock()
            raise

    def _check_restored(self) -> None:
        if os.path.isdir(f"{self._root}/{RESTORING_DIRECTORY}"):
            raise StoreError(
                f"the store directory {self._root} has a restore that is running or was interrupted "
                f"({RESTORING_DIRECTORY}/): wait until it has ended, or repeat it"
            )

    def _make_root(self, root: str) -> None:
        self._disk.make_directory(root)
        if not os.listdir(root):  # perhaps created by a process that died before it could sync it
            self._disk.sync_directory(os.path.dirname(root))

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def is_abort_present(self) -> bool:
        """Return whether the last broker here did not stop cleanly."""
        return os.path.exists(self._abort)

    def write_abort(self) -> None:
        """Mark the store as running. If the file remains, the stop was not clean."""
        self._disk.write_file(self._abort, str(os.getpid()).encode())
        self._disk.sync_directory(self._root)

    def remove_abort(self) -> bool:
        """Mark the stop as clean: everything written is on disk and dispatched. False: the disk refuses."""
        try:
            self._disk.unlink(self._abort)
        except FileNotFoundError:
            log.warning("abort file already removed before the stop path=%s", self._abort)
        except OSError as problem:
            log.error("stop counts as a crash path=%s error=%s", self._abort, problem)
            return False
        try:
            self._disk.sync_directory(self._root)
        except OSError as problem:
            log.error("stop may count as a crash path=%s error=%s", self._abort, problem)
        return True

    def __repr__(self) -> str:
        return f"<RunningFiles {self._root}>"
