"""The part of a store that replication needs: the end of the log that recovery did not make visible, and its deletions.

A store that follows shows its log as the owner of the connection says (`replica`). A store that takes messages shows
its hidden tail once, before any message of this process. Without replication there is no tail, and nothing here has
work.

The dispatch of a tail keeps records that are undecided. They are in a file while the store follows, and a store that
begins to take messages empties it, because its recovery has decided all of them.

Source: docs/reference/disk.md, "Followers".
"""

from collections.abc import Sequence

from skylarkmq.broker.store.flush.durability import Durability
from skylarkmq.broker.store.flush.follower_flush import FollowerFlush
from skylarkmq.broker.store.flush.undecided_records import UndecidedRecords
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.replica.follower_log import FollowerLog
from skylarkmq.broker.store.replica.log_dispatch import LogDispatch
from skylarkmq.broker.store.replica.replica_log import ReplicaLog
from skylarkmq.broker.store.retention.topic_deletion import TopicDeletion


class HiddenTail:
    """`replica`: the log of a follower, once it is loaded; None for a store that takes messages."""

    def __init__(
        self, commit_log: CommitLog, durability: Durability, deletion: TopicDeletion, undecided: UndecidedRecords
    ) -> None:
        self.replica: ReplicaLog | None = None
        self._log = commit_log
        self._durability = durability
        self._deletion = deletion
        self._undecided = undecided
        self._dispatch: LogDispatch | None = None
        self._recovered_end = 0

    def undecided(self) -> Sequence[int]:
        """Return the offsets of the records that the last process left undecided. Raises StoreError."""
        return self._undecided.load()

    def open(self, dispatch: LogDispatch | None, recovered_end: int) -> None:
        """Begin after the recovery. `dispatch` shows the tail; None: all of the log is visible. Raises OSError."""
        self._dispatch, self._recovered_end = dispatch, recovered_end
        log, flush = self._log, self._durability.log
        if dispatch is None:
            self._undecided.clear()
        elif isinstance(log, FollowerLog) and isinstance(flush, FollowerFlush):
            self.replica = ReplicaLog(log, flush, dispatch)
            self._undecided.current = dispatch.undecided
            self._durability.undecided = self._undecided

    def show_recovered(self) -> None:
        """Make visible what `load` found above its `show_to`: before any message of this process becomes visible.

        A second call does nothing. Raises LostBytesError or DamagedReplicaError if the log cannot be read.
        """
        dispatch, self._dispatch = self._dispatch, None
        if dispatch is not None and self.replica is None:
            dispatch.show(self._recovered_end)
            dispatch.finish()

    async def delete_topic(self, topic: str, *, may_have_delayed: bool) -> int:
        """Remove a topic's queues; see MessageStore."""
        if self.replica is not None:
            return await self.delete_topic_below(topic, self.replica.shown)
        count = await self._deletion.delete(topic, may_have_delayed=may_have_delayed)
        if self._dispatch is not None:
            self._dispatch.forget(topic, self._log.written)
        return count

    async def delete_topic_below(self, topic: str, end: int) -> int:
        """Do the same on a follower, for a topic whose records below byte `end` of the log are deleted.

        Returns 0, and removes nothing, if a later record of the topic has a unit, or gets one before the deletion is
        durable: it may be of a topic with the same name that was created again.
        """
        dispatch = self._dispatch
        end = min(end, self._log.written if dispatch is None else dispatch.shown)
        count = await self._deletion.delete_below(topic, end)
        if count and dispatch is not None:
            dispatch.forget(topic, end)
        return count

    def __repr__(self) -> str:
        return f"<HiddenTail replica={self.replica!r} dispatch={self._dispatch!r}>"
