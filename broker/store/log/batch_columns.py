"""A batch on its way into the log, if its messages are of one shape: bodies of one length, properties of one length.

All of it is a matrix then, a message to a row, and so are the records that come of it: what they share is put into all
rows at once, and so are the bodies. Only a checksum is made of each.

         total, 0, 0, flag, body length | body | properties length | properties          the batch, row by row
                         head of 88 bytes | body | topic, length | properties, ending    the records

Sources: docs/formats.md, "Batch body", "CommitLog record".
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from skylarkmq.broker.store.index.hashing import int64_array
from skylarkmq.broker.store.log.append_columns import AppendColumns
from skylarkmq.broker.store.log.record_rules import RECORD_FLAGS
from skylarkmq.broker.store.queue.tail import pack_units
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.record import (
    BODY_CRC_AT,
    CRC_MASK,
    LAYOUTS,
    LENGTH_PREFIX,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    Buffer,
)

if TYPE_CHECKING:
    from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue

Bytes: TypeAlias = NDArray[np.uint8]

_NOTHING: Final = np.empty((0, 0), np.uint8)


class BatchColumns(AppendColumns):
    """Messages of one queue that stay contiguous. `body_rows` and `text_rows` (properties) have a row for each."""

    __slots__ = ("_body_rows", "_text_rows", "queue_id", "queue_offset")

    def __init__(
        self,
        body_rows: Bytes,
        text_rows: Bytes,
        ending: bytes,
        message_keys: list[bytes],
        topic: str,
        queue_id: int,
        tags_code: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> None:
        count = len(body_rows)
        super().__init__(
            [topic] * count,
            [queue_id] * count,
            (),
            [],
            ending,
            [tags_code] * count,
            flag,
            sys_flag,
            [born_timestamp] * count,
            born_host,
            reconsume_times,
            message_keys,
        )
        self.queue_id = queue_id
        self.queue_offset = -1  # of the first message
        self._body_rows = body_rows
        self._text_rows = text_rows

    def find_queues(self, by_topic: Mapping[str, Mapping[int, "ConsumeQueue"]]) -> bool:
        """As there; they have one queue."""
        queue = by_topic.get(self.topics[0], {}).get(self.queue_id)
        if queue is None or queue.is_schedule or self.sys_flag & SysFlag.TRANSACTION_MASK:
            return False
        self.queues = [queue]
        return True

    def measure(self, store_host: bytes) -> None:
        """As there."""
        topic_size = len(self.queues[0].topic_field)
        around = LAYOUTS[len(self.born_host), len(store_host)].fixed_size + topic_size + len(self.ending)
        self.sizes = [around + self._body_rows.shape[1] + self._text_rows.shape[1]] * len(self)

    def put(self, at: int, timestamp: int, store_host: bytes) -> list[Buffer]:
        """As there; what was received is not needed any more."""
        queue, count, size = self.queues[0], len(self), self.sizes[0]
        self.queue_offset = begin = queue.next_offset
        self.queue_offsets = list(range(begin, begin + count))
        self.physical_offsets = list(range(at, at + size * count, size))
        self.physical_offset, self.size, self.store_timestamp = self.physical_offsets[-1], size, timestamp
        records = self._records(queue, timestamp.to_bytes(8, "big") + store_host)
        queue.next_offset = begin + count
        self.let_go()
        return [records.reshape(-1).data]

    def _records(self, queue: "ConsumeQueue", stamp: bytes) -> Bytes:
        texts_size = self._text_rows.shape[1] + len(self.ending)
        parts = (
            np.frombuffer(self._head(queue, stamp), np.uint8),
            self._body_rows,
            np.frombuffer(queue.topic_field + LENGTH_PREFIX[texts_size], np.uint8),
            self._text_rows,
            np.frombuffer(self.ending, np.uint8),
        )
        records = np.empty((len(self), self.size), np.uint8)
        at = 0
        for part in parts:
            end = at + part.shape[-1]
            records[:, at:end] = part
            at = end
        _column(records, BODY_CRC_AT, ">i4")[:] = int64_array(list(map(crc32, self._body_rows))) & CRC_MASK
        _column(records, QUEUE_OFFSET_AT, ">i8")[:] = int64_array(self.queue_offsets)
        _column(records, PHYSICAL_OFFSET_AT, ">i8")[:] = int64_array(self.physical_offsets)
        return records

    def _head(self, queue: "ConsumeQueue", stamp: bytes) -> bytes:
        """That of all records, without checksum and offsets."""
        layout = LAYOUTS[len(self.born_host), len(stamp) - 8]
        return layout.head.pack(
            self.sizes[0],
            queue.magic,
            0,
            self.queue_id,
            self.flag,
            0,
            0,
            self.sys_flag & RECORD_FLAGS | layout.host_flags,
            self.born_timestamps[0],
            self.born_host,
            stamp,
            self.reconsume_times,
            0,
            self._body_rows.shape[1],
        )

    def take_back(self) -> None:
        """As there."""
        self.queues[0].next_offset = self.queue_offset

    def gather_units(self, touched: list["ConsumeQueue"], jumped: Callable[["ConsumeQueue"], None]) -> None:
        """As there."""
        (queue,) = self.queues
        if self.queue_offset != queue.pending_next:
            jumped(queue)
        if not queue.turn:
            touched.append(queue)
        queue.pending_next = self.queue_offset + len(self)
        fields = [0] * (3 * len(self))
        fields[::3] = self.physical_offsets
        fields[1::3] = self.sizes
        fields[2::3] = self.tags_codes
        queue.turn += len(self)
        queue.pending += pack_units(fields)

    def let_go(self) -> None:
        """As there."""
        self._body_rows = self._text_rows = _NOTHING


def _column(records: Bytes, at: int, kind: str) -> NDArray[np.int64]:
    """The numbers that stand at one place of all records."""
    return np.ndarray((len(records),), kind, records, at, (records.shape[1],))
