"""What an operator may have tidied up before its time: expired segments of the log and of queues, and what belongs to
no topic.

None of it goes beyond what retention does by itself (`broker/store/retention/cleaner.py`); it only does not wait for
its hour. Source: docs/formats.md, "Retention".
"""

from skylarkmq.broker.store.queue.paths import LIGHT_QUEUE_PREFIX
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.retention.cleaner import Cleaner
from skylarkmq.broker.store.retention.queue_cleaner import QueueCleaner


class Tidying:
    """For one store."""

    def __init__(self, cleaner: Cleaner, queue_cleaner: QueueCleaner, queues: QueueTable) -> None:
        self._cleaner = cleaner
        self._queue_cleaner = queue_cleaner
        self._queues = queues

    def __repr__(self) -> str:
        return f"<Tidying {self._cleaner!r} {self._queue_cleaner!r}>"

    def delete_due_segments(self) -> None:
        """Let segments of the log that are due go at the next looks, whatever the hour."""
        self._cleaner.hurry()

    def walk_queues(self) -> None:
        """Look at every queue for segments that the log has left behind."""
        self._queue_cleaner.start_over()

    def topics(self) -> set[str]:
        """The topics that have queues which are ours."""
        return {topic for topic in self._queues.by_topic if not topic.startswith(LIGHT_QUEUE_PREFIX)}
