"""Delivery of delayed messages: scheduling of all levels by the clock and in turn.

    arrival, or due time ─▶ ready queue ─▶ one slice of one level per event-loop iteration ─▶ its next due time
                                ▲                      │ cold read: fetched by a thread
                                └──────────────────────┘

Each level sleeps until its first message is due, on a timer of its own; a level without messages sleeps until one
arrives. Levels that have work are in the ready queue and run one slice in turn (`DelayLevel.step`). Between two slices
the event loop serves everything else. While messages are late by more than BEHIND_MS, an iteration runs MOST_SLICES
slices, because an iteration with many sends is long, and the messages that were sent before must be delivered at the
same rate. A cold read delays its level only.

Timers use the clock of the loop, and due times the wall clock. A level that wakes up too early sleeps once more. No
level sleeps for more than LONGEST_SLEEP_MS, so that a change of the wall clock is noticed.

Queues of levels that are no longer in the table are delivered too. A stop leaves all waiting messages in their queues
and flushes the log, so that delivered messages count as delivered. Source: docs/reference/wire.md, "Delayed messages".
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.delivery.delay.level import LATENESS_BOUNDS_S, DelayLevel, DelayLevelStatistics
from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic

LONGEST_SLEEP_MS: Final = 1_000
BEHIND_MS: Final = 25
MOST_SLICES: Final = 4
AFTER_FAILURE_MS: Final = 10_000
FLUSH_LIMIT_S: Final = 5.0

log = logging.getLogger(__name__)


class Callbacks(Protocol):
    """The methods of an event loop that delivery needs."""

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> asyncio.Handle:
        """Call `callback` in the next iteration."""

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> asyncio.TimerHandle:
        """Call `callback` after `delay` seconds."""


class DelayDeliveryStatistics(msgspec.Struct, frozen=True):
    """Levels that ever had a message, by number; totals of all levels since the start; waiting messages."""

    levels: dict[int, DelayLevelStatistics]
    delivered: int
    dropped: int
    waiting: int


class DelayDelivery:
    """Delivers from one store. `delays_ms`: the delay of each level, level 1 first; `now_ms` returns Unix time."""

    def __init__(
        self,
        store: MessageStore,
        offsets: DelayOffsetTable,
        delays_ms: Sequence[int],
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._delays_ms = delays_ms
        self._now_ms = now_ms
        self._loop: Callbacks | None = None  # None: not running
        self._levels: dict[int, DelayLevel] = {}
        self._timers: dict[DelayLevel, asyncio.TimerHandle] = {}
        self._idle: set[DelayLevel] = set()  # without messages to deliver until one arrives
        self._ready: deque[DelayLevel] = deque()
        self._iteration: asyncio.Handle | None = None
        self.lateness = Histogram(LATENESS_BOUNDS_S)
        """Seconds from the due time of messages to their store time in their topics."""

    def __repr__(self) -> str:
        return f"<DelayDelivery levels={len(self._levels)} delivered={self.lateness.count}>"

    def statistics(self) -> DelayDeliveryStatistics:
        """Return the current figures."""
        levels = {number: level.statistics() for number, level in sorted(self._levels.items())}
        return DelayDeliveryStatistics(
            levels=levels,
            delivered=sum(level.delivered for level in levels.values()),
            dropped=sum(level.dropped for level in levels.values()),
            waiting=sum(max(level.max_offset - level.next_offset, 0) for level in levels.values()),
        )

    # ------------------------------------------------------------------------------------------------- start and stop

    def start(self, loop: Callbacks) -> None:
        """Start delivery."""
        self._loop = loop
        for queue_id in sorted(self._store.queues.ids_of(SystemTopic.SCHEDULE)):
            self._make_ready(self._level(queue_id + 1))

    async def stop(self) -> None:
        """Stop delivery, and wait for the flush of what was delivered, at most FLUSH_LIMIT_S."""
        self._loop = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._iteration is not None:
            self._iteration.cancel()
            self._iteration = None
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.when_flushed(lambda: None if flushed.done() else flushed.set_result(None))
        try:
            await asyncio.wait_for(flushed, FLUSH_LIMIT_S)
        except TimeoutError:
            log.warning("log not flushed in time, delayed messages may be delivered again limit_s=%.0f", FLUSH_LIMIT_S)
        self._offsets.settle(self._store.flushed_offset)

    def arrived(self, queue_id: int, _max_offset: int, tags_codes: Sequence[int]) -> None:
        """Register new messages in a queue of the schedule topic; `tags_codes` are their due times."""
        if self._loop is None:
            return
        level = self._level(queue_id + 1)
        if level in self._idle:
            self._idle.discard(level)
            self._sleep(level, tags_codes[0])

    def _level(self, number: int) -> DelayLevel:
        level = self._levels.get(number)
        if level is None:
            delay_ms = self._delays_ms[number - 1] if 0 < number <= len(self._delays_ms) else None
            if delay_ms is None:
                log.warning("level not in messageDelayLevel, its messages are delivered when due level=%d", number)
            level = self._levels[number] = DelayLevel(number, delay_ms, self._store, self._offsets, self.lateness)
            self._idle.add(level)
        return level

    # ------------------------------------------------------------------------------------------------------ scheduling

    def _make_ready(self, level: DelayLevel) -> None:
        """Append a level to the ready queue."""
        self._timers.pop(level, None)
        self._idle.discard(level)
        self._ready.append(level)
        self._schedule()

    def _schedule(self) -> None:
        if self._iteration is None and self._ready and self._loop is not None:
            self._iteration = self._loop.call_soon(self._run_slices)

    def _run_slices(self) -> None:
        self._iteration = None
        slices = 0
        while self._ready and slices < MOST_SLICES:
            level = self._ready.popleft()
            self._step(level)
            slices = MOST_SLICES if level.behind_ms < BEHIND_MS else slices + 1
        self._schedule()

    def _step(self, level: DelayLevel) -> None:
        try:
            next_ms = level.step(self._now_ms())
        except ColdRead as cold:
            self._store.reader.fetch(cold).add_done_callback(partial(self._fetched, level))
        except Exception:
            log.exception("delayed messages cannot be delivered level=%d retry_ms=%d", level.number, AFTER_FAILURE_MS)
            self._wake(level, AFTER_FAILURE_MS)
        else:
            if next_ms is None:
                self._idle.add(level)
            else:
                self._sleep(level, next_ms)

    def _fetched(self, level: DelayLevel, _future: "asyncio.Future[None]") -> None:
        if self._loop is not None:
            self._make_ready(level)

    def _sleep(self, level: DelayLevel, until_ms: int) -> None:
        """Make a level ready at `until_ms`, at the latest after LONGEST_SLEEP_MS."""
        sleep_ms = until_ms - self._now_ms()
        if sleep_ms <= 0:
            self._ready.append(level)
            self._schedule()
        else:
            self._wake(level, min(sleep_ms, LONGEST_SLEEP_MS))

    def _wake(self, level: DelayLevel, in_ms: int) -> None:
        if self._loop is not None:
            self._timers[level] = self._loop.call_later(in_ms / 1000, self._make_ready, level)

    # -------------------------------------------------------------------------------------------------------- figures

    def progress(self) -> Mapping[int, tuple[int, int]]:
        """Return for each level the offset that is delivered next, and the end of its queue."""
        levels = {*self._levels, *self._offsets.table()}
        return {
            level: (self._offsets.next_of(level), self._store.max_offset(SystemTopic.SCHEDULE, level - 1) or 0)
            for level in sorted(levels)
        }
