"""The open batch: converts messages to consecutive records until the log writes all of them at once.

Putting a run of messages is the hottest loop of the store, so it only runs the common path: take the next offset of the
message's queue and pack the record. All other cases go to the log's callback `unusual`, which runs the checks and calls
back with `is_checked`: the first message of an event-loop iteration or of a queue, a long message, one that does not
fit into the segment, and every message while the store refuses writes.

Prepared and rollback records (transactions) get queue offset 0 and no queue unit.

The compiled version of this class is in protocol/compiled/record.py. Source: docs/reference/disk.md, "CommitLog
record".
"""

from collections.abc import Callable, Mapping, Sequence
from struct import error as StructError
from typing import TYPE_CHECKING, Final

from isal.isal_zlib import crc32

from skylarkmq.broker.store.files.record_rules import RECORD_FLAGS, fits_fields
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.record import BLANK_SIZE, CRC_MASK, LAYOUTS, LENGTH_PREFIX, Buffer

_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_CLOSED: Final = -1
_UNLIMITED: Final = 1 << 63
PARTS: Final = 5
"""Parts of a record in the open batch: head, body, topic, length of the properties, properties."""


class PythonRecordBatch:
    """`at`: offset of the next record. `appends`: the messages of the batch. `timestamp`: their store time, in ms.

    `unchecked_size`: records of up to this many bytes need no checks. -1 while the store refuses all messages.
    """

    def __init__(
        self,
        queues: Mapping[tuple[str, int], ConsumeQueue],
        store_host: bytes,
        unusual: Callable[[Append], None],
    ) -> None:
        self._queues = queues
        self._unusual = unusual
        self._store_host = store_host
        self._layouts = {
            born: (layout.head.pack, layout.fixed_size, int(layout.host_flags))
            for born in (8, 20)
            for layout in (LAYOUTS[born, len(store_host)],)
        }
        self.unchecked_size = -1
        self.at = 0
        self.timestamp = 0
        self.appends: list[Append] = []
        self._stamp = b""
        self._capacity_end = _CLOSED  # records must end at or before this offset
        self._parts: list[Buffer] = []

    def open(self, at: int, segment_end: int, timestamp: int) -> None:
        """Start a run of records at offset `at`. The last one must leave space for a blank in the segment."""
        self.at = at
        self._capacity_end = segment_end - BLANK_SIZE
        self.timestamp = timestamp
        self._stamp = timestamp.to_bytes(8, "big") + self._store_host

    def put(self, append: Append, is_checked: bool = False) -> None:
        """Add one message. `is_checked`: it fits, its queue exists and the batch is open."""
        self.put_run((append,), is_checked)

    def put_run(self, appends: Sequence[Append], is_checked: bool = False) -> None:
        """Add messages in order, each as `put` does."""
        at = 0
        while (at := at + self._put_usual(appends[at:] if at else appends, is_checked)) < len(appends):
            self._unusual(appends[at])
            at += 1

    def _put_usual(self, appends: Sequence[Append], is_checked: bool) -> int:
        """Add messages up to the first unusual one. Return how many were added."""
        capacity_end, longest = (_UNLIMITED, _UNLIMITED) if is_checked else (self._capacity_end, self.unchecked_size)
        find_queue, layouts, stamp, timestamp = self._queues.get, self._layouts, self._stamp, self.timestamp
        parts: list[Buffer] = []
        at = self.at
        try:
            for append in appends:
                queue = find_queue((append.topic, append.queue_id))
                if queue is None:
                    break
                body, properties, born_host = append.body, append.properties, append.born_host
                pack, fixed_size, host_flags = layouts[len(born_host)]
                topic_field = queue.topic_field
                body_size, properties_size = len(body), len(properties)
                size = fixed_size + body_size + len(topic_field) + properties_size
                if at + size > capacity_end or size > longest:
                    break
                sys_flag = append.sys_flag & RECORD_FLAGS | host_flags
                has_unit = not sys_flag & _TRANSACTION or sys_flag & _TRANSACTION == _COMMIT
                queue_offset = queue.next_offset if has_unit else 0
                head = pack(
                    size,
                    queue.magic,
                    crc32(body) & CRC_MASK,
                    append.queue_id,
                    append.flag,
                    queue_offset,
                    at,
                    sys_flag,
                    append.born_timestamp,
                    born_host,
                    stamp,
                    append.reconsume_times,
                    append.prepared_transaction_offset,
                    body_size,
                )
                parts += (head, body, topic_field, LENGTH_PREFIX[properties_size], properties)
                if has_unit:
                    queue.next_offset = queue_offset + 1
                    append.queue = queue
                append.physical_offset = at
                append.queue_offset = queue_offset
                append.size = size
                append.store_timestamp = timestamp
                at += size
        except StructError:
            if is_checked:
                raise
            # A number does not fit its field: the log refuses this message.
        finally:
            count = len(parts) // PARTS
            self._parts += parts
            self.appends += appends[:count]
            self.at = at
        return count

    def put_alike(self, appends: Sequence[Append]) -> None:
        """Add messages that fit and differ only in body, properties and flag."""
        first, at, timestamp = appends[0], self.at, self.timestamp
        queue = self._queues[first.topic, first.queue_id]
        layout = LAYOUTS[len(first.born_host), len(self._store_host)]
        sys_flag = first.sys_flag & RECORD_FLAGS | int(layout.host_flags)
        born = first.born_timestamp, first.born_host
        shared = layout.shared.pack(
            sys_flag, *born, self._stamp, first.reconsume_times, first.prepared_transaction_offset
        )
        has_unit = not sys_flag & _TRANSACTION or sys_flag & _TRANSACTION == _COMMIT
        offset, step, of_unit = (queue.next_offset, 1, queue) if has_unit else (0, 0, None)
        pack, magic, queue_id, topic_field = layout.alike.pack, queue.magic, first.queue_id, queue.topic_field
        around = layout.fixed_size + len(topic_field)
        parts: list[Buffer] = []
        for append in appends:
            body, properties = append.body, append.properties
            body_size, properties_size = len(body), len(properties)
            size = around + body_size + properties_size
            head = pack(size, magic, crc32(body) & CRC_MASK, queue_id, append.flag, offset, at, shared, body_size)
            parts += (head, body, topic_field, LENGTH_PREFIX[properties_size], properties)
            append.queue = of_unit
            append.physical_offset = at
            append.queue_offset = offset
            append.size = size
            append.store_timestamp = timestamp
            at += size
            offset += step
        self._parts += parts
        self.appends += appends
        self.at = at
        if has_unit:
            queue.next_offset = offset

    def record_size(self, append: Append, topic_size: int) -> int:
        """Return the record size of a message, in bytes. `topic_size`: size of the topic field."""
        return self._layouts[len(append.born_host)][1] + len(append.body) + topic_size + len(append.properties)

    def total_size(self, appends: Sequence[Append]) -> int:
        """Return the size of the messages' records, in bytes; 0 if a message needs further checks."""
        longest = self.unchecked_size
        topic, queue_id, around = "", -1, 0
        total = 0
        for append in appends:
            if append.queue_id != queue_id or append.topic != topic:
                topic, queue_id = append.topic, append.queue_id
                queue = self._queues.get((topic, queue_id))
                if queue is None:
                    return 0
                around = len(queue.topic_field)
            size = self._layouts[len(append.born_host)][1] + len(append.body) + around + len(append.properties)
            if size > longest or not fits_fields(append):
                return 0
            total += size
        return total

    def total_size_alike(self, appends: Sequence[Append]) -> int:
        """Return the same for messages that differ only in body, properties and flag."""
        first = appends[0]
        queue = self._queues.get((first.topic, first.queue_id))
        if queue is None:
            return 0
        around = self._layouts[len(first.born_host)][1] + len(queue.topic_field)
        sizes = [around + len(append.body) + len(append.properties) for append in appends]
        fits = fits_fields(first) and all(-(1 << 31) <= append.flag < 1 << 31 for append in appends)
        return sum(sizes) if fits and max(sizes) <= self.unchecked_size else 0

    def data(self, padding: int = 0) -> memoryview:
        """Return the records since the last `open`, then `padding` zeros. Release the view before the next call."""
        return memoryview(b"".join((*self._parts, bytes(padding))))

    def restart(self) -> None:
        """Drop the records that `data` returned. The next record needs `open` first."""
        self._parts = []
        self._capacity_end = _CLOSED

    def close(self) -> list[Append]:
        """End the batch, whether it was written or not. Return its appends."""
        self.restart()
        appends, self.appends = self.appends, []
        return appends

    def __repr__(self) -> str:
        return f"<RecordBatch messages={len(self.appends)} at={self.at}>"


_compiled = compiled.load("record")
if TYPE_CHECKING:
    RecordBatch = PythonRecordBatch
else:
    RecordBatch = PythonRecordBatch if _compiled is None else _compiled.RecordBatch
