"""Dispatch from the log to the data that consumers read: queue units, arrivals, index. Used live and in recovery.

`dispatch` takes appends in log order. Live, these are the objects that were put; recovery builds them from parsed
records. Units collect per queue; broker.store.queue.unit_writes decides when they are written. Then each queue's
arrival is announced once, with the tags codes of its new units, so that a parked pull can be matched without a read.

Under SYNC_FLUSH the caller passes only flushed appends. A queue that cannot be written keeps its units, and `retry`
writes them later; until then the store refuses new messages.

Source: docs/reference/disk.md, "Dispatch", "tagsCode".
"""

import logging
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from skylarkmq.broker.store.index.builder import IndexFeed
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.unit_writes import FULL_BYTES, UnitWrites
from skylarkmq.protocol import compiled
from skylarkmq.protocol.decimals import INT32_MAX, decimal
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE
from skylarkmq.protocol.message import PropertyName, property_value
from skylarkmq.protocol.record import Record

log = logging.getLogger(__name__)

Arrival: TypeAlias = Callable[[str, int, int, Sequence[int]], None]
"""`(topic, queue id, the queue's new max offset, tags codes of the new units)`"""

_pack_unit: Final = UNIT.pack
_UNKNOWN_LEVEL_DELAY_MS: Final = 1_000


class DispatchStatistics(msgspec.Struct, frozen=True):
    """`offset`: all records below this byte of the log are dispatched."""

    offset: int
    dispatched: int
    failed_queues: int


def python_gather_units(
    appends: Sequence[Append], deliver_time: Callable[[Append], int], jumped: Callable[[ConsumeQueue], None]
) -> list[ConsumeQueue]:
    """Append the unit of every append to its queue, in log order. Return the queues that got one; call
    `take_new_tags_codes` on each.

    `deliver_time` returns the tags code of a message in the schedule topic. `jumped` is called before a unit that does
    not follow the previous one, and writes the earlier units.
    """
    touched: list[ConsumeQueue] = []
    for append in appends:
        queue = append.queue
        if queue is None:
            continue
        if queue.is_schedule:
            append.tags_code = deliver_time(append)
        offset = append.queue_offset
        if offset != queue.pending_next:
            jumped(queue)
        if not queue.turn:
            touched.append(queue)
        queue.pending += _pack_unit(append.physical_offset, append.size, append.tags_code)
        queue.turn += 1
        queue.pending_next = offset + 1
    return touched


def python_publish(
    queues: Sequence[ConsumeQueue],
    waiting: dict[ConsumeQueue, None],
    topics: Container[str] | None,
    on_arrival: Arrival | None,
) -> tuple[int, list[ConsumeQueue]]:
    """Make the new units of queues visible if they may wait in memory. Return their number, and the queues whose units
    may not. With thousands of queues this loop runs once per message.

    `topics`: the topics whose arrivals are announced; None: all.
    """
    units = 0
    others: list[ConsumeQueue] = []
    for queue in queues:
        turn, size = queue.turn, len(queue.pending)
        if queue.is_removed or size >= FULL_BYTES:
            others.append(queue)
            continue
        if size == turn * UNIT_SIZE:  # else it is waiting already
            waiting[queue] = None
        units += turn
        queue.uncounted += turn
        queue.end = queue.pending_next
        if on_arrival is not None and (topics is None or queue.topic in topics):
            on_arrival(queue.topic, queue.queue_id, queue.end, queue.take_new_tags_codes())
        queue.turn = 0
    return units, others


_compiled = compiled.load("dispatch")
gather_units = python_gather_units if _compiled is None else _compiled.gather_units
publish = python_publish if _compiled is None else partial(_compiled.publish, FULL_BYTES)


