"""A node whose disk is full restarts once there is space again.

A disk without space is as it was before the write that failed, so a new start of the process goes on with the same
store. On a disk that is still full the new process would end at its next write. Its supervisor would start it again
every few seconds, and each start reads the log and disturbs the leader. So the process first waits until its file
system has room for a segment of the log. Meanwhile it serves reads, its retention deletes expired segments, and
`/readyz` and the log have the reason.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY

CHECK_S: Final = 1.0

log = logging.getLogger(__name__)


class RestartWithRoom:
    """A restart of one node. `ended` is called once, when the process may end."""

    def __init__(self, root: Path, segment_bytes: int, ended: Callable[[DaemonEnded], None], disk: Disk) -> None:
        self._directory = str(root / COMMIT_LOG_DIRECTORY)
        self._segment_bytes = segment_bytes
        self._ended = ended
        self._disk = disk
        self._waiting: DaemonEnded | None = None
        self._checked_s = 0.0

    def __repr__(self) -> str:
        return f"<RestartWithRoom {self._waiting!r}>"

    @property
    def problem(self) -> str:
        """Why the node waits, and the next step; "" if it does not."""
        if self._waiting is None:
            return ""
        need = f"{self._segment_bytes} bytes in {self._directory}"
        return f"the disk is full, this node restarts once it has room for a segment ({need}): free space"

    def end(self, reason: DaemonEnded) -> None:
        """End the process, at once if there is room."""
        if self._has_room():
            self._ended(reason)
            return
        self._waiting = reason
        log.error("replication waits reason=%s", self.problem)

    def step(self) -> None:
        """End the process if it waits and there is room now. Call it every 100 ms or so."""
        reason, now_s = self._waiting, monotonic()
        if reason is None or now_s - self._checked_s < CHECK_S:
            return
        self._checked_s = now_s
        if self._has_room():
            self._waiting = None
            self._ended(reason)

    def _has_room(self) -> bool:
        try:
            return self._disk.free_bytes(self._directory) >= self._segment_bytes
        except OSError as problem:
            log.warning("free space is unknown path=%s error=%s", self._directory, problem)
            return True
