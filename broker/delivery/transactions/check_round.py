"""One check round: each half message that has been open for long enough is checked once, oldest first.

    decided, superseded                     skipped: finding the next open one is a search in bytes
    checked the maximum number of times,
    or as old as messages in the log get    moved to TRANS_CHECK_MAX_TIME_TOPIC, no longer checked
    immune, by its own property             stored again, so that it does not block those after it; counts as a check
    immune, by the default time             ends the round: those after it are younger
    else                                    stored again, then one of its producers gets a check request, in turn

The round ends at the end that the half queue had when it began, so none is checked twice. A copy is in the log before
its check request is sent, and the request contains the offset of the copy. If a group has no producer, that counts as a
check, as in RocketMQ. So does a group without a producer that may send to the topic: a check request contains the
message. A producer that does not read its connection gets no more requests; that does not count.

`step` runs a slice of about 0.5 ms: it reads all messages of the slice (after a ColdRead nothing has changed), decides,
writes once, and sends the requests. A store that rejects puts, or a disk that is behind, ends the round; the next round
continues.
Source: docs/reference/wire.md, "Transactions".
"""

import logging
from collections.abc import Callable, Iterable
from enum import Enum, auto
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.message_type import TRANSACTION
from skylarkmq.broker.delivery.transactions.messages import (
    NO_HALF,
    QUEUE_ID,
    HalfMessage,
    check_request_of,
    copy_of,
    discard_of,
    half_in,
    op_of,
)
from skylarkmq.broker.delivery.transactions.open_halves import HalfState
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.remoting.request_source import ClientChannel
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic

SLICE_MESSAGES: Final = 8
SLICE_S: Final = 0.000_5
HOUR_MS: Final = 3_600_000
UNREAD_BYTES: Final = 1 << 20
"""A producer with this many unread bytes gets no more check requests."""

_HALF: Final = SystemTopic.TRANSACTION_HALF
_UNSTORABLE: Final = frozenset((PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED))

Producers = Callable[[str, str], Iterable[ClientChannel]]
"""`(group, topic)`: returns the channels of the producers of a group that may send to a topic."""

log = logging.getLogger(__name__)


class Verdict(Enum):
    """The action for an open half message."""

    LEAVE = auto()  # its end is in progress
    STOP = auto()
    KEEP = auto()  # immune, by its own property
    CHECK = auto()
    POSTPONE = auto()  # a check is due, but no producer of the group reads its connection
    DISCARD = auto()
    DROP = auto()


class CheckTotals(msgspec.Struct):
    """Totals of all rounds since the start."""

    asked: int = 0  # check requests sent
    without_producer: int = 0  # half messages whose group had no producer
    kept: int = 0  # stored again without a check
    discarded: int = 0
    dropped: int = 0  # invalid, or their topic was deleted
    turn: int = 0  # selects the producer of a group


