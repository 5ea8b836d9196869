"""Finds the open half messages after a start, from the log alone.

    op queue from its offset      the decided half messages
    half queue from its offset    the roots of the other ones; those that remain are open

A copy whose root was decided is decided, because its producer referred to the root. A copy of an open half message
supersedes the previous one. RocketMQ's copies do not contain the offset of their root, only their number of checks; the
unique key identifies them. RocketMQ 4.9 removes the half queue whenever a topic is deleted, and its offsets begin at 0
again: op messages from before then decide none of its messages. If a process was killed between two records of one end,
or between a copy and its check request, the transaction continues from there.

`step` runs one slice. After a ColdRead nothing has changed: fetch the bytes and call it again.
Source: docs/reference/disk.md, "Half messages on disk".
"""

import logging
from typing import Final

from skylarkmq.broker.delivery.transactions.messages import NO_HALF, QUEUE_ID, HalfMessage, decided_by, half_of
from skylarkmq.broker.delivery.transactions.open_halves import HalfState, OpenHalves
from skylarkmq.broker.delivery.transactions.progress import Offsets
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.record import Record, iterate

SLICE_MESSAGES: Final = 32

_HALF: Final = SystemTopic.TRANSACTION_HALF
_OP: Final = SystemTopic.TRANSACTION_OP

log = logging.getLogger(__name__)


class Loading:
    """Fills `transactions` from both queues of `store`, from `begin` to `end`."""

    def __init__(self, store: MessageStore, transactions: Transactions, begin: Offsets, end: Offsets) -> None:
        self._store = store
        self._transactions = transactions
        self._halves = transactions.halves = OpenHalves(begin.half)
        self._half = self._begin = begin.half
        self._op = begin.op
        self._end = end
        self._decided_before: set[int] = set()  # offsets before `begin` in op messages: roots of copies
        self._by_key: dict[str, int] = {}  # open ones without the offset of their root, by unique key
        self._open = 0

    def __repr__(self) -> str:
        return f"<Loading half={self._half} op={self._op}>"

    def step(self) -> bool:
        """Run one slice. Returns whether there is more to do."""
        if self._op < self._end.op:
            self._read_ops()
        elif (at := self._halves.next_open(self._half)) < self._end.half:
            self._read_halves(at)
        else:
            log.info("half messages loaded from=%d to=%d open=%d", self._begin, self._end.half, self._open)
            return False
        return True

    def _read_ops(self) -> None:
        found = self._store.get(_OP, QUEUE_ID, self._op, SLICE_MESSAGES)
        for region in found.regions:
            for record in iterate(region.view, check_body=False):
                if isinstance(record, Record):
                    self._decide(record)
        self._op = found.next_begin_offset if found.next_begin_offset > self._op else self._end.op

    def _decide(self, op: Record) -> None:
        offsets = decided_by(op)
        if offsets is None:
            self._transactions.dropped_ops.note(f"offset={op.queue_offset}", "not an op message from a broker")
            return
        for offset in offsets:
            if offset < self._begin:
                self._decided_before.add(offset)
            elif offset < self._end.half and self._is_older(offset, op):
                self._halves.mark_decided(offset)

    def _is_older(self, offset: int, op: Record) -> bool:
        """Return whether the half message is older than this op message; otherwise an earlier one was decided."""
        units = self._store.units(_HALF, QUEUE_ID, offset, 1)
        return not units or units[0][0] < op.physical_offset

    def _read_halves(self, at: int) -> None:
        units = self._store.units(_HALF, QUEUE_ID, at, min(SLICE_MESSAGES, self._end.half - at))
        wanted = [(at + n, unit[0]) for n, unit in enumerate(units) if self._halves.is_open_at(at + n)]
        found = [(offset, half_of(self._store.record_at(physical_offset))) for offset, physical_offset in wanted]
        for offset, half in found:
            if half is None:
                self._transactions.dropped_halves.note(f"offset={offset}", NO_HALF)
                self._halves.end(offset, HalfState.DISCARDED)
            else:
                self._add(offset, half)
        self._half = at + len(units) if units else self._end.half

    def _add(self, offset: int, half: HalfMessage) -> None:
        """Register a half message that is in no op message."""
        root = half.root
        if root == offset:
            is_new = not self._supersedes(offset, half)
        elif root in self._decided_before or self._halves.state(root) is HalfState.DECIDED:
            self._halves.mark_decided(offset)
            return
        else:
            is_new = self._halves.state(root) is not HalfState.OPEN
            self._halves.renewed(root, offset)
        if is_new:
            self._open += 1
            self._transactions.opened(half.topic)

    def _supersedes(self, offset: int, half: HalfMessage) -> bool:
        """Supersede the open half message of which this one is RocketMQ's copy. Returns whether there is one."""
        if half.unique_key is None:
            return False
        before = self._by_key.get(half.unique_key)
        self._by_key[half.unique_key] = offset
        if before is None or not half.checks:
            return False
        self._halves.end(before, HalfState.SUPERSEDED)
        return True
