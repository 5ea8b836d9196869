"""The open batch: messages become records, one behind the other, until the log writes them all at once.

`put` is the hottest call of the store, so it only does what is always the same: it takes the next offset of the
message's queue and packs the record. Everything else is `unusual` and goes to the log's own method of that name, which
sees to it and comes back with `is_checked`: the first message of a turn or of a queue, a long one, one that does not
fit into the segment, any while the store refuses messages.

Prepared and rollback records (transactions) get queue offset 0 and no unit.

The compiled twin of this class is in protocol/compiled/record.py. Source: docs/formats.md, "CommitLog record".
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from isal.isal_zlib import crc32

from broker.store.append import Append
from broker.store.consume_queue import ConsumeQueue
from protocol import compiled
from protocol.codes import SysFlag
from protocol.record import BLANK_SIZE, CRC_MASK, HOST_FLAGS, LAYOUTS, LENGTH_PREFIX, Buffer

_CLIENT_FLAGS: Final = ~int(HOST_FLAGS)
_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_CLOSED: Final = -1


class PlainRecordBatch:
    """`at` is where the next record goes, `appends` who is in, `timestamp` (ms) the store time of all of them.

    `unchecked_size`: up to that many bytes a record needs no checks; -1 while all are refused.
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
        self._room_end = _CLOSED  # a record may end there
        self._parts: list[Buffer] = []

    def open(self, at: int, segment_end: int, timestamp: int) -> None:
        """Records go to `at` and on, up to where a blank still fits into the segment."""
        self.at = at
        self._room_end = segment_end - BLANK_SIZE
        self.timestamp = timestamp
        self._stamp = timestamp.to_bytes(8, "big") + self._store_host

    def put(self, append: Append, is_checked: bool = False) -> None:
        """Add one message. `is_checked`: it is known to fit, and its queue and the batch to be there."""
        queue = self._queues.get((append.topic, append.queue_id))
        if queue is None:
            self._unusual(append)
            return
        body = append.body
        properties = append.properties
        topic_field = queue.topic_field
        pack, fixed_size, host_flags = self._layouts[len(append.born_host)]
        body_size = len(body)
        properties_size = len(properties)
        size = fixed_size + body_size + len(topic_field) + properties_size
        at = self.at
        end = at + size
        if (end > self._room_end or size > self.unchecked_size) and not is_checked:
            self._unusual(append)
            return
        sys_flag = append.sys_flag & _CLIENT_FLAGS | host_flags
        has_unit = not sys_flag & _TRANSACTION or sys_flag & _TRANSACTION == _COMMIT
        queue_offset = queue.next_offset if has_unit else 0
        self._parts += (
            pack(
                size,
                queue.magic,
                crc32(body) & CRC_MASK,
                append.queue_id,
                append.flag,
                queue_offset,
                at,
                sys_flag,
                append.born_timestamp,
                append.born_host,
                self._stamp,
                append.reconsume_times,
                append.prepared_transaction_offset,
                body_size,
            ),
            body,
            topic_field,
            LENGTH_PREFIX[properties_size],
            properties,
        )
        if has_unit:
            queue.next_offset = queue_offset + 1
            append.queue = queue
        self.at = end
        append.physical_offset = at
        append.queue_offset = queue_offset
        append.size = size
        append.store_timestamp = self.timestamp
        self.appends.append(append)

    def record_size(self, append: Append, topic_size: int) -> int:
        """Bytes that a message's record will take; `topic_size`: of the topic field."""
        return self._layouts[len(append.born_host)][1] + len(append.body) + topic_size + len(append.properties)

    def data(self) -> memoryview:
        """The records since the last `open`. To be released before the next call here."""
        return memoryview(b"".join(self._parts))

    def restart(self) -> None:
        """What `data` gave is taken care of; the next record opens a segment, or a batch."""
        self._parts = []
        self._room_end = _CLOSED

    def close(self) -> list[Append]:
        """The batch is written, or given up; who was in."""
        self.restart()
        appends, self.appends = self.appends, []
        return appends

    def __repr__(self) -> str:
        return f"<RecordBatch messages={len(self.appends)} at={self.at}>"


_leaf = compiled.load("record")
if TYPE_CHECKING:
    RecordBatch = PlainRecordBatch
else:
    RecordBatch = PlainRecordBatch if _leaf is None else _leaf.RecordBatch
