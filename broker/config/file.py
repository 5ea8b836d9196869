"""The configuration file that a daemon was started with, when a setting is changed while it runs.

Only the lines of the changed keys change (`broker/config/java_properties.py`). The new content goes to a temporary
file with the old one's mode, since it may hold passwords, and is synced; the old file becomes `.bak`; the new one
takes its name; the directory is synced. A symbolic link stays one: what it points at is replaced.

Source: docs/formats.md, "Settings at run time".
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from skylarkmq.broker.config.java_properties import rewritten

TEMPORARY_SUFFIX: Final = ".tmp"
BACKUP_SUFFIX: Final = ".bak"


class ConfigFile:
    """One properties file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"<ConfigFile {self._path}>"

    def change(self, changes: Mapping[str, str]) -> None:
        """Give these keys these values. Blocks for the disk. OSError leaves the file as it was, and so does StartError,
        which is for a file that somebody has made unreadable meanwhile."""
        path = os.path.realpath(self._path)
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
            mode = os.fstat(file.fileno()).st_mode & 0o777
        changed = rewritten(text, changes)
        if changed != text:
            _replace(path, changed.encode(), mode)


def _replace(path: str, data: bytes, mode: int) -> None:
    temporary, backup = path + TEMPORARY_SUFFIX, path + BACKUP_SUFFIX
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with open(fd, "wb") as file:
        os.fchmod(fd, mode)
        file.write(data)
        file.flush()
        os.fsync(fd)
    _second_name(path, backup)
    os.replace(temporary, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _second_name(path: str, backup: str) -> None:
    """`backup` becomes another name of the file; so there is no moment without one of them."""
    link = backup + TEMPORARY_SUFFIX
    if os.path.lexists(link):
        os.unlink(link)
    os.link(path, link)
    os.replace(link, backup)
