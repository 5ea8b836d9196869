"""A small file system in memory that a test can fill. Mounting one needs root."""

import errno
import os
import subprocess
from pathlib import Path
from typing import Final

PIECE: Final = bytes(64 << 10)


class SmallDisk:
    """A tmpfs at `path`, until `unmount`."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._size_bytes = size_bytes
        self._filler = path / "filler"

    def __repr__(self) -> str:
        return f"<SmallDisk {self.path}>"

    def mount(self) -> str:
        """Mount it. Return why that is impossible here; "" if it is mounted."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._size_bytes}", "tmpfs", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"no tmpfs can be mounted: {done.stderr.strip() or done.returncode}"

    def unmount(self) -> None:
        """Remove it with all its files. It need not be mounted."""
        if self.path.is_mount():
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self) -> None:
        """Use all of its space."""
        fd = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = len(PIECE)
            while size:
                try:
                    os.write(fd, PIECE[:size])
                except OSError as problem:
                    if problem.errno != errno.ENOSPC:
                        raise
                    size //= 2
        finally:
            os.close(fd)

    def free(self) -> None:
        """Free the space again."""
        self._filler.unlink(missing_ok=True)
