"""Delivery of one slot of the wheel: read its chain, then its deletions, then deliver its messages in order.

    chain       from the last unit back to the first, a few hundred at a time; a unit of another slot ends it
    deletions   messages that only request to drop another message of the same time (TIMER_DEL_UNIQKEY)
    messages    go to their topics unless they are dropped; rolled messages, whose time is beyond the window, go
                through the timer topic again (deletions too)

Each step processes one batch of one of these, in about 0.5 ms. Cold bytes are requested for the whole batch at once,
and the step is run again once they are in memory; nothing has changed until then. A message that the store rejects for
now is tried again. A message that can never be stored, or whose record or topic is gone, is dropped, counted and
logged.

After a crash the current slot is delivered again. Source: docs/reference/wire.md, "Timer messages".
"""

import logging
from array import array
from collections import Counter
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.delivery.delay.restored_message import InvalidDestination, restore
from skylarkmq.broker.delivery.dropped_entries import DroppedEntries
from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.message_type import special_type
from skylarkmq.broker.delivery.timer.pending_counts import PendingCounts
from skylarkmq.broker.delivery.timer.restored_message import deliver, roll
from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.timer.timer_log import TimerLog
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import PropertyName, property_value
from skylarkmq.protocol.record import Record
from skylarkmq.protocol.timers import DELETE, DELETES, NO_POSITION, ROLL

CHAIN_UNITS: Final = 256
BATCH_MESSAGES: Final = 32
BATCH_BYTES: Final = 256 << 10
SLICE_S: Final = 0.000_5
LATENESS_BOUNDS_S: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 10, 60)

_UNSTORABLE: Final = frozenset((PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED))

log = logging.getLogger(__name__)


class SlotDeliveryStatistics(msgspec.Struct, frozen=True):
    """Totals since the start. `deleted`: messages dropped by a deletion; `refused`: steps with a rejected put."""

    delivered: int
    deleted: int
    rolled: int
    dropped: int
    refused: int


class Tally:
    """Counts the outcomes of messages, over all slots."""

    def __init__(self, counts: PendingCounts) -> None:
        self.counts = counts
        self.delivered = self.deleted = self.rolled = self.refused = 0
        self.lost = DroppedEntries(log, "timer message")
        self.lateness = Histogram(LATENESS_BOUNDS_S)

    @property
    def dropped(self) -> int:
        """Return the number of messages that were not delivered because of an error."""
        return self.lost.count

    def __repr__(self) -> str:
        return f"<Tally delivered={self.delivered} dropped={self.dropped}>"

    def statistics(self) -> SlotDeliveryStatistics:
        """Return the current figures."""
        return SlotDeliveryStatistics(self.delivered, self.deleted, self.rolled, self.dropped, self.refused)


