"""The block of a store whose node leads: it refuses all messages while too few synced copies can acknowledge them.

The record that ends a block, the first one of a term, is put although the store is blocked: `lifted`.

Source: docs/reference/disk.md, "Followers".
"""

from collections.abc import Iterator
from contextlib import contextmanager

from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.running_flags import RunningFlag


class LeaderBlock:
    """The block of one log, and the room that it keeps for records of terms. `segment_bytes`: size of a segment."""

    def __init__(self, commit_log: CommitLog, segment_bytes: int) -> None:
        self._log = commit_log
        self._segment_bytes = segment_bytes
        self._reason = ""

    def __repr__(self) -> str:
        return f"<LeaderBlock {self._reason!r}>"

    def set(self, reason: str) -> None:
        """Refuse all messages for this reason of the replication; "" accepts them again."""
        if reason:
            self._log.flags.set(RunningFlag.COPIES_MISSING, reason)
        else:
            self._log.flags.clear(RunningFlag.COPIES_MISSING)
        self._reason = reason

    def keep_room(self, size: int) -> None:
        """Leave `size` bytes of each segment, at most a quarter, to records that are put while the block is lifted.

        Such a record is the first one of a term. In the next segment it would follow a blank of its term, and a replica
        whose log has other bytes in place of that blank could not be told where the logs begin to differ.
        """
        self._log.kept_room = min(size, self._segment_bytes // 4)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Accept messages within this context, also into the kept room."""
        reason, room = self._reason, self._log.kept_room
        self.set("")
        self._log.kept_room = 0
        try:
            yield
        finally:
            self._log.kept_room = room
            self.set(reason)
