"""One delay level: its queue of the schedule topic, delivered in order, each message when it is due.

`step` reads the first messages that are not delivered. It puts the due ones into their topics, with one batch and one
write, as many as fit into about 0.5 ms, and returns the time of its next call. It never waits: a lookup that needs
cold bytes raises ColdRead before anything has changed, and the step is run again.

    due time        the tags code of a unit: store time + delay of the level. If that is further ahead than the delay
                    itself (the table has a shorter delay now, or the clock was set back), the present messages are due
                    one delay from now at the latest. So no message waits less than a full delay, and none is stuck
    pacing          a message that comes due just after a delivery waits for up to PACE_MS, so that a stream of messages
                    takes one write per PACE_MS and not one per message
    put rejected    (disk full, store read-only) the same message again after RETRY_MS; earlier ones are delivered
    never storable  too large for the current limits, of a topic that was deleted after the send, or without a valid
                    destination: dropped, counted and logged

The offset advances past the delivered messages in the same step; `DelayOffsetTable` determines which offset survives a
crash. Source: docs/reference/wire.md, "Delayed messages".
"""

import logging
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.delivery.delay.restored_message import InvalidDestination, restore
from skylarkmq.broker.delivery.dropped_entries import DroppedEntries
from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.message_type import special_type
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.record import Record, iterate

PACE_MS: Final = 10
RETRY_MS: Final = 100
SLICE_S: Final = 0.000_5
SLICE_MESSAGES: Final = 32
LATENESS_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10, 60)

_TOPIC: Final = SystemTopic.SCHEDULE
_UNSTORABLE: Final = frozenset((PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED))

log = logging.getLogger(__name__)


class DelayLevelStatistics(msgspec.Struct, frozen=True):
    """Offsets in the queue of the level; the others are totals since the start."""

    next_offset: int
    max_offset: int
    delivered: int
    dropped: int
    refused: int  # steps that ended because the store rejected a put


