"""Timers of one broker: what takes messages in, what keeps them, what delivers them.

    entry       asks a message when it is due (`Diversion.timers`)
    files       wheel, log and check on disk
    delivery    puts messages on the wheel, and delivers them

Source: docs/formats.md, "Timer messages".
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.delivery.timer.admission import TimerConfig, TimerEntry
from skylarkmq.broker.delivery.timer.delivery import TimerDelivery, TimerDeliveryStatistics
from skylarkmq.broker.delivery.timer.pending_counts import TimingCounts
from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.timer.files import TimerFiles, TimerFilesConfig
from skylarkmq.protocol.disk import CONFIG_DIRECTORY
from skylarkmq.protocol.timers import KEPT_BACK_SLOTS, METRICS_FILE, SLOTS

LEAST_WINDOW_SLOTS: Final = 2
RATE_WINDOW_MS: Final = 10_000


class TimersConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What timers run with. Sizes in bytes; a window of no use is the longest one."""

    root: Path
    entry: TimerConfig = TimerConfig()
    window_slots: int = 172_800
    log_file_size: int = 100 << 20
    flush_interval_ms: int = 1_000
    slots: int = SLOTS

    @property
    def window_ms(self) -> int:
        """How far ahead a slot may lie."""
        longest = self.slots // 2 - KEPT_BACK_SLOTS
        slots = self.window_slots if LEAST_WINDOW_SLOTS <= self.window_slots <= longest else longest
        return slots * self.entry.precision_ms


class _Rate:
    """How many of something there were per second, from a total that is looked at now and then."""

    def __init__(self) -> None:
        self._begin: tuple[int, int] | None = None  # ms, total
        self.per_second = 0.0

    def step(self, now_ms: int, total: int) -> None:
        if self._begin is None:
            self._begin = now_ms, total
        begin_ms, begin_total = self._begin
        if now_ms - begin_ms >= RATE_WINDOW_MS:
            self.per_second = round((total - begin_total) * 1000 / (now_ms - begin_ms), 2)
            self._begin = now_ms, total


class Timers:
    """Those of one store. `now_ms` gives Unix time."""

    def __init__(
        self, config: TimersConfig, store: MessageStore, now_ms: Callable[[], int], disk: Disk | None = None
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self.precision_ms = precision_ms = config.entry.precision_ms
        self.counts = TimingCounts(config.root / CONFIG_DIRECTORY / METRICS_FILE, now_ms, disk)
        files_config = TimerFilesConfig(
            root=config.root,
            precision_ms=precision_ms,
            log_file_size=config.log_file_size,
            flush_interval_ms=config.flush_interval_ms,
            slots=config.slots,
        )
        self.files = files = TimerFiles(files_config, store, disk, self.counts.take)
        self.entry = TimerEntry(
            config.entry, lambda out_ms: files.wheel.slot(out_ms).messages, problem=lambda: files.problem
        )
        self.delivery = TimerDelivery(store, files, self.counts, precision_ms, config.window_ms, now_ms)
        self._enqueue_rate = _Rate()
        self._dequeue_rate = _Rate()

    def __repr__(self) -> str:
        return f"<Timers {self.delivery!r} {self.files!r}>"

    def statistics(self) -> TimerDeliveryStatistics:
        """The figures now."""
        return self.delivery.statistics()

    def configure(self, config: TimerConfig) -> None:
        """Accept by another limit from now on."""
        self.entry.configure(config)

    def load(self, check_stop: Callable[[], None]) -> None:
        """Find what waits. StoreError, OSError, and what `check_stop` raises. Nothing of that while timers are off."""
        if self._config.entry.is_enabled:
            self.delivery.load(check_stop)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to deliver what `load` has found, and what comes."""
        if self._config.entry.is_enabled:
            self.delivery.start(loop)

    async def stop(self) -> None:
        """Deliver nothing more; what was delivered counts as such."""
        if self._config.entry.is_enabled:
            await self.delivery.stop()

    def step(self, now_ms: int) -> None:
        """Have the files written, as often as they are to be."""
        if self._config.entry.is_enabled:
            self.delivery.write(now_ms)
            enqueued, slots = self.delivery.progress()
            self._enqueue_rate.step(now_ms, enqueued)
            self._dequeue_rate.step(now_ms, slots)

    def arrived(self, queue_id: int, max_offset: int, tags_codes: object) -> None:
        """Messages are new in the timer topic."""
        self.delivery.arrived(queue_id, max_offset, tags_codes)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted, and so is what waits for it."""
        self.counts.forget_topic(topic)

    def runtime(self) -> dict[str, object]:
        """What the runtime information says of timers."""
        if not self._config.entry.is_enabled:
            return {}
        now = self.statistics()
        return {
            "timerReadBehind": now.behind_ms // 1000,
            "timerOffsetBehind": max(now.enqueue.max_offset - now.enqueue.next_offset, 0),
            "timerCongestNum": now.files.waiting,
            "timerEnqueueTps": self._enqueue_rate.per_second,
            "timerDequeueTps": self._dequeue_rate.per_second,
        }
