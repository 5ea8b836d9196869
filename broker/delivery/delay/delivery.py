"""Delayed messages reach their topics: all levels, the clock, and whose turn it is.

    arrival, or its due time ─▶ in line ─▶ one slice of one level per turn of the loop ─▶ its next time
                                   ▲                      │ cold: fetched by a thread
                                   └──────────────────────┘

A level sleeps until its first message is due, by a timer of its own; one without messages until one arrives. Levels
that have something to do stand in line and take turns, a slice each (`DelayLevel.step`), and the loop serves everybody
else between two slices; between two of `MOST_SLICES`, while messages are late by more than BEHIND_MS: a turn in which
many send is long, and what they sent before has to come out again. What is cold is fetched for its level alone.

Timers go by the loop's clock, due times by the wall: a level that wakes up too early sleeps once more, and none sleeps
for more than LONGEST_SLEEP_MS, so that a clock that was set is noticed.

Queues of levels that the table no longer has are emptied too. A stop leaves everything where it is, and has the log
flushed, so that what was delivered counts as such. Source: docs/formats.md, "Delayed messages".
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from skylarkmq.broker.delivery.delay.level import LATENESS_BOUNDS_S, DelayLevel, DelayLevelStatistics
from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.histogram import Buckets
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.cold_reads import ColdRead
from skylarkmq.protocol.codes import SystemTopic

LONGEST_SLEEP_MS: Final = 1_000
BEHIND_MS: Final = 25
MOST_SLICES: Final = 4
AFTER_FAILURE_MS: Final = 10_000
FLUSH_LIMIT_S: Final = 5.0

log = logging.getLogger(__name__)


class Callbacks(Protocol):
    """What is wanted of an event loop."""

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> asyncio.Handle:
        """Call `callback` in the next turn."""

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> asyncio.TimerHandle:
        """Call `callback` after so many seconds."""


class DelayDeliveryStatistics(msgspec.Struct, frozen=True):
    """Levels that ever had a message, by number; totals since the start of them all."""

    levels: dict[int, DelayLevelStatistics]
    delivered: int
    dropped: int
    waiting: int


class DelayDelivery:
    """Delivers from one store. `delays_ms` of each level, level 1 first; `now_ms` gives Unix time."""

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
        self._idle: set[DelayLevel] = set()  # nothing to deliver until something arrives
        self._line: deque[DelayLevel] = deque()
        self._turn: asyncio.Handle | None = None
        self.lateness = Buckets(LATENESS_BOUNDS_S)
        """Seconds from when messages were due to when they were stored in their topics."""

    def __repr__(self) -> str:
        return f"<DelayDelivery levels={len(self._levels)} delivered={self.lateness.count}>"

    def statistics(self) -> DelayDeliveryStatistics:
        """The figures now."""
        levels = {number: level.statistics() for number, level in sorted(self._levels.items())}
        return DelayDeliveryStatistics(
            levels=levels,
            delivered=sum(level.delivered for level in levels.values()),
            dropped=sum(level.dropped for level in levels.values()),
            waiting=sum(max(level.max_offset - level.next_offset, 0) for level in levels.values()),
        )

    # ------------------------------------------------------------------------------------------------- start and stop

    def start(self, loop: Callbacks) -> None:
        """Begin to deliver."""
        self._loop = loop
        for queue_id in sorted(self._store.queue_ids(SystemTopic.SCHEDULE)):
            self._look_at(self._level(queue_id + 1))

    async def stop(self) -> None:
        """Deliver nothing more, and see that what was delivered is on disk, if the disk can be waited for."""
        self._loop = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.when_flushed(lambda: None if flushed.done() else flushed.set_result(None))
        try:
            await asyncio.wait_for(flushed, FLUSH_LIMIT_S)
        except TimeoutError:
            log.warning("log not flushed in time, delayed messages may be delivered again limit_s=%.0f", FLUSH_LIMIT_S)
        self._offsets.settle(self._store.flushed_offset)

    def arrived(self, queue_id: int, _max_offset: int, tags_codes: Sequence[int]) -> None:
        """Messages with these due times are new in a queue of the schedule topic."""
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
                log.warning("level is not in messageDelayLevel, its messages are delivered when due level=%d", number)
            level = self._levels[number] = DelayLevel(number, delay_ms, self._store, self._offsets, self.lateness)
            self._idle.add(level)
        return level

    # ---------------------------------------------------------------------------------------------------------- turns

    def _look_at(self, level: DelayLevel) -> None:
        """It is this level's turn, when all who came before have had theirs."""
        self._timers.pop(level, None)
        self._idle.discard(level)
        self._line.append(level)
        self._go_on()

    def _go_on(self) -> None:
        if self._turn is None and self._line and self._loop is not None:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        slices = 0
        while self._line and slices < MOST_SLICES:
            level = self._line.popleft()
            self._step(level)
            slices = MOST_SLICES if level.behind_ms < BEHIND_MS else slices + 1
        self._go_on()

    def _step(self, level: DelayLevel) -> None:
        try:
            next_ms = level.step(self._now_ms())
        except ColdRead as cold:
            self._store.fetch(cold).add_done_callback(partial(self._fetched, level))
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
            self._look_at(level)

    def _sleep(self, level: DelayLevel, until_ms: int) -> None:
        """Look at a level at that time, and no later than in LONGEST_SLEEP_MS."""
        sleep_ms = until_ms - self._now_ms()
        if sleep_ms <= 0:
            self._line.append(level)
            self._go_on()
        else:
            self._wake(level, min(sleep_ms, LONGEST_SLEEP_MS))

    def _wake(self, level: DelayLevel, in_ms: int) -> None:
        if self._loop is not None:
            self._timers[level] = self._loop.call_later(in_ms / 1000, self._look_at, level)

    # -------------------------------------------------------------------------------------------------------- figures

    def progress(self) -> Mapping[int, tuple[int, int]]:
        """Of each level: the offset that is delivered next, and the end of its queue."""
        levels = {*self._levels, *self._offsets.table()}
        return {
            level: (self._offsets.next_of(level), self._store.max_offset(SystemTopic.SCHEDULE, level - 1) or 0)
            for level in sorted(levels)
        }
