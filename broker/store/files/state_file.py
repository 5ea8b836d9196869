"""A small file that is replaced as a whole: the JSON tables under config/.

Order of a save: write `<name>.tmp` and sync it; make the current file `<name>.bak` (a second name for the same bytes,
so that a current file exists at any time); rename the temporary file over the current one; sync the directory. After a
power cut at any point one of the two files is complete, with the new state or the previous one.

A file with secrets is readable by its owner only, and has no backup: an older file would restore rights that were
taken away. If it is damaged, the daemon does not start.

Source: docs/reference/disk.md, "State files".
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from skylarkmq.broker.store.files.disk import TEMPORARY_SUFFIX, Disk
from skylarkmq.broker.store.files.errors import StoreError

log = logging.getLogger(__name__)

BACKUP_SUFFIX = ".bak"


class StateFile:
    """One file and its `.bak`. `validate` raises ValueError on content that the owner cannot use."""

    def __init__(
        self, path: Path, *, validate: Callable[[bytes], object], disk: Disk | None = None, is_secret: bool = False
    ) -> None:
        self._path = str(path)
        self._is_secret = is_secret
        self._validate = validate
        self._disk = disk or Disk()
        self._current: bytes | None = None  # content of the file itself, if it is known to be valid

    def load(self) -> bytes | None:
        """Return the newest usable content; None if no file exists. Raises StoreError if both files are damaged."""
        problems = []
        for path in (self._path,) if self._is_secret else (self._path, self._path + BACKUP_SUFFIX):
            try:
                data = self._read(path)
            except FileNotFoundError:
                continue
            except ValueError as problem:
                log.warning("state file damaged path=%s reason=%s", path, problem)
                problems.append(f"{path}: {problem}")
                continue
            if path == self._path:
                self._current = data
            else:
                log.warning("state file taken from backup path=%s", path)
            self._make_lasting()
            return data
        if problems:
            damaged = "state file is damaged: " if self._is_secret else "state file and its backup are damaged: "
            raise StoreError(damaged + "; ".join(problems))
        return None

    def _make_lasting(self) -> None:
        """Sync the directory: the file may come from a save whose process died before that sync."""
        directory = os.path.dirname(self._path)
        try:
            self._disk.sync_directory(directory)
            self._disk.sync_directory(os.path.dirname(directory))
        except OSError as problem:
            log.warning("state file may be lost by a power cut path=%s error=%s", self._path, problem)

    def _read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            data = file.read()
        if not data:
            raise ValueError("empty")
        self._validate(data)
        return data

    def save(self, data: bytes) -> None:
        """Replace the content, unless it is unchanged. Blocks for two syncs. An OSError leaves the old content."""
        if data == self._current:
            return
        directory = os.path.dirname(self._path)
        self._disk.make_directory(directory)
        temporary = self._path + TEMPORARY_SUFFIX
        if self._is_secret:
            self._disk.write_private_file(temporary, data)
        else:
            self._disk.write_file(temporary, data)
        if self._current is not None and not self._is_secret:  # a damaged file must not replace its good backup
            self._disk.link(self._path, self._path + BACKUP_SUFFIX)
        self._disk.rename(temporary, self._path)
        self._disk.sync_directory(directory)
        self._current = data

    def __repr__(self) -> str:
        return f"<StateFile {self._path}>"
