"""Files that commands write below the directory for temporary files, as RocketMQ's tool does."""

import os
import tempfile
from pathlib import Path
from typing import Final

ROCKETMQ_FILES: Final = Path(tempfile.gettempdir(), "rocketmq")


def write_file(file: Path, data: bytes) -> None:
    """Write a file, and make its directory. OSError; also if the file is a symbolic link: other users may write to the
    directory."""
    file.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(file, flags, 0o666), "wb") as opened:
        opened.write(data)
