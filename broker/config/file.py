"""The configuration file of a daemon, when a setting is changed while it runs.

Only the lines of the changed keys change (`broker/config/java_properties.py`). The new content is written to a
temporary file with the mode of the old one, since it may contain passwords, and synced; the old file becomes `.bak`;
the new file takes its name; the directory is synced. A symbolic link stays a link: its target is replaced. A file that
gets a secret is readable by its owner only.

Source: docs/reference/behaviour.md, "Settings at run time".
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from skylarkmq.broker.config.java_properties import rewritten

TEMPORARY_SUFFIX: Final = ".tmp"
BACKUP_SUFFIX: Final = ".bak"
OWNER_ONLY: Final = 0o600


class ConfigFile:
    """One properties file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"<ConfigFile {self._path}>"

    def change(self, changes: Mapping[str, str], *, holds_secret: bool = False) -> None:
        """Set these keys to these values; `holds_secret`: one of them is secret. Blocks for the disk. Raises OSError,
        or StartError if the file is no longer a valid properties file; the file is unchanged then."""
        path = os.path.realpath(self._path)
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
            mode = os.fstat(file.fileno()).st_mode & (OWNER_ONLY if holds_secret else 0o777)
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
    """Make `backup` another name of the file, so that one of the two exists at any time."""
    link = backup + TEMPORARY_SUFFIX
    if os.path.lexists(link):
        os.unlink(link)
    os.link(path, link)
    os.replace(link, backup)
