"""Files that commands write below the directory for temporary files, as RocketMQ's tool does."""

import os
import re
import tempfile
from pathlib import Path
from typing import Final

ROCKETMQ_FILES: Final = Path(tempfile.gettempdir(), "rocketmq")
_NAME_BYTES: Final = 200
"""Bytes of a name. File systems take 255; RocketMQ's names have a suffix."""


def file_name(text: str) -> str:
    """Return the name of a file for an id. Clients choose their ids, and the ids of messages.

    Slashes, control characters and leading dots become `_`, so the file is in its directory, and `ls` shows it.
    """
    name = "".join("_" if c == "/" or not c.isprintable() else c for c in text)
    return re.sub(r"^\.+", "_", name).encode()[:_NAME_BYTES].decode(errors="ignore") or "_"


def write_file(file: Path, data: bytes) -> None:
    """Write a file, and make its directory. OSError; also if the file is a symbolic link: other users may write to the
    directory."""
    file.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(file, flags, 0o666), "wb") as opened:
        opened.write(data)