class Dispatch:
    """`offset`: the dispatched end of the log. `topics`: the topics whose arrivals are announced; None: all."""

    def __init__(
        self, delay_levels: Sequence[int], on_arrival: Arrival | None = None, topics: Container[str] | None = None
    ) -> None:
        self._delay_levels = delay_levels
        self.on_arrival = on_arrival
        self._topics = topics
        self.index: IndexFeed | None = None  # set once it has caught up with what was dispatched before
        self.offset = 0
        self.writes = UnitWrites()
        self.last_store_timestamp = 0
        self._unannounced: dict[ConsumeQueue, list[int]] = {}  # tags codes of failed queues
        self._dispatched = 0

    def dispatch(self, appends: Sequence[Append]) -> None:
        """Give every append its queue unit, in log order."""
        self._publish(gather_units(appends, self.deliver_time, self._write_before_jump))
        if appends:
            last = appends[-1]
            self.offset = last.physical_offset + last.size
            self.last_store_timestamp = last.store_timestamp
            self._dispatched += len(appends)
            if self.index is not None:
                self.index.add(appends, self.offset)

    def add_unit(self, append: Append) -> None:
        """Give a record that was dispatched without a unit its unit."""
        self._publish(gather_units((append,), self.deliver_time, self._write_before_jump))

    def _publish(self, queues: Sequence[ConsumeQueue]) -> None:
        """Make the new units of queues visible, and announce them."""
        writes = self.writes
        if writes.limit:
            units, queues = publish(queues, writes.waiting, self._topics, self.on_arrival)
            writes.units += units
        for queue in queues:
            codes = queue.take_new_tags_codes()
            queue.uncounted += len(codes)
            if writes.add(queue, len(codes)):
                self._announce(queue, codes)
            else:
                self._unannounced.setdefault(queue, []).extend(codes)  # announced when they are written
        if writes.limit and writes.units > writes.limit:
            writes.write_oldest()

    def _write_before_jump(self, queue: ConsumeQueue) -> None:
        """Write the pending units. A unit follows no other only in recovery, where an OSError ends the load."""
        queue.take_new_tags_codes()
        if queue.pending:
            queue.write_pending()

    def _announce(self, queue: ConsumeQueue, tags_codes: Sequence[int]) -> None:
        if self.on_arrival is not None and not queue.is_removed:
            self.on_arrival(queue.topic, queue.queue_id, queue.end, tags_codes)

    @property
    def failed(self) -> set[ConsumeQueue]:
        """Queues whose units could not be written."""
        return self.writes.failed

    def retry(self) -> None:
        """Write the failed queues again."""
        for queue in self.writes.retry():
            if queue in self._unannounced:
                self._announce(queue, self._unannounced.pop(queue))

    def deliver_time(self, append: Append) -> int:
        """Return the tags code of a message in the schedule topic: its due time in ms.

        Source: docs/reference/disk.md, "tagsCode".
        """
        return schedule_tags_code(append.properties, append.store_timestamp, append.tags_code, self._delay_levels)

    def append_of(self, record: Record, queue: ConsumeQueue | None) -> Append:
        """Return a parsed record in the form that `dispatch` takes. `queue`: None if it gets no unit."""
        # fmt: off
        return Append(  # by position: names take half of the time
            record.topic, record.queue_id, b"", record.properties, record.tags_code, record.flag, record.sys_flag,
            record.born_timestamp, record.born_host, record.reconsume_times, record.prepared_transaction_offset,
            True, PutStatus.PENDING, record.physical_offset, record.queue_offset, record.size, record.store_timestamp,
            queue, record.keys,
        )
        # fmt: on

    def statistics(self) -> DispatchStatistics:
        """Return the counts since the start."""
        return DispatchStatistics(self.offset, self._dispatched, len(self.writes.failed))

    def __repr__(self) -> str:
        return f"<Dispatch offset={self.offset}>"


def schedule_tags_code(properties: bytes, store_timestamp: int, tag_hash: int, delays_ms: Sequence[int]) -> int:
    """Return the delivery time (ms) of a record in the schedule topic; its tag's hash if it has no delay level."""
    level = decimal(property_value(properties.decode("utf-8", "replace"), PropertyName.DELAY), 1, INT32_MAX)
    if level is None:
        return tag_hash
    capped = min(level, len(delays_ms))
    return store_timestamp + (delays_ms[capped - 1] if capped else _UNKNOWN_LEVEL_DELAY_MS)
