"""Delivery of timer messages: scheduling by the wheel and the clock.

    arrival ─▶ (a short wait, to collect more) ─▶ Enqueue ─▶ wheel ─▶ its time is over ─▶ SlotDelivery

`step` runs one slice of about 0.5 ms. An event-loop iteration runs one slice, or a few while a slot is late. New
messages are put on the wheel first. Only when there are none left, the earliest slot whose time is over is delivered.
So a deletion that is stored in time takes effect, even after a long stop. A rolled message must be back on the wheel
before a later slot is delivered.

The loop calls `step` again at once, or when the next slot is due, but at the latest after LONGEST_SLEEP_MS, so that a
change of the wall clock is noticed. A thread fetches cold bytes in the meantime.

On a classic slave `follow` runs instead. The master's progress says which messages of the timer topic are on its wheel,
and which slots it has delivered. The same messages are put on the wheel here, then the same slots are removed. So a
slave that becomes the master delivers what the master had not delivered when it was last asked.

A stop finishes the current slot, flushes the log, and writes the progress; then no message is delivered twice.
Source: docs/reference/wire.md, "Timer messages".
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.delivery.delay.delivery import (
    AFTER_FAILURE_MS,
    BEHIND_MS,
    FLUSH_LIMIT_S,
    LONGEST_SLEEP_MS,
    MOST_SLICES,
    Callbacks,
)
from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.timer.enqueue import Enqueue, EnqueueStatistics
from skylarkmq.broker.delivery.timer.pending_counts import PendingCounts
from skylarkmq.broker.delivery.timer.slot_delivery import SlotDelivery, SlotDeliveryStatistics, Tally
from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.timer.files import RETRY_MS as RETRY_WRITE_MS
from skylarkmq.broker.store.timer.files import TimerFiles, TimerFilesStatistics
from skylarkmq.broker.store.timer.flush_round import WriteRefused
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.timers import TimerCheck

GATHER_MS: Final = 10
RETRY_MS: Final = 100
FINISH_LIMIT_S: Final = 5.0

_TOPIC: Final = SystemTopic.TIMER

log = logging.getLogger(__name__)


class TimerDeliveryStatistics(msgspec.Struct, frozen=True):
    """`behind_ms`: how long the earliest undelivered slot is overdue."""

    enqueue: EnqueueStatistics
    slots: SlotDeliveryStatistics
    files: TimerFilesStatistics
    behind_ms: int


class TimerDelivery:
    """Delivers from one store. Times in ms; `now_ms` returns Unix time."""

    def __init__(
        self,
        store: MessageStore,
        files: TimerFiles,
        counts: PendingCounts,
        precision_ms: int,
        window_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._files = files
        self._precision_ms = precision_ms
        self._now_ms = now_ms
        self._enqueue = Enqueue(store, files, counts, precision_ms, window_ms)
        self.tally = Tally(counts)
        self._open_ms = 0  # slots before this time are delivered
        self._slot: SlotDelivery | None = None  # the current slot
        self._rolled: Append | None = None  # the last message that must return to the wheel
        self._master: TimerCheck | None = None  # the progress to follow
        self._loop: asyncio.AbstractEventLoop | Callbacks | None = None  # None: not running
        self._handle: asyncio.Handle | None = None
        self._is_asleep = False  # whether an arrival may end the current wait early

    def __repr__(self) -> str:
        return f"<TimerDelivery {self._enqueue!r} delivered={self.tally.delivered}>"

    def statistics(self) -> TimerDeliveryStatistics:
        """Return the current figures."""
        first_ms = self._slot.slot_ms if self._slot is not None else self._files.wheel.first_ms()
        behind_ms = 0 if first_ms is None else max(self._now_ms() - first_ms - self._precision_ms, 0)
        return TimerDeliveryStatistics(
            self._enqueue.statistics(), self.tally.statistics(), self._files.statistics(), behind_ms
        )

    # ------------------------------------------------------------------------------------------------- start and stop

    def load(self, check_stop: Callable[[], None] = lambda: None) -> None:
        """Load the state of an earlier process. Raises StoreError, OSError, and what `check_stop` raises."""
        self.tally.counts.load()
        check = self._files.load(self._now_ms(), self._offset_of, check_stop)
        self._open_ms = check.read_ms
        low, high = self._store.min_offset(_TOPIC, 0) or 0, self._store.max_offset(_TOPIC, 0) or 0
        self._enqueue.next_offset = min(max(check.queue_offset, low), high)

    def _offset_of(self, physical_offset: int) -> int | None:
        """Return the offset in the timer topic of the message at a byte of the log, or None."""
        low, high = self._store.min_offset(_TOPIC, 0) or 0, self._store.max_offset(_TOPIC, 0) or 0
        while low < high:
            middle = (low + high) // 2
            units = self._store.units(_TOPIC, 0, middle, 1)
            if units and units[0][0] == physical_offset:
                return middle
            if units and units[0][0] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return None

    def start(self, loop: asyncio.AbstractEventLoop | Callbacks) -> None:
        """Start delivery."""
        self._loop = loop
        if isinstance(loop, asyncio.AbstractEventLoop):
            self._files.reads.start(loop)
        self._wake(0)

    def follow(self, master: TimerCheck) -> None:
        """Follow the progress of a master, whose messages before `master.master_queue_offset` are in this store."""
        self._master = master
        if self._loop is None:
            self._enqueue.is_following = True
            self.start(asyncio.get_running_loop())
        else:
            self._wake(0)

    async def stop(self) -> None:
        """Finish the current slot, flush what was delivered, and stop."""
        self._loop = None
        if self._handle is not None:
            self._handle.cancel()
        try:
            await asyncio.wait_for(self._finish_slot(), FINISH_LIMIT_S)
            flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._store.when_flushed(lambda: None if flushed.done() else flushed.set_result(None))
            await asyncio.wait_for(flushed, FLUSH_LIMIT_S)
        except TimeoutError:
            log.warning("timers not finished in time, some messages may be delivered again")
        self.tally.counts.skip_interval()
        self._files.finish(self._now_ms(), self.check())

    async def _finish_slot(self) -> None:
        """Deliver the rest of the current slot: after a restart the slot would be delivered from its beginning."""
        while self._slot is not None and self._store.is_writable:
            wait_ms = 0
            try:
                next_ms = self.step(self._now_ms())
                wait_ms = RETRY_MS if next_ms is not None and next_ms > self._now_ms() else 0
            except ColdRead as cold:
                await self._fetch(cold)
            await asyncio.sleep(wait_ms / 1000)

    def close(self) -> None:
        """Close the files that `load` has opened; nothing is written."""
        self._files.close()

    def progress(self) -> tuple[int, int]:
        """Return how many messages were put on the wheel, and how many left it, since the start."""
        tally = self.tally
        return self._enqueue.enqueued, tally.delivered + tally.deleted + tally.rolled + tally.dropped

    def check(self) -> TimerCheck:
        """Return the current progress."""
        return TimerCheck(read_ms=self._open_ms, queue_offset=self._enqueue.next_offset, timestamp=self._now_ms())

    def write(self, now_ms: int) -> None:
        """Have the files written at their interval; `now_ms` is from a steady clock."""
        try:
            self._files.step(now_ms, self.check())
            self._files.remove_old(now_ms)
        except OSError as problem:
            log.warning("old timer files not removed error=%s", problem)
        except ColdRead as cold:
            self._files.reads.fetch(cold)

    # ---------------------------------------------------------------------------------------------------------- slices

    def step(self, now_ms: int) -> int | None:
        """Run one slice. Returns the time of the next one; None: at the next arrival.

        After a ColdRead nothing has changed. Also raises OSError, WriteRefused.
        """
        if self._master is not None:
            return self._follow_step(now_ms, self._master)
        if self._slot is None and self._enqueue.is_behind:
            self._enqueue.step(now_ms, self._open_ms)
            return now_ms
        if self._slot is None:
            first_ms = self._files.wheel.first_ms()
            if first_ms is None:
                return None
            due_ms = first_ms + self._precision_ms
            if due_ms > now_ms or not self._is_settled():
                return due_ms if due_ms > now_ms else now_ms + RETRY_MS
            self._begin_slot(first_ms)
        return self._step_slot(now_ms)

    def _follow_step(self, now_ms: int, master: TimerCheck) -> int | None:
        """Put the messages on the wheel that the master has put there, then remove the slots that it has delivered."""
        if self._enqueue.next_offset < master.master_queue_offset and self._enqueue.is_behind:
            self._enqueue.step(now_ms, self._open_ms, master.master_queue_offset)
            return now_ms
        read_ms = master.read_ms // self._precision_ms * self._precision_ms
        first_ms = self._files.wheel.first_ms()
        if first_ms is not None and first_ms < read_ms:
            self._files.wheel.remove_first(first_ms)
            return now_ms
        self._open_ms = max(self._open_ms, read_ms)
        return None

    def _is_settled(self) -> bool:
        """Return whether all rolled messages are back on the wheel."""
        rolled = self._rolled
        if rolled is None or rolled.queue_offset < self._enqueue.next_offset:
            self._rolled = None
            return True
        return rolled.status is not PutStatus.PENDING and rolled.status not in STORED

    def _begin_slot(self, slot_ms: int) -> None:
        last = self._files.wheel.slot(slot_ms).last
        self._slot = SlotDelivery(slot_ms, last, self._precision_ms, self._store, self._files.log, self.tally)

    def _step_slot(self, now_ms: int) -> int:
        if self._store.flush.is_behind or not self._store.is_writable:
            return now_ms + RETRY_MS
        slot = self._slot
        assert slot is not None
        is_done = slot.step(now_ms)
        if is_done is None:
            return now_ms + RETRY_MS
        if is_done:
            self._files.wheel.remove_first(slot.slot_ms)
            self._open_ms = slot.slot_ms + self._precision_ms
            self._rolled = slot.last_rolled or self._rolled
            self._slot = None
        return now_ms

    # ------------------------------------------------------------------------------------------------------ scheduling

    def arrived(self, _queue_id: int, _max_offset: int, _tags_codes: object) -> None:
        """Register new messages in the timer topic."""
        if self._loop is not None and self._is_asleep and self._master is None:
            self._wake(GATHER_MS)
            self._is_asleep = False

    def _wake(self, in_ms: int) -> None:
        if self._loop is None:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._is_asleep = in_ms > GATHER_MS
        if in_ms <= 0:
            self._handle = self._loop.call_soon(self._run_slices)
        else:
            self._handle = self._loop.call_later(in_ms / 1000, self._run_slices)

    def _run_slices(self) -> None:
        self._handle = None
        self._is_asleep = False
        try:
            next_ms = self._slices()
        except ColdRead as cold:
            self._fetch(cold).add_done_callback(self._fetched)
        except WriteRefused:  # logged by the files
            self._wake(RETRY_WRITE_MS)
        except Exception:
            log.exception("timer messages cannot be delivered retry_ms=%d", AFTER_FAILURE_MS)
            self._wake(AFTER_FAILURE_MS)
        else:
            if next_ms is None:
                self._is_asleep = True
            else:
                self._wake(min(next_ms - self._now_ms(), LONGEST_SLEEP_MS))

    def _slices(self) -> int | None:
        """Run one slice, or MOST_SLICES while a slot is late, because an iteration with many sends is long."""
        for _ in range(MOST_SLICES - 1):
            next_ms = self.step(self._now_ms())
            slot = self._slot
            now_ms = self._now_ms()
            is_late = slot is not None and now_ms - slot.slot_ms - self._precision_ms > BEHIND_MS
            if not is_late or next_ms is None or next_ms > now_ms:
                return next_ms
        return self.step(self._now_ms())

    def _fetch(self, cold: ColdRead) -> "asyncio.Future[None]":
        is_ours = cold.range.path.startswith(self._files.log.directory)
        return self._files.reads.fetch(cold) if is_ours else self._store.reader.fetch(cold)

    def _fetched(self, _future: "asyncio.Future[None]") -> None:
        self._wake(0)
