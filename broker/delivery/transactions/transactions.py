"""The transactions of one broker: new half messages, open ones, and ended ones.

    half()   ─▶ open ─▶ checked, again and again ─▶ discarded
                  └───▶ ended by its producer: committed or rolled back

This state is shared by all modules of this package: `OpenHalves` contains the open half messages, `under_way` those
whose end is in progress (checks skip these), and counters by topic. Only the log stores which are open; until
`loading.py` has read it, ends wait for `loaded`. Source: docs/reference/wire.md, "Transactions".
"""

import asyncio
import logging
from typing import Final

import msgspec

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.delivery.deferral import DeferralRequest
from skylarkmq.broker.delivery.dropped_entries import DroppedEntries
from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.transactions.messages import HalfMessage, make_half, make_half_encoded
from skylarkmq.broker.delivery.transactions.open_halves import HalfState, OpenHalves
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

log = logging.getLogger(__name__)

FINISH_BOUNDS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)


class TransactionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of transactions."""

    broker_ip: str  # for remarks
    broker_name: str
    store_host: bytes
    reject_transaction_message: bool = False  # reject new half messages
    transaction_time_out: int = 6_000  # ms after the birth of a half message in which it is not checked
    transaction_check_max: int = 15  # the number of checks after which it is discarded
    transaction_check_interval: int = 30_000  # ms between two check rounds
    file_reserved_time: int = 72  # hours after which it is discarded in any case


class TransactionsStatistics(msgspec.Struct, frozen=True):
    """By real topic: the number of open half messages; totals since the start of those committed and rolled back. Then
    the totals of invalid records in the half topic and the op topic."""

    open: dict[str, int]
    committed: dict[str, int]
    rolled_back: dict[str, int]
    dropped_halves: int
    dropped_ops: int


class Transactions:
    """The state that ends, checks and the send path share."""

    def __init__(self, config: TransactionsConfig) -> None:
        self.config = config
        self.halves = OpenHalves()
        self.under_way: dict[int, list[asyncio.Future[None]]] = {}
        """Half messages whose end is in progress, by root, with the futures of other ends that wait."""
        self.finished: dict[str, Histogram] = {}
        """By real topic, the seconds from the birth of half messages to their commit."""
        self.loaded = asyncio.Event()
        self.dropped_halves = DroppedEntries(log, "half message")
        self.dropped_ops = DroppedEntries(log, "op message")
        self._incoming: list[tuple[Append, str]] = []
        self._open: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._rolled_back: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Transactions under_way={len(self.under_way)} {self.halves!r}>"

    def statistics(self) -> TransactionsStatistics:
        """Return the current figures."""
        self.settle()
        return TransactionsStatistics(
            dict(self._open),
            dict(self._committed),
            dict(self._rolled_back),
            self.dropped_halves.count,
            self.dropped_ops.count,
        )

    def configure(self, config: TransactionsConfig) -> None:
        """Apply these settings from now on."""
        self.config = config

    # begin

    def half(self, append: Append, properties: dict[str, str], _now_ms: int) -> PutStatus | None:
        """Turn a message into a half message, as a `Defer`. Raises RequestError if this broker rejects them."""
        if self.config.reject_transaction_message:
            remark = f"the broker[{self.config.broker_ip}] sending transaction message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        topic = append.topic
        make_half(append, properties)
        self._incoming.append((append, topic))
        return None

    def defer_half_fast(self, append: Append, _request: DeferralRequest, _now_ms: int) -> bool:
        """Do the same as a `FastDefer`. The unique key of the message is the first of its keys."""
        if self.config.reject_transaction_message or not append.keys:
            return False
        self._incoming.append((append, append.topic))
        make_half_encoded(append, append.keys[0])
        return True

    def settle(self) -> None:
        """Count the half messages that were stored since the last call."""
        incoming, self._incoming = self._incoming, []
        for append, topic in incoming:
            if append.status in STORED:
                self.opened(topic)
            elif append.status is PutStatus.PENDING and append.physical_offset >= 0:
                self._incoming.append((append, topic))

    def opened(self, topic: str) -> None:
        """Count one more open half message."""
        self._open[topic] = self._open.get(topic, 0) + 1

    # end

    def ended(self, half: HalfMessage, *, is_commit: bool, now_ms: int) -> None:
        """Register that a half message is decided, with its op message in the log."""
        counts = self._committed if is_commit else self._rolled_back
        counts[half.topic] = counts.get(half.topic, 0) + 1
        if is_commit:
            finished = self.finished.get(half.topic)
            if finished is None:
                finished = self.finished[half.topic] = Histogram(FINISH_BOUNDS_S)
            finished.note(max(now_ms - half.record.born_timestamp, 0) / 1000)
        self.close(half, HalfState.DECIDED)

    def close(self, half: HalfMessage, state: HalfState) -> None:
        """Mark a half message as no longer open."""
        root = half.root
        if self.halves.state(root) is HalfState.OPEN:
            self.settle()
            left = self._open.get(half.topic, 0) - 1
            if left > 0:
                self._open[half.topic] = left
            else:
                self._open.pop(half.topic, None)
        self.halves.end(root, state)
        if root != half.record.queue_offset:
            self.halves.end(half.record.queue_offset, state)

    def forget_topic(self, topic: str) -> None:
        """Remove the figures of a deleted topic."""
        for figures in (self._open, self._committed, self._rolled_back, self.finished):
            figures.pop(topic, None)
