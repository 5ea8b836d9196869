"""The log of a follower, as the owner of the connection to the other node uses it.

    append ─▶ written ─▶ synced (`on_synced`)          bytes at the end of the log, whatever they contain
    show ─▶ queues, index, arrivals                    whole records, in the order of the log, up to a limit
    truncate                                           the log ends earlier, never below what was shown

The three are independent: bytes may be shown before they are synced (a classic slave shows what it has), or after they
are committed (a link). Appending parses nothing, and costs one write per segment.

Only the event loop's thread calls these methods. Source: docs/reference/disk.md, "Followers".
"""

from collections.abc import Callable

from skylarkmq.broker.store.flush.follower_flush import FollowerFlush
from skylarkmq.broker.store.replica.errors import ReplicaError
from skylarkmq.broker.store.replica.follower_log import FollowerLog
from skylarkmq.broker.store.replica.log_dispatch import LogDispatch
from skylarkmq.protocol.record import Buffer


class ReplicaLog:
    """The log of one follower. Offsets are bytes of the log."""

    def __init__(self, commit_log: FollowerLog, flush: FollowerFlush, dispatch: LogDispatch) -> None:
        self._log = commit_log
        self._flush = flush
        self._dispatch = dispatch

    @property
    def end(self) -> int:
        """The end of the log, where the next append begins."""
        return self._log.written

    @property
    def synced(self) -> int:
        """The log below this byte is on disk."""
        return self._flush.done.end

    @property
    def shown(self) -> int:
        """The log below this byte is dispatched."""
        return self._dispatch.shown

    @property
    def min_offset(self) -> int:
        """The first byte of the log that exists: retention removes old segments, as on any node."""
        return self._log.files.min_offset

    def on_synced(self, callback: Callable[[int], None]) -> None:
        """Call back with `synced` whenever it has moved."""
        self._flush.on_synced = callback

    def on_failed(self, callback: Callable[[OSError], None]) -> None:
        """Call back once after a failed sync: only a restart can determine what is on the disk."""
        self._flush.on_failed = callback

    def append(self, offset: int, data: Buffer) -> None:
        """Append bytes of the other log. They begin at `offset`, which is the end of this one.

        An empty log may begin at the start of any segment. The zeros after a blank may be left out: then `offset` is
        the start of the next segment. Raises ReplicaError if the bytes do not continue the log, OSError if the disk
        refuses them. Then the end has not moved.
        """
        if offset != self._log.written:
            self._move_to(offset)
        self._log.append_bytes(data)
        self._flush.appended()

    def append_synced(self, offset: int, data: Buffer) -> bool:
        """Append bytes at the end, and sync the log before this returns: `on_synced` is not called for them.

        Return False if nothing was appended: the log ends elsewhere, its end is not synced, or the flusher has to sync
        (FollowerFlush). Raises OSError if the disk refuses; then the node has to restart.
        """
        if not offset == self._log.written == self.synced or not self._flush.may_sync_here(len(data)):
            return False
        self._log.append_bytes(data)
        self._flush.sync_here()
        return True

    def _move_to(self, offset: int) -> None:
        log = self._log
        if log.is_empty and offset == log.next_segment_start(offset - 1):
            self._begin_at(offset)
        elif not log.skip_to(offset):
            raise ReplicaError(f"bytes from {offset} on do not continue the log, which ends at {log.written}")

    def _begin_at(self, start: int) -> None:
        self._flush.restart(lambda: self._log.begin_at(start))
        self._dispatch.shown = start

    def show(self, limit: int) -> None:
        """Make all whole records visible that end at or below byte `limit`: queues, index, parked pulls.

        A half record at the end waits for its rest. Raises DamagedReplicaError (a ReplicaError) at bytes that are not
        a record, and OSError if the disk fails; earlier records are visible then. After an OSError of the disk the
        node has to restart.
        """
        self._dispatch.show(limit)

    def show_slice(self, limit: int) -> bool:
        """Do the same for as many records as take a few milliseconds. Return whether all are visible."""
        return self._dispatch.show_slice(limit)

    def truncate(self, end: int) -> None:
        """End the log at byte `end`; an empty log begins there instead. The disk has no later byte then.

        Blocks until the disk has synced. Raises ReplicaError below what was shown or above the end, and OSError if the
        disk fails; then the node has to restart.
        """
        log = self._log
        if log.is_empty and end != log.written and end == log.next_segment_start(end - 1):
            self._begin_at(end)
        elif self.shown <= end <= log.written:
            self._flush.restart(lambda: log.truncate(end))
        else:
            raise ReplicaError(f"the log cannot end at {end}: {self.shown} was shown, the end is {log.written}")

    def __repr__(self) -> str:
        return f"<ReplicaLog [{self.min_offset}, {self.end}) synced={self.synced} shown={self.shown}>"
