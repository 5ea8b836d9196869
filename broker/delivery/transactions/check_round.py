"""One round of questions: every half message that has been open for long enough, once, oldest first.

    decided, superseded             passed over: finding the next open one is a search in bytes
    asked often enough, or as old as the log's messages become      to TRANS_CHECK_MAX_TIME_TOPIC, and asked no more
    still immune, by its own wish   stored again, so that it does not hold up those behind it
    still immune, as all are        the end of the round: those behind it are younger
    else                            stored again, then its producers are asked: one of them, each in turn

It ends where the half queue ended when it began, so nobody is asked twice. A copy is in the log before its question
leaves, and the question names the copy. Nobody who could be asked counts as having been asked, as with RocketMQ; those
who do not read what they were asked are not asked more, and that does not count.

`step` does a slice of about half a millisecond: reads it whole (ColdRead: nothing was done), decides, writes once,
asks. A store that takes nothing, or a disk that is behind, ends the round; the next one goes on.
Source: docs/formats.md, "Transactions".
"""

import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.message_type import TRANSACTION
from skylarkmq.broker.delivery.transactions.messages import (
    NO_HALF,
    QUEUE_ID,
    Half,
    copy_of,
    discard_of,
    half_in,
    op_of,
    question_of,
)
from skylarkmq.broker.delivery.transactions.open_halves import HalfState
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic

SLICE_MESSAGES: Final = 8
SLICE_S: Final = 0.000_5
HOUR_MS: Final = 3_600_000
UNREAD_BYTES: Final = 1 << 20
"""Who has left so much unread is not asked more."""

_HALF: Final = SystemTopic.TRANSACTION_HALF
_UNSTORABLE: Final = frozenset((PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED))

Producers = Callable[[str], Mapping[Connection, object]]
"""Of a group's name: the connections of its producers."""

log = logging.getLogger(__name__)


class Verdict(Enum):
    """What is to be done with an open half message."""

    LEAVE = auto()  # it is being ended
    STOP = auto()
    KEEP = auto()
    ASK = auto()
    DISCARD = auto()
    DROP = auto()


class Asked(msgspec.Struct):
    """Totals of all rounds since the start."""

    asked: int = 0  # questions sent
    unheard: int = 0  # half messages whose group had nobody to be asked
    kept: int = 0  # stored again without a question
    discarded: int = 0
    dropped: int = 0  # their topic was deleted, or they are none
    turn: int = 0  # whose turn it is among the producers of a group


