"""Files with secrets, and whether other users can read them.

A file that its group or others can read is logged at the start and counted in a metric; with `strictSecretFiles` it
stops the start. Container secrets are excepted, since their mode is not the operator's choice: files of root below
/run/secrets or /var/run/secrets that only root can write. Docker mounts them with the mode 0444, Kubernetes with 0644.

Source: docs/formats.md, "Secrets".
"""

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from skylarkmq.broker.errors import StartError

CONTAINER_SECRETS: Final = (Path("/run/secrets"), Path("/var/run/secrets"))
OTHERS_READ: Final = stat.S_IRGRP | stat.S_IROTH
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
ROOT: Final = 0

log = logging.getLogger(__name__)


class SecretFiles:
    """The files with secrets of one daemon. Raises StartError at the first exposed file if `is_strict`."""

    def __init__(self, paths: Iterable[Path | None], *, is_strict: bool) -> None:
        self._paths = tuple(dict.fromkeys(path for path in paths if path is not None))
        for path in self.exposed():
            if is_strict:
                raise StartError(f"{path}: other users can read this file with secrets (strictSecretFiles=true)")
            log.warning("other users can read a file with secrets file=%s", path)

    def __repr__(self) -> str:
        return f"<SecretFiles {' '.join(map(str, self._paths))}>"

    def exposed(self) -> list[Path]:
        """Return the files that other users can read now."""
        return [path for path in self._paths if _is_exposed(path)]


def _is_exposed(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False  # its reader reports this
    return is_exposed(path, status)


def is_exposed(path: Path, status: os.stat_result) -> bool:
    """Return whether other users can read a file with this status, and it is no container secret."""
    if stat.S_ISDIR(status.st_mode) or not status.st_mode & OTHERS_READ:
        return False
    normal = Path(os.path.normpath(path.absolute()))
    is_in_container = any(normal.is_relative_to(directory) for directory in CONTAINER_SECRETS)
    return not (is_in_container and status.st_uid == ROOT and not status.st_mode & OTHERS_WRITE)
