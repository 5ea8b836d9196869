"""The timers of one broker: admission, files and delivery of timer messages.

    admission   accepts or rejects messages and computes their slots (`Deferral.timers`)
    files       wheel, log and check file on disk
    delivery    puts messages on the wheel, and delivers them; on a slave it follows the master's delivery

Source: docs/reference/wire.md, "Timer messages".
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.delivery.deferral import RequestedDelays
from skylarkmq.broker.delivery.timer.admission import TimerAdmission, TimerConfig
from skylarkmq.broker.delivery.timer.delivery import TimerDelivery, TimerDeliveryStatistics
from skylarkmq.broker.delivery.timer.pending_counts import PendingCounts
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.timer.files import TimerFiles, TimerFilesConfig
from skylarkmq.protocol.disk import CONFIG_DIRECTORY
from skylarkmq.protocol.timers import METRICS_FILE, RESERVED_SLOTS, SLOTS, TimerCheck

LEAST_WINDOW_SLOTS: Final = 2
RATE_WINDOW_MS: Final = 10_000


class TimersConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the timers. Sizes in bytes; an invalid `window_slots` means the longest window."""

    root: Path
    admission: TimerConfig = TimerConfig()
    window_slots: int = 172_800
    log_file_size: int = 100 << 20
    flush_interval_ms: int = 1_000
    slots: int = SLOTS

    @property
    def window_ms(self) -> int:
        """Return how far ahead a slot may be."""
        longest = self.slots // 2 - RESERVED_SLOTS
        slots = self.window_slots if LEAST_WINDOW_SLOTS <= self.window_slots <= longest else longest
        return slots * self.admission.precision_ms


class _Rate:
    """A rate per second, computed from a total that is read at intervals."""

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
    """The timers of one store. `now_ms` returns Unix time. `requested` counts the delays of accepted messages."""

    def __init__(
        self,
        config: TimersConfig,
        store: MessageStore,
        now_ms: Callable[[], int],
        disk: Disk | None = None,
        requested: RequestedDelays | None = None,
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self.precision_ms = precision_ms = config.admission.precision_ms
        self.counts = PendingCounts(config.root / CONFIG_DIRECTORY / METRICS_FILE, now_ms, disk)
        files_config = TimerFilesConfig(
            root=config.root,
            precision_ms=precision_ms,
            log_file_size=config.log_file_size,
            flush_interval_ms=config.flush_interval_ms,
            slots=config.slots,
        )
        self.files = files = TimerFiles(files_config, store, disk, self.counts.take)
        self.admission = TimerAdmission(
            config.admission,
            lambda out_ms: files.wheel.slot(out_ms).messages,
            problem=lambda: files.problem,
            note_request=(requested or RequestedDelays()).note,
        )
        self.delivery = TimerDelivery(store, files, self.counts, precision_ms, config.window_ms, now_ms)
        self._enqueue_rate = _Rate()
        self._dequeue_rate = _Rate()

    def __repr__(self) -> str:
        return f"<Timers {self.delivery!r} {self.files!r}>"

    def statistics(self) -> TimerDeliveryStatistics:
        """Return the current figures."""
        return self.delivery.statistics()

    def check(self) -> TimerCheck | None:
        """Return the current progress; None if timers are off."""
        return self.files.stamped(self.delivery.check()) if self._config.admission.is_enabled else None

    def configure(self, config: TimerConfig) -> None:
        """Apply other limits for admission from now on."""
        self.admission.configure(config)

    def load(self, check_stop: Callable[[], None]) -> None:
        """Load pending messages, unless timers are off. Raises StoreError, OSError, and what `check_stop` raises."""
        if self._config.admission.is_enabled:
            self.delivery.load(check_stop)

    def follow(self, master: TimerCheck) -> None:
        """Take over the progress of a master's timers, unless timers are off. Only instead of `start`."""
        if self._config.admission.is_enabled:
            self.delivery.follow(master)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start delivery."""
        if self._config.admission.is_enabled:
            self.delivery.start(loop)

    async def stop(self) -> None:
        """Stop delivery, and make sure that delivered messages count as delivered."""
        if self._config.admission.is_enabled:
            await self.delivery.stop()

    def step(self, now_ms: int) -> None:
        """Have the files written at their interval, and update the rates."""
        if self._config.admission.is_enabled:
            self.delivery.write(now_ms)
            enqueued, slots = self.delivery.progress()
            self._enqueue_rate.step(now_ms, enqueued)
            self._dequeue_rate.step(now_ms, slots)

    def arrived(self, queue_id: int, max_offset: int, tags_codes: object) -> None:
        """Register new messages in the timer topic."""
        self.delivery.arrived(queue_id, max_offset, tags_codes)

    def forget_topic(self, topic: str) -> None:
        """Remove the counts of a deleted topic; its pending messages are deleted with it."""
        self.counts.forget_topic(topic)

    def runtime(self) -> dict[str, object]:
        """Return the rows of timers in the runtime information."""
        if not self._config.admission.is_enabled:
            return {}
        now = self.statistics()
        return {
            "timerReadBehind": now.behind_ms // 1000,
            "timerOffsetBehind": max(now.enqueue.max_offset - now.enqueue.next_offset, 0),
            "timerCongestNum": now.files.waiting,
            "timerEnqueueTps": self._enqueue_rate.per_second,
            "timerDequeueTps": self._dequeue_rate.per_second,
        }
