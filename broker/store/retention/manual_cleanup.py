"""The cleanup that an operator may request: expired segments of the log and of queues, and queues without a topic.

It deletes nothing that retention (`broker/store/retention/cleaner.py`) would keep; it only does not wait for the
configured hour. Source: docs/reference/disk.md, "Retention".
"""

from skylarkmq.broker.store.queue.paths import LIGHT_QUEUE_PREFIX
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.retention.cleaner import Cleaner
from skylarkmq.broker.store.retention.queue_cleaner import QueueCleaner


class ManualCleanup:
    """The cleanup of one store."""

    def __init__(self, cleaner: Cleaner, queue_cleaner: QueueCleaner, queues: QueueTable) -> None:
        self._cleaner = cleaner
        self._queue_cleaner = queue_cleaner
        self._queues = queues

    def __repr__(self) -> str:
        return f"<ManualCleanup {self._cleaner!r} {self._queue_cleaner!r}>"

    def delete_due_segments(self) -> None:
        """Delete due log segments in the next rounds, at any hour."""
        self._cleaner.delete_at_any_hour()

    def walk_queues(self) -> None:
        """Check all queues for expired segments."""
        self._queue_cleaner.restart()

    def topics(self) -> set[str]:
        """Return the topics that have queues, without light queues."""
        return {topic for topic in self._queues.by_topic if not topic.startswith(LIGHT_QUEUE_PREFIX)}
