"""Removes topics from the store: the entry of `deletedTopics.json` first, then the queues.

One deletion runs at a time: a second one of the same topic must not find the entry of the first, which is not on disk
yet, and restart the queue offsets.

A follower deletes a topic because the other node has deleted it. Records of a topic with the same name that was created
again may arrive meanwhile. So the entry is only up to a byte below which the other node has deleted all records of the
topic, and a topic whose queues have a later record keeps them. An undecided record is in no queue yet; it becomes the
first one of a new queue.

Source: docs/reference/disk.md, "Deleted topics".
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.queue.deleted_topics import DeletedTopics
from skylarkmq.broker.store.queue.table import QueueTable

log = logging.getLogger(__name__)

SAVES: Final = 3
"""Saves that a deletion awaits; the event loop waits for one more."""


class TopicDeletion:
    """The deletions of one store. `commit` writes its current batch, and makes settled messages visible."""

    def __init__(
        self, deleted: DeletedTopics, queues: QueueTable, commit_log: CommitLog, commit: Callable[[], object]
    ) -> None:
        self._deleted = deleted
        self._queues = queues
        self._log = commit_log
        self._commit = commit
        self._running = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<TopicDeletion {self._deleted!r} running={self._running.locked()}>"

    async def delete(self, topic: str, *, may_have_delayed: bool) -> int:
        """Delete a topic; see `MessageStore.delete_topic`."""
        async with self._running:
            if not self._queues.has_topic(topic) and not may_have_delayed:
                return 0
            self._commit()
            await self._make_durable(topic)
            removed = self._queues.remove_topic(topic)
        log.info("topic removed from store topic=%s queues=%d", topic, removed)
        return removed

    async def delete_below(self, topic: str, end: int) -> int:
        """Delete a topic of a follower; see `HiddenTail.delete_topic_below`."""
        queues = self._queues
        async with self._running:
            before = self._deleted.ends.get(topic, 0)
            if not queues.has_topic(topic) or queues.has_unit_from(topic, end):
                return 0
            try:
                await self._deleted.add(topic, max(before, end))
            except OSError:
                self._deleted.ends[topic] = before
                raise
            if queues.has_unit_from(topic, end):
                await self._deleted.add(topic, before)  # a recovery in between deletes the earlier records, rightly
                return 0
            removed = queues.remove_topic(topic)
        log.info("topic removed from store topic=%s queues=%d", topic, removed)
        return removed

    async def _make_durable(self, topic: str) -> None:
        """Save the entry of a topic, up to the end of its last record. Raises OSError, without an entry.

        The queue offsets of the topic restart at 0 afterward, so the entry on disk must cover every record with an old
        queue offset. If messages of the topic arrive during each of several saves, the event loop waits for the last
        one.
        """
        before = self._deleted.ends.get(topic, 0)
        try:
            for _ in range(SAVES):
                offsets = self._queues.next_offsets(topic)
                await self._deleted.add(topic, self._log.written)
                self._commit()
                if self._queues.next_offsets(topic) == offsets:
                    return
            self._deleted.add_blocking(topic, self._log.written)
        except OSError:
            self._deleted.ends[topic] = before  # a later save must not mark a topic as deleted that is still served
            raise