class Round:
    """One round over the half messages of `store` that are there at `now_ms`; it adds to `totals`."""

    def __init__(
        self, store: MessageStore, transactions: Transactions, producers: Producers, totals: Asked, now_ms: int
    ) -> None:
        self._store = store
        self._transactions = transactions
        self._producers = producers
        self._totals = totals
        self._began_ms = now_ms
        self._at = transactions.halves.begin
        self._end = store.max_offset(_HALF, QUEUE_ID) or 0

    def __repr__(self) -> str:
        return f"<Round at={self._at} end={self._end}>"

    def step(self, now_ms: int) -> bool:
        """One slice; whether there is more to do."""
        self._at = at = self._transactions.halves.next_open(self._at)
        if at >= self._end or self._store.is_flush_behind or not self._store.is_writable:
            return False
        units = self._store.units(_HALF, QUEUE_ID, at, min(SLICE_MESSAGES, self._end - at))
        if not units:
            return False
        is_open_at = self._transactions.halves.is_open_at
        places = [(offset, unit[0]) for offset, unit in enumerate(units, at) if is_open_at(offset)]
        found = [(offset, half_in(self._store.written_record_at(place))) for offset, place in places]
        return self._treat(found, at + len(units), now_ms)

    def _treat(self, found: list[tuple[int, Half | None]], end: int, now_ms: int) -> bool:
        """Do with each what is to be done; whether the round goes on. None: there is no half message."""
        until_s = monotonic() + SLICE_S
        done: list[tuple[Half, Verdict, Append, Connection | None]] = []
        goes_on = True
        for offset, half in found:
            if half is None:
                self._pass_over(offset)
                continue
            verdict = self._verdict(half, now_ms)
            if verdict is Verdict.STOP or (done and monotonic() > until_s):
                end, goes_on = offset, verdict is not Verdict.STOP
                break
            if verdict is Verdict.LEAVE:
                continue
            producer = self._next_producer(half.group) if verdict is Verdict.ASK else None
            if verdict is Verdict.ASK and producer is None and self._alive(half.group):
                verdict = Verdict.KEEP
            append = self._put(half, verdict, now_ms)
            if append.status is not PutStatus.PENDING:
                end, goes_on = offset, False
                break
            done.append((half, verdict, append, producer))
        self._store.commit()
        if done and done[0][2].status is not PutStatus.PENDING and done[0][2].status not in STORED:
            return False
        for half, verdict, append, producer in done:
            self._conclude(half, verdict, append, producer)
        self._at = end
        return goes_on

    def _pass_over(self, offset: int) -> None:
        self._transactions.dropped_halves.note(f"offset={offset}", NO_HALF)
        self._totals.dropped += 1
        self._transactions.halves.end(offset, HalfState.DISCARDED)

    def _verdict(self, half: Half, now_ms: int) -> Verdict:
        config, record = self._transactions.config, half.record
        if half.root in self._transactions.under_way:
            return Verdict.LEAVE
        if self._store.is_deleted(half.topic, record.physical_offset):
            return Verdict.DROP
        age_ms = now_ms - record.born_timestamp
        if half.checks >= config.transaction_check_max or age_ms > config.file_reserved_time * HOUR_MS:
            return Verdict.DISCARD
        if record.store_timestamp >= self._began_ms:
            return Verdict.STOP
        immunity_ms = half.immunity_ms(config.transaction_time_out)
        if half.has_immunity:
            return Verdict.KEEP if age_ms < immunity_ms else Verdict.ASK
        return Verdict.STOP if 0 <= age_ms < immunity_ms else Verdict.ASK

    def _put(self, half: Half, verdict: Verdict, now_ms: int) -> Append:
        """What a verdict has stored, put into the batch of this slice."""
        if verdict is Verdict.DROP:
            append = op_of(half.record.queue_offset, now_ms, self._transactions.config.store_host)
        elif verdict is Verdict.DISCARD:
            append = discard_of(half)
        else:
            append = copy_of(half, half.root, half.checks + (verdict is Verdict.ASK))
        self._store.put(append)
        if append.status in _UNSTORABLE and append.topic == _HALF:
            append = discard_of(half)
            self._store.put(append)
        return append

    def _conclude(self, half: Half, verdict: Verdict, append: Append, producer: Connection | None) -> None:
        """It is in the log."""
        if append.topic != SystemTopic.TRANSACTION_OP:
            self._store.note_special(append.topic, TRANSACTION, append.size)
        transactions, totals = self._transactions, self._totals
        if append.topic != _HALF:
            state = HalfState.DECIDED if verdict is Verdict.DROP else HalfState.DISCARDED
            transactions.close(half, state)
            totals.dropped += verdict is Verdict.DROP
            totals.discarded += verdict is not Verdict.DROP
            log.warning("half message asked about no more topic=%s key=%s %s", half.topic, half.unique_key, state.name)
            return
        transactions.halves.renewed(half.root, append.queue_offset)
        if verdict is Verdict.KEEP:
            totals.kept += 1
        elif producer is None:
            totals.unheard += 1
        else:
            config = transactions.config
            producer.push(question_of(half, append, config.store_host, config.broker_name))
            totals.asked += 1

    def _next_producer(self, group: str) -> Connection | None:
        """Whose turn it is; None: nobody is there who reads."""
        reading = [one for one in self._alive(group) if not one.paused and one.backlog_bytes <= UNREAD_BYTES]
        self._totals.turn += 1
        return reading[self._totals.turn % len(reading)] if reading else None

    def _alive(self, group: str) -> list[Connection]:
        return [connection for connection in self._producers(group) if not connection.closed]
