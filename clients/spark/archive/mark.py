"""Writes the archive mark, `config/archive.json` of a store directory, which the broker reads (`archiveHold`).

The file is replaced as a whole: temporary file, sync, rename, sync of the directory. Nothing else in the store
directory is written. Source: docs/reference/disk.md, "Archive mark".
"""

import os
from pathlib import Path
from typing import Final

from skylarkmq.protocol.archive_mark import ARCHIVE_MARK_FILE, ArchiveMark, encode_mark
from skylarkmq.protocol.disk import CONFIG_DIRECTORY

_MODE: Final = 0o644


class MarkFile:
    """The mark of one store. Raises OSError, also if the store has no `config`: the broker creates it."""

    def __init__(self, store: Path, archive: str) -> None:
        self._directory = store / CONFIG_DIRECTORY
        self._archive = archive
        self._temporary = f"{self._directory / ARCHIVE_MARK_FILE}.tmp"

    def check(self) -> None:
        """Raise OSError if the mark cannot be written later."""
        os.close(self._open())
        os.unlink(self._temporary)

    def write(self, low_water_mark: int, now_ms: int) -> None:
        """Replace the mark. It is durable when this returns."""
        mark = ArchiveMark(low_water_mark=low_water_mark, updated_at=now_ms, archive=self._archive)
        fd = self._open()
        try:
            os.write(fd, encode_mark(mark))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(self._temporary, self._directory / ARCHIVE_MARK_FILE)
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _open(self) -> int:
        """Return a descriptor of the empty temporary file. A symbolic link in its place is an error."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._temporary, flags, _MODE)

    def __repr__(self) -> str:
        return f"<MarkFile {self._directory}>"
