"""Files with secrets, and whether other users can read them.

A file that its group or others can read is logged and counted in a metric; with `strictSecretFiles` it stops the start.
Files of accounts that appear later are included: `found` returns those that exist now. With `strictSecretFiles` such a
file is not read while others can read it (`plain_acl/files.py`).

Container secrets are excepted, since their mode is not the operator's choice: files of root below /run/secrets or
/var/run/secrets that only root can write. Docker mounts them with the mode 0444, Kubernetes with 0644.

Source: docs/reference/behaviour.md, "Secrets".
"""

import logging
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from skylarkmq.broker.base.errors import StartError

CONTAINER_SECRETS: Final = (Path("/run/secrets"), Path("/var/run/secrets"))
OTHERS_READ: Final = stat.S_IRGRP | stat.S_IROTH
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
ROOT: Final = 0
CHECK_MS: Final = 10_000
PROBLEM: Final = "other users can read this file with secrets"

log = logging.getLogger(__name__)


class SecretFiles:
    """The files with secrets of one daemon: `paths`, and those that `found` returns. Raises StartError at the first
    exposed file if `is_strict`."""

    def __init__(
        self, paths: Iterable[Path | None], found: Callable[[], Iterable[Path]] = tuple, *, is_strict: bool
    ) -> None:
        self._paths = tuple(path for path in paths if path is not None)
        self._found = found
        self._logged: set[Path] = set()
        self._next_check_ms: int | None = None
        exposed = self.exposed()
        if is_strict and exposed:
            raise StartError(f"{exposed[0]}: {PROBLEM} (strictSecretFiles=true)")
        self._log(exposed)

    def __repr__(self) -> str:
        return f"<SecretFiles {' '.join(map(str, self._all()))}>"

    def exposed(self) -> list[Path]:
        """Return the files that other users can read now."""
        return [path for path in self._all() if is_exposed_now(path)]

    def step(self, now_ms: int) -> None:
        """Log newly exposed files, every CHECK_MS by the steady clock `now_ms`."""
        if self._next_check_ms is None or now_ms >= self._next_check_ms:
            self._next_check_ms = now_ms + CHECK_MS
            self._log(self.exposed())

    def _all(self) -> dict[Path, None]:
        return dict.fromkeys((*self._paths, *self._found()))

    def _log(self, exposed: Iterable[Path]) -> None:
        """Log each exposed file once, and again if it was protected in between."""
        exposed = set(exposed)
        for path in sorted(exposed - self._logged):
            log.warning("other users can read a file with secrets file=%s", path)
        self._logged = exposed


def is_exposed_now(path: Path) -> bool:
    """Return whether other users can read a file; False if it does not exist."""
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