class CheckRound:
    """One round over the half messages that `store` has at `now_ms`; adds to `totals`."""

    def __init__(
        self, store: MessageStore, transactions: Transactions, producers: Producers, totals: CheckTotals, now_ms: int
    ) -> None:
        self._store = store
        self._transactions = transactions
        self._producers = producers
        self._totals = totals
        self._began_ms = now_ms
        self._at = transactions.halves.begin
        self._end = store.max_offset(_HALF, QUEUE_ID) or 0

    def __repr__(self) -> str:
        return f"<CheckRound at={self._at} end={self._end}>"

    def step(self, now_ms: int) -> bool:
        """Run one slice. Returns whether there is more to do."""
        self._at = at = self._transactions.halves.next_open(self._at)
        if at >= self._end or self._store.flush.is_behind or not self._store.is_writable:
            return False
        units = self._store.units(_HALF, QUEUE_ID, at, min(SLICE_MESSAGES, self._end - at))
        if not units:
            return False
        is_open_at = self._transactions.halves.is_open_at
        record_at = self._store.reader.record_of_size_at
        opened = [(offset, unit) for offset, unit in enumerate(units, at) if is_open_at(offset)]
        found = [(offset, half_in(record_at(unit[0], unit[1]))) for offset, unit in opened]
        return self._process(found, at + len(units), now_ms)

    def _process(self, found: list[tuple[int, HalfMessage | None]], end: int, now_ms: int) -> bool:
        """Process each half message (None: an invalid record). Returns whether the round continues."""
        until_s = monotonic() + SLICE_S
        done: list[tuple[HalfMessage, Verdict, Append, ClientChannel | None]] = []
        continues = True
        for offset, half in found:
            if half is None:
                self._drop_invalid(offset)
                continue
            verdict = self._verdict(half, now_ms)
            if verdict is Verdict.STOP or (done and monotonic() > until_s):
                end, continues = offset, verdict is not Verdict.STOP
                break
            if verdict is Verdict.LEAVE:
                continue
            connected = self._connected(half) if verdict is Verdict.CHECK else []
            producer = self._next_of(connected)
            if connected and producer is None:
                verdict = Verdict.POSTPONE
            append = self._put(half, verdict, now_ms)
            if append.status is not PutStatus.PENDING:
                end, continues = offset, False
                break
            done.append((half, verdict, append, producer))
        self._store.commit()
        if done and done[0][2].status is not PutStatus.PENDING and done[0][2].status not in STORED:
            return False
        for half, verdict, append, producer in done:
            self._conclude(half, verdict, append, producer)
        self._at = end
        return continues

    def _drop_invalid(self, offset: int) -> None:
        self._transactions.dropped_halves.note(f"offset={offset}", NO_HALF)
        self._totals.dropped += 1
        self._transactions.halves.end(offset, HalfState.DISCARDED)

    def _verdict(self, half: HalfMessage, now_ms: int) -> Verdict:
        config, record = self._transactions.config, half.record
        if half.root in self._transactions.under_way:
            return Verdict.LEAVE
        if self._store.deleted.covers(half.topic, record.physical_offset):
            return Verdict.DROP
        age_ms = now_ms - record.born_timestamp
        if half.checks >= config.transaction_check_max or age_ms > config.file_reserved_time * HOUR_MS:
            return Verdict.DISCARD
        if record.store_timestamp >= self._began_ms:
            return Verdict.STOP
        immunity_ms = half.immunity_ms(config.transaction_time_out)
        if half.has_immunity:
            return Verdict.KEEP if age_ms < immunity_ms else Verdict.CHECK
        return Verdict.STOP if 0 <= age_ms < immunity_ms else Verdict.CHECK

    def _put(self, half: HalfMessage, verdict: Verdict, now_ms: int) -> Append:
        """Put the message that a verdict requires into the batch of this slice."""
        if verdict is Verdict.DROP:
            append = op_of(half.record.queue_offset, now_ms, self._transactions.config.store_host)
        elif verdict is Verdict.DISCARD:
            append = discard_of(half)
        else:
            checks = half.checks + (verdict is not Verdict.POSTPONE)
            append = copy_of(half, half.root, checks, is_immune=verdict is Verdict.KEEP)
        self._store.put(append)
        if append.status in _UNSTORABLE and append.topic == _HALF:
            append = discard_of(half)
            self._store.put(append)
        return append

    def _conclude(self, half: HalfMessage, verdict: Verdict, append: Append, producer: ClientChannel | None) -> None:
        """Update state and counters, and send the check request, after the message is in the log."""
        if append.topic != SystemTopic.TRANSACTION_OP:
            self._store.queues.note_message_type(append.topic, TRANSACTION, append.size)
        transactions, totals = self._transactions, self._totals
        if append.topic != _HALF:
            state = HalfState.DECIDED if verdict is Verdict.DROP else HalfState.DISCARDED
            transactions.close(half, state)
            totals.dropped += verdict is Verdict.DROP
            totals.discarded += verdict is not Verdict.DROP
            log.warning("half message no longer checked topic=%s key=%s %s", half.topic, half.unique_key, state.name)
            return
        transactions.halves.renewed(half.root, append.queue_offset)
        if verdict in {Verdict.KEEP, Verdict.POSTPONE}:
            totals.kept += 1
        elif producer is None:
            totals.without_producer += 1
        else:
            config = transactions.config
            producer.push(check_request_of(half, append, config.store_host, config.broker_name))
            totals.asked += 1

    def _connected(self, half: HalfMessage) -> list[ClientChannel]:
        return [channel for channel in self._producers(half.group, half.topic) if not channel.closed]

    def _next_of(self, producers: list[ClientChannel]) -> ClientChannel | None:
        """Return the next producer in turn; None if none reads its connection."""
        reading = [one for one in producers if not one.paused and one.backlog_bytes <= UNREAD_BYTES]
        if not reading:
            return None
        self._totals.turn += 1
        return reading[self._totals.turn % len(reading)]
