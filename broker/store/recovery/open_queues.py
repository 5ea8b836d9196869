"""Evidence from the queues of an open store, for recovery and for the dispatch of a follower."""

from skylarkmq.broker.store.files.mapped_file_queue import MappedFileQueue
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.recovery.queue_evidence import QueueEvidence
from skylarkmq.broker.store.recovery.queue_order import Key
from skylarkmq.protocol.disk import UNIT_SIZE
from skylarkmq.protocol.record import Record, parse


class OpenQueueEvidence(QueueEvidence):
    """The units of a `QueueTable`, and the records that they point to."""

    def __init__(self, files: MappedFileQueue, queues: QueueTable) -> None:
        super().__init__(self._units_of, self.record_at, files.is_missing, files.min_offset)
        self._files = files
        self._queues = queues

    def record_at(self, physical_offset: int) -> Record | None:
        """Return the record that begins at a byte of the log; its body is not checked."""
        segment = self._files.find(physical_offset)
        if segment is None or not segment.check_for_lost_bytes():
            return None
        found = parse(segment.view, physical_offset - segment.start, check_body=False)
        return found if isinstance(found, Record) and found.physical_offset == physical_offset else None

    def _units_of(self, key: Key) -> "_OpenUnits | None":
        queue = self._queues.get(*key)
        return None if queue is None else _OpenUnits(queue)


class _OpenUnits:
    """The units of an open queue."""

    __slots__ = ("_queue", "read")

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self.read = queue.read

    @property
    def begin(self) -> int:
        return max(self._queue.first_start, 0) // UNIT_SIZE

    @property
    def end(self) -> int:
        return self._queue.end