class DelayLevel:
    """Level `number` with a delay of `delay_ms`; None if the table no longer has the level.

    `lateness`: seconds from the due time of messages to their store time when delivered.
    """

    def __init__(
        self, number: int, delay_ms: int | None, store: MessageStore, offsets: DelayOffsetTable, lateness: Histogram
    ) -> None:
        self.number = number
        self._delay_ms = delay_ms
        self._queue_id = number - 1
        self._store = store
        self._offsets = offsets
        self._lateness = lateness
        self.behind_ms = 0  # how late the first message was at the last step
        self._capped_until = 0  # messages before this offset are due at `_cap_ms` at the latest
        self._cap_ms = 0
        self._delivered = 0
        self._dropped = DroppedEntries(log, f"delayed message of level {number}")
        self._refused = 0

    def __repr__(self) -> str:
        return f"<DelayLevel {self.number} next={self._offsets.next_of(self.number)} delivered={self._delivered}>"

    def statistics(self) -> DelayLevelStatistics:
        """Return the current figures."""
        return DelayLevelStatistics(
            next_offset=self._offsets.next_of(self.number),
            max_offset=self._store.max_offset(_TOPIC, self._queue_id) or 0,
            delivered=self._delivered,
            dropped=self._dropped.count,
            refused=self._refused,
        )

    def step(self, now_ms: int) -> int | None:
        """Deliver due messages, up to a slice. Returns the time of the next step (ms); None: at the next arrival.

        After a ColdRead nothing has changed.
        """
        offset = self._next_offset()
        units = self._store.units(_TOPIC, self._queue_id, offset, SLICE_MESSAGES)
        self.behind_ms = 0
        if not units:
            return None
        dues = self._dues([tags_code for _, _, tags_code in units], offset, now_ms)
        count = next((at for at, due_ms in enumerate(dues) if due_ms > now_ms), len(dues))
        if not count:
            return dues[0]
        self.behind_ms = now_ms - dues[0]
        if self._store.flush.is_behind or not self._store.is_writable:
            return now_ms + RETRY_MS
        positions = {physical_offset: at for at, (physical_offset, _, _) in enumerate(units[:count])}
        done, is_refused = self._deliver(offset, positions, dues)
        if done:
            self._offsets.advance(self.number, offset + done, self._store.max_physical_offset)
        if is_refused:
            self._refused += 1
            return now_ms + RETRY_MS
        if done == count < len(dues):
            return max(dues[count], now_ms + PACE_MS)
        return now_ms if done < count or self._has_more(offset + done) else None

    # due times

    def _next_offset(self) -> int:
        """Return the offset of the next message to deliver, within the range of the queue."""
        offset = self._offsets.next_of(self.number)
        low = self._store.min_offset(_TOPIC, self._queue_id) or 0
        high = self._store.max_offset(_TOPIC, self._queue_id) or 0
        bounded = min(max(offset, low), high)
        if bounded != offset:
            log.warning(
                "delay offset is outside its queue level=%d offset=%d min=%d max=%d", self.number, offset, low, high
            )
            self._offsets.advance(self.number, bounded, self._store.max_physical_offset)
        return bounded

    def _has_more(self, offset: int) -> bool:
        return (self._store.max_offset(_TOPIC, self._queue_id) or 0) > offset

    def _dues(self, tags_codes: Sequence[int], offset: int, now_ms: int) -> list[int]:
        """Return the due times of the messages from `offset` on."""
        if self._delay_ms is not None and max(tags_codes) > now_ms + self._delay_ms:
            self._cap(tags_codes, offset, now_ms + self._delay_ms)
        capped = self._capped_until - offset
        if capped <= 0:
            return list(tags_codes)
        return [min(due_ms, self._cap_ms) if at < capped else due_ms for at, due_ms in enumerate(tags_codes)]

    def _cap(self, tags_codes: Sequence[int], offset: int, latest_ms: int) -> None:
        """Limit the due times of all present messages to `latest_ms`, unless the late ones are limited already."""
        if any(due_ms > latest_ms and offset + at >= self._capped_until for at, due_ms in enumerate(tags_codes)):
            self._capped_until = self._store.max_offset(_TOPIC, self._queue_id) or 0
            self._cap_ms = latest_ms
            log.warning(
                "delayed messages are due later than their level permits level=%d from=%d to=%d due_by=%d",
                self.number,
                offset,
                self._capped_until,
                latest_ms,
            )

    # delivering

    def _deliver(self, offset: int, positions: dict[int, int], dues: Sequence[int]) -> tuple[int, bool]:
        """Put due messages. Returns how many are processed, and whether the store rejected the next one.

        `positions`: physical offset of each due message -> its distance from `offset`.
        """
        found = self._store.get(_TOPIC, self._queue_id, offset, len(positions))
        records = [due for region in found.regions for due in _due_records(region.view, positions)]
        end_s = monotonic() + SLICE_S
        done, is_refused = min(found.next_begin_offset - offset, len(positions)), False
        put: list[tuple[Append, int]] = []
        dropped: list[tuple[int, str]] = []
        for at, record in records:
            if put and monotonic() > end_s:
                done = at
                break
            outcome = self._put(record)
            if isinstance(outcome, Append):
                put.append((outcome, at))
            elif outcome is not None:
                dropped.append((offset + at, outcome))
            else:
                done, is_refused = at, True
                break
        self._store.commit()
        if put and put[0][0].status not in STORED:
            done, is_refused, put = put[0][1], True, []
        self._note(put, dues)
        for queue_offset, reason in dropped:
            if queue_offset < offset + done:
                self._dropped.note(f"offset={queue_offset}", reason)
        return done, is_refused

    def _put(self, record: Record) -> Append | str | None:
        """Put the message of a record. Returns it; the reason if it can never be stored; None if not at present."""
        try:
            append = restore(record)
        except InvalidDestination as problem:
            return f"no destination, {problem}"
        if self._store.deleted.covers(append.topic, record.physical_offset):
            return f"{append.topic} was deleted"
        self._store.put(append)
        if append.status in _UNSTORABLE:
            return f"{append.status.name} in {append.topic}"
        return append if append.status is PutStatus.PENDING else None

    def _note(self, put: Sequence[tuple[Append, int]], dues: Sequence[int]) -> None:
        """Count delivered messages, and release their bodies, which are views into the log."""
        self._delivered += len(put)
        for append, at in put:
            append.body = b""
            self._lateness.note((append.store_timestamp - dues[at]) / 1000)
            message_type = special_type(append.properties)
            if message_type is not None:
                self._store.queues.note_message_type(append.topic, message_type, append.size)


def _due_records(view: memoryview, positions: dict[int, int]) -> Iterator[tuple[int, Record]]:
    """Yield the due records of a region, with their positions."""
    for record in iterate(view, check_body=False):
        if isinstance(record, Record) and record.physical_offset in positions:
            yield positions[record.physical_offset], record