class SlotDelivery:
    """Delivers the slot of `slot_ms`, whose chain ends at position `last`."""

    def __init__(self, slot_ms: int, last: int, precision_ms: int, store: MessageStore, units: TimerLog, tally: Tally):
        self.slot_ms = slot_ms
        self._due_ms = slot_ms + precision_ms
        self._store = store
        self._units = units
        self._tally = tally
        self._position = last
        self._messages: tuple[array[int], ...] = (array("q"), array("i"), array("b"), array("q"))
        self._deletions: list[tuple[int, int]] = []
        self._deleted: set[str] = set()
        self._ahead: list[Record | None] = []  # records that are read, the next one last
        self._left = -1  # undelivered messages, once the chain is read
        self.last_rolled: Append | None = None

    def __repr__(self) -> str:
        return f"<SlotDelivery {self.slot_ms} left={self._left}>"

    def step(self, now_ms: int) -> bool | None:
        """Process a batch. True: the slot is complete; None: the store rejects puts at present. Raises ColdRead."""
        if self._position != NO_POSITION:
            self._read_chain()
            return False
        if self._deletions:
            self._read_deletions()
            return False
        if self._left < 0:
            self._left = len(self._messages[0])
        if self._left and self._deliver(now_ms) is None:
            self._tally.refused += 1
            return None
        return not self._left

    # ------------------------------------------------------------------------------------------------ reading

    def _read_chain(self) -> None:
        offsets, sizes, magics, writes = self._messages
        for _ in range(CHAIN_UNITS):
            unit = self._units.unit(self._position)
            if unit is None or unit.slot_ms != self.slot_ms or unit.previous >= self._position:
                log.warning("chain of timer units ends early slot=%d position=%d", self.slot_ms, self._position)
                self._position = NO_POSITION
                return
            if unit.magic & DELETE and not unit.magic & ROLL:
                self._deletions.append((unit.physical_offset, unit.size))
            else:
                offsets.append(unit.physical_offset)
                sizes.append(unit.size)
                magics.append(unit.magic)
                writes.append(unit.write_ms)
            self._position = unit.previous
            if self._position == NO_POSITION:
                return

    def _read_deletions(self) -> None:
        batch = self._deletions[-BATCH_MESSAGES:]
        for record in self._records(batch):
            if record is not None:
                key = property_value(_text(record), DELETES)
                if key is not None:
                    self._deleted.add(key)
        del self._deletions[-len(batch) :]

    def _records(self, positions: list[tuple[int, int]]) -> list[Record | None]:
        """Return the records at these bytes of the commit log, with these sizes; None for one that is invalid.

        Raises ColdRead after all cold ones are requested.
        """
        found: list[Record | None] = []
        cold: list[ColdRead] = []
        for offset, size in positions:
            try:
                record = self._store.reader.record_of_size_at(offset, size)
            except ColdRead as missed:
                cold.append(missed)
                continue
            found.append(record if record is not None and record.topic == SystemTopic.TIMER else None)
        if cold:
            for other in cold[1:]:
                self._store.reader.fetch(other)
            raise cold[0]
        return found

    # ------------------------------------------------------------------------------------------------ delivering

    def _batch(self) -> int:
        """Return the number of messages to read together."""
        sizes = self._messages[1]
        count = total = 0
        while count < min(self._left, BATCH_MESSAGES):
            total += sizes[self._left - 1 - count]
            if count and total > BATCH_BYTES:
                break
            count += 1
        return count

    def _deliver(self, now_ms: int) -> bool | None:
        """Put the next messages; None if the store rejects the first of them."""
        offsets, sizes, magics, writes = self._messages
        first = self._left - 1
        if not self._ahead:
            self._ahead = self._records([(offsets[first - at], sizes[first - at]) for at in range(self._batch())])[::-1]
        end_s = monotonic() + SLICE_S
        ended: list[_Ended] = []
        is_refused = False
        for at, record in enumerate(reversed(self._ahead)):
            if ended and monotonic() > end_s:
                break
            outcome = self._put(record, magics[first - at], writes[first - at], now_ms)
            is_refused = outcome.append is not None and outcome.append.status is not PutStatus.PENDING
            if is_refused:
                break
            ended.append(outcome)
        self._store.commit()
        put = next((one.append for one in ended if one.append is not None), None)
        if put is not None and put.status not in STORED:
            return None
        self._left -= len(ended)
        del self._ahead[len(self._ahead) - len(ended) :]
        for one in ended:
            self._note(one)
        for topic, left in Counter(one.topic for one in ended if not one.magic & DELETE).items():
            if topic:
                self._tally.counts.add(topic, -left)
        return None if is_refused and not ended else True

    def _put(self, record: Record | None, magic: int, enqueue_ms: int, now_ms: int) -> "_Ended":
        """Put a message and return the outcome, whatever its status, or the reason why it can never be stored."""
        if record is None:
            return _Ended("", magic, None, "its record is gone")
        try:
            append = restore(record)
        except InvalidDestination as problem:
            return _Ended(problem.topic, magic, None, f"no destination, {problem}")
        topic = append.topic
        if self._deleted and f"{topic}+{property_value(_text(record), PropertyName.UNIQ_KEY)}" in self._deleted:
            return _Ended(topic, magic)
        if self._store.deleted.covers(topic, record.physical_offset):
            return _Ended(topic, magic, None, "the topic was deleted")
        (roll if magic & ROLL else deliver)(append, enqueue_ms, now_ms)
        self._store.put(append)
        if append.status in _UNSTORABLE:
            return _Ended(topic, magic, None, append.status.name)
        return _Ended(topic, magic, append)

    def _note(self, one: "_Ended") -> None:
        """Count the outcome of a message, and release its memory."""
        tally, append = self._tally, one.append
        if append is None:
            if one.problem:
                tally.lost.note(f"topic={one.topic} slot={self.slot_ms}", one.problem)
            else:
                tally.deleted += 1
            return
        append.body = b""
        if one.magic & ROLL:
            tally.rolled += 1
            self.last_rolled = append
            return
        tally.delivered += 1
        tally.lateness.note(max(append.store_timestamp - self._due_ms, 0) / 1000)
        message_type = special_type(append.properties)
        if message_type is not None:
            self._store.queues.note_message_type(append.topic, message_type, append.size)


class _Ended(msgspec.Struct, gc=False):
    """The outcome of one message of `topic`: put, deleted, or dropped because of a problem."""

    topic: str
    magic: int
    append: Append | None = None
    problem: str = ""


def _text(record: Record) -> str:
    return record.properties.decode("utf-8", "replace")
