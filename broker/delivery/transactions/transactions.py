"""Transactions of one broker: what comes in as half messages, which are open, and how they ended.

    half()   ─▶ open ─▶ asked about, again and again ─▶ discarded
                  └───▶ ended by its producer: committed or rolled back

This is what all parts share: `OpenHalves` says which are open, `under_way` which are just being ended (nobody touches
those), and the counts are told by topic. What is open is in the log alone; until `loading.py` has found it there, ends
wait for `loaded`. Source: docs/formats.md, "Transactions".
"""

import asyncio
import logging
from typing import Final

import msgspec

from skylarkmq.broker.delivery.deferral import Wish
from skylarkmq.broker.delivery.dropped_entries import Dropped
from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.transactions.messages import Half, make_half, mark_half
from skylarkmq.broker.delivery.transactions.open_halves import HalfState, OpenHalves
from skylarkmq.broker.histogram import Buckets
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

log = logging.getLogger(__name__)

FINISH_BOUNDS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)


class TransactionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there are transactions, and when producers are asked how theirs ended."""

    broker_ip: str  # as it stands in remarks
    broker_name: str
    store_host: bytes
    reject_transaction_message: bool = False  # refuse new half messages
    transaction_time_out: int = 6_000  # ms from its birth in which nobody is asked about a half message
    transaction_check_max: int = 15  # who was asked about so often is discarded
    transaction_check_interval: int = 30_000  # ms between two rounds of questions
    file_reserved_time: int = 72  # hours after which it is discarded in any case


class TransactionsStatistics(msgspec.Struct, frozen=True):
    """By real topic: half messages that are open now; totals since the start of those committed and rolled back. Then
    totals of records in the half topic and the op topic that are no such messages."""

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
        """By root, those that are just being ended, with who waits for that."""
        self.finished: dict[str, Buckets] = {}
        """By real topic, the seconds from the birth of half messages to their commit."""
        self.loaded = asyncio.Event()
        self.dropped_halves = Dropped(log, "half message")
        self.dropped_ops = Dropped(log, "op message")
        self._coming: list[tuple[Append, str]] = []
        self._open: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._rolled_back: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Transactions under_way={len(self.under_way)} {self.halves!r}>"

    def statistics(self) -> TransactionsStatistics:
        """The figures now."""
        self.settle()
        return TransactionsStatistics(
            dict(self._open),
            dict(self._committed),
            dict(self._rolled_back),
            self.dropped_halves.count,
            self.dropped_ops.count,
        )

    def configure(self, config: TransactionsConfig) -> None:
        """Go by other settings from now on."""
        self.config = config

    # coming in

    def half(self, append: Append, properties: dict[str, str], _now_ms: int) -> PutStatus | None:
        """Have a message stored as a half message (a `Divert`). RequestError if this broker takes none."""
        if self.config.reject_transaction_message:
            remark = f"the broker[{self.config.broker_ip}] sending transaction message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        topic = append.topic
        make_half(append, properties)
        self._coming.append((append, topic))
        return None

    def grant_half(self, append: Append, _wish: Wish, _now_ms: int) -> bool:
        """The same as a `Grant`: its unique key is the first of its keys."""
        if self.config.reject_transaction_message or not append.keys:
            return False
        self._coming.append((append, append.topic))
        mark_half(append, append.keys[0])
        return True

    def settle(self) -> None:
        """Count what has come in since."""
        coming, self._coming = self._coming, []
        for append, topic in coming:
            if append.status in STORED:
                self.opened(topic)
            elif append.status is PutStatus.PENDING and append.physical_offset >= 0:
                self._coming.append((append, topic))

    def opened(self, topic: str) -> None:
        """One more is open."""
        self._open[topic] = self._open.get(topic, 0) + 1

    # going out

    def ended(self, half: Half, *, is_commit: bool, now_ms: int) -> None:
        """A half message is decided, and that is in the log."""
        counts = self._committed if is_commit else self._rolled_back
        counts[half.topic] = counts.get(half.topic, 0) + 1
        if is_commit:
            finished = self.finished.get(half.topic)
            if finished is None:
                finished = self.finished[half.topic] = Buckets(FINISH_BOUNDS_S)
            finished.note(max(now_ms - half.record.born_timestamp, 0) / 1000)
        self.close(half, HalfState.DECIDED)

    def close(self, half: Half, state: HalfState) -> None:
        """A half message is open no more."""
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
        """The topic was deleted, and so are its figures."""
        for figures in (self._open, self._committed, self._rolled_back, self.finished):
            figures.pop(topic, None)
