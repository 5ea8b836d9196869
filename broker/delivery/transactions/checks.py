"""The background work of transactions: loading the open half messages after a start, and check rounds.

    start ─▶ loading ─▶ a round, `transactionCheckInterval` after the previous one ... ─▶ stop
                                      │ slices, one per event-loop iteration; cold bytes are fetched in between

`step` is called every 100 ms: it begins rounds, and commits offsets that are safe. A round that takes longer than the
interval delays the next one. Failures are logged, and the work is tried again.
Source: docs/reference/wire.md, "Transactions"; docs/reference/disk.md, "Half messages on disk".
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from skylarkmq.broker.delivery.cold_read_retry import looked_up
from skylarkmq.broker.delivery.transactions.check_round import CheckRound, CheckTotals, Producers
from skylarkmq.broker.delivery.transactions.loading import Loading
from skylarkmq.broker.delivery.transactions.messages import QUEUE_ID
from skylarkmq.broker.delivery.transactions.progress import Offsets, Progress
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic

RETRY_MS: Final = 10_000
FLUSH_LIMIT_S: Final = 5.0

log = logging.getLogger(__name__)


class TransactionChecksStatistics(msgspec.Struct, frozen=True):
    """Totals since the start: completed rounds, check requests, half messages whose group had no producer, those stored
    again without a check, discarded ones, and dropped ones."""

    rounds: int
    asked: int
    without_producer: int
    kept: int
    discarded: int
    dropped: int


class TransactionChecks:
    """Checks for one store. `now_ms` returns Unix time, `steady_ms` the time of a steady clock."""

    def __init__(
        self,
        store: MessageStore,
        transactions: Transactions,
        progress: Progress,
        producers: Producers,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._steady_ms = steady_ms
        self._transactions = transactions
        self._progress = progress
        self._producers = producers
        self._now_ms = now_ms
        self._loop: asyncio.AbstractEventLoop | None = None  # None: not running
        self._task: asyncio.Task[None] | None = None
        self._began_ms = 0  # start of the previous round
        self._not_before_ms = 0
        self._rounds = 0
        self._totals = CheckTotals()

    def __repr__(self) -> str:
        return f"<TransactionChecks rounds={self._rounds} asked={self._totals.asked}>"

    def statistics(self) -> TransactionChecksStatistics:
        """Return the current figures."""
        totals = self._totals
        return TransactionChecksStatistics(
            self._rounds, totals.asked, totals.without_producer, totals.kept, totals.discarded, totals.dropped
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Load the open half messages, then begin rounds."""
        self._loop = loop
        self._begin(self._load())

    async def stop(self) -> None:
        """Stop rounds, and wait for the flush of what was decided, at most FLUSH_LIMIT_S."""
        self._loop = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.when_flushed(lambda: None if flushed.done() else flushed.set_result(None))
        try:
            await asyncio.wait_for(flushed, FLUSH_LIMIT_S)
        except TimeoutError:
            log.warning("log not flushed in time, half messages are read again later limit_s=%.0f", FLUSH_LIMIT_S)
        self._note_progress()

    def step(self, now_ms: int) -> None:
        """Begin what is due by the steady clock `now_ms`. The age of a half message depends on Unix time."""
        self._transactions.settle()
        self._note_progress()
        is_busy = self._task is not None and not self._task.done()
        if self._loop is None or is_busy or now_ms < self._not_before_ms:
            return
        if not self._transactions.loaded.is_set():
            self._begin(self._load())
        elif now_ms >= self._began_ms + self._transactions.config.transaction_check_interval:
            self._began_ms = now_ms
            self._begin(self._round(self._now_ms()))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is not None:
            self._task = self._loop.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("transactions cannot be checked retry_ms=%d", RETRY_MS)
            self._not_before_ms = self._steady_ms() + RETRY_MS

    async def _load(self) -> None:
        first = await looked_up(self._store, lambda: self._ends(self._store.min_offset))
        end = self._ends(self._store.max_offset)
        begin = self._progress.begin(first, end)
        await self._slices(Loading(self._store, self._transactions, begin, end).step)
        self._progress.mark(end)
        self._transactions.loaded.set()
        self._began_ms = self._steady_ms()

    async def _round(self, now_ms: int) -> None:
        first = await looked_up(self._store, lambda: self._ends(self._store.min_offset))
        self._transactions.halves.expire(first.half)
        one = CheckRound(self._store, self._transactions, self._producers, self._totals, now_ms)
        await self._slices(lambda: one.step(self._now_ms()))
        self._rounds += 1

    async def _slices(self, step: Callable[[], bool]) -> None:
        """Run `step` until it returns False, once per event-loop iteration."""
        while await looked_up(self._store, step):  # noqa: ASYNC110 (not a poll: other work runs in between)
            await asyncio.sleep(0)

    def _ends(self, of: Callable[[str, int], int | None]) -> Offsets:
        return Offsets(of(SystemTopic.TRANSACTION_HALF, QUEUE_ID) or 0, of(SystemTopic.TRANSACTION_OP, QUEUE_ID) or 0)

    def _note_progress(self) -> None:
        if not self._transactions.loaded.is_set():
            return
        self._progress.mark(self._ends(self._store.max_offset))
        self._progress.step(
            self._transactions.halves.begin, self._store.max_physical_offset, self._store.flushed_offset
        )
