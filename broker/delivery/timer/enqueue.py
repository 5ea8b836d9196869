"""From the timer topic onto the wheel: each message gets a unit in the timer log, appended to the chain of its slot.

A message whose slot is delivered already, because it arrived late, is put into the first undelivered slot. So each
message is on the wheel before it is delivered, and a deletion is there before its message. No slot is so old that it
would share its position on the wheel with a later one (`TimerFiles.oldest_ms`). A message that is due beyond the window
gets a slot inside the window, from which it is rolled: at the end of the window, or at half of it if less than a third
of a window would remain.

A batch is one write to the timer log; the wheel is updated after that write has succeeded. A record without a time, or
without a destination that clients may write to, is dropped and counted; it never blocks later ones.
Source: docs/reference/disk.md, "Timer files".
"""

import logging
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from skylarkmq.broker.delivery.delay.restored_message import InvalidDestination, destination
from skylarkmq.broker.delivery.dropped_entries import DroppedEntries
from skylarkmq.broker.delivery.timer.pending_counts import PendingCounts
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.queue_reads import GetResult, GetStatus
from skylarkmq.broker.store.timer.files import TimerFiles, slot_with_unit
from skylarkmq.broker.store.timer.wheel import Slot
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.decimals import decimal
from skylarkmq.protocol.message import java_hash, property_value
from skylarkmq.protocol.record import Record, iterate
from skylarkmq.protocol.timers import DELETE, DELETES, NORMAL, OUT_MS, ROLL, UNIT_SIZE, TimerUnit

BATCH_MESSAGES: Final = 32
LONG_MAX: Final = 2**63 - 1

_TOPIC: Final = SystemTopic.TIMER

log = logging.getLogger(__name__)

_topic_hash: Final = lru_cache(1_024)(java_hash)


class EnqueueStatistics(msgspec.Struct, frozen=True):
    """`next_offset` in the timer topic; the others are totals since the start. `invalid`: dropped, because time or
    destination are missing or invalid."""

    next_offset: int
    max_offset: int
    enqueued: int
    invalid: int


class _Entry(msgspec.Struct, gc=False):
    """A message and its slot."""

    slot_ms: int
    magic: int
    record: Record
    topic: str


class Enqueue:
    """Puts messages of one store on its wheel. `window_ms`: how far ahead a slot may be."""

    def __init__(
        self, store: MessageStore, files: TimerFiles, counts: PendingCounts, precision_ms: int, window_ms: int
    ) -> None:
        self._store = store
        self._files = files
        self._counts = counts
        self._precision_ms = precision_ms
        self._window_ms = window_ms
        self.next_offset = 0
        self.is_following = False
        """Whether a master has put the messages on its wheel before, when they were stored: rolled ones have a copy."""
        self.enqueued = 0
        self._invalid = DroppedEntries(log, "timer message")

    def __repr__(self) -> str:
        return f"<Enqueue next={self.next_offset} enqueued={self.enqueued}>"

    def statistics(self) -> EnqueueStatistics:
        """Return the current figures."""
        end = self._store.max_offset(_TOPIC, 0) or 0
        return EnqueueStatistics(self.next_offset, end, self.enqueued, self._invalid.count)

    @property
    def is_behind(self) -> bool:
        """Return whether there are messages that are not on the wheel."""
        return (self._store.max_offset(_TOPIC, 0) or 0) > self.next_offset

    def step(self, now_ms: int, open_ms: int, limit: int = LONG_MAX) -> None:
        """Put some messages on the wheel, into slots from `open_ms` on; only messages with offsets below `limit`.

        After ColdRead, OSError or WriteRefused nothing has changed.
        """
        count = min(BATCH_MESSAGES, limit - self.next_offset)
        found = self._store.get(_TOPIC, 0, self.next_offset, count)
        write_ms = now_ms // self._precision_ms * self._precision_ms
        entries = [self._entry(record, write_ms, open_ms) for record in _records(found)]
        self._put([entry for entry in entries if entry is not None], write_ms)
        if found.status is not GetStatus.FOUND:
            next_offset = found.next_begin_offset
            log.warning("timer messages are gone because=%s from=%d to=%d", found.status, self.next_offset, next_offset)
        self.next_offset = found.next_begin_offset

    def _entry(self, record: Record, write_ms: int, open_ms: int) -> _Entry | None:
        """Return a message with its slot; None if it is not a valid timer message."""
        text = record.properties.decode("utf-8", "replace")
        due_ms = decimal(property_value(text, OUT_MS))
        try:
            topic, _ = destination(text)
        except InvalidDestination as problem:
            self._invalid.note(f"offset={record.queue_offset}", f"no destination, {problem}")
            return None
        if due_ms is None:
            self._invalid.note(f"offset={record.queue_offset}", f"{OUT_MS} is missing or not a time")
            return None
        slot_ms, magic = due_ms // self._precision_ms * self._precision_ms, NORMAL
        from_ms = record.store_timestamp // self._precision_ms * self._precision_ms if self.is_following else write_ms
        if slot_ms - from_ms >= self._window_ms:
            magic |= ROLL
            is_short = slot_ms - from_ms - self._window_ms < self._window_ms // 3
            slot_ms = from_ms + self._within_window(is_short=is_short)
        if property_value(text, DELETES) is not None:
            magic |= DELETE
        return _Entry(max(slot_ms, open_ms, self._files.oldest_ms(write_ms)), magic, record, topic)

    def _within_window(self, *, is_short: bool) -> int:
        if not is_short:
            return self._window_ms
        return self._window_ms // self._precision_ms // 2 * self._precision_ms

    def _put(self, entries: list[_Entry], write_ms: int) -> None:
        """Write the units, then update the wheel."""
        if not entries:
            return
        timer_log, wheel = self._files.log, self._files.wheel
        slots: dict[int, Slot] = {}
        units, positions, end = [], [], timer_log.end
        for one in entries:
            slot = slots.get(one.slot_ms) or wheel.slot(one.slot_ms)
            position = timer_log.next_position(end)
            record = one.record
            unit = TimerUnit(
                slot.last,
                one.magic,
                write_ms,
                one.slot_ms - write_ms,
                record.physical_offset,
                record.size,
                _topic_hash(one.topic),
            )
            slots[one.slot_ms] = slot_with_unit(slot, position, one.magic)
            units.append(unit.encode())
            positions.append(position)
            end = position + UNIT_SIZE
        self._files.append(units, positions)
        for slot_ms, slot in slots.items():
            wheel.put(slot_ms, slot)
        self.enqueued += len(entries)
        if self.is_following:
            return  # the counts are the master's
        for topic, more in Counter(one.topic for one in entries if not one.magic & DELETE).items():
            self._counts.add(topic, more)


def _records(found: GetResult) -> Iterator[Record]:
    for region in found.regions:
        for record in iterate(region.view, check_body=False):
            if isinstance(record, Record):
                yield record
