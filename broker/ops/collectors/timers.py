"""Metrics of timer messages: waiting, ended by outcome, and lag."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.delivery.timer.timers import Timers
from skylarkmq.broker.ops.steps import Steps, Value, retry_cold_reads
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import SystemTopic

BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
SLOTS_PER_STEP: Final = 500


class TimerCollector:
    """Metrics of one broker's timers. `now_ms` gives Unix time."""

    def __init__(self, timers: Timers, store: MessageStore, now_ms: Callable[[], int]) -> None:
        self._timers = timers
        self._store = store
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<TimerCollector {self._timers!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        now = self._timers.statistics()
        yield from self._lags()
        counts = self._timers.counts
        for topic, count in counts.statistics().counts.items():
            yield Value("rocketmq_timing_messages", (topic,), count)
        for topic, count in list(counts.entered.items()):
            yield Value("rocketmq_timer_enqueue_total", (topic,), count)
        for topic, count in list(counts.left.items()):
            yield Value("rocketmq_timer_dequeue_total", (topic,), count)
        slots = now.slots
        for outcome, ended in (
            ("delivered", slots.delivered),
            ("deleted", slots.deleted),
            ("rolled", slots.rolled),
            ("dropped", slots.dropped + now.enqueue.invalid),
        ):
            yield Value("skylark_timer_ended_total", (outcome,), ended)
        yield Value("skylark_timer_writable", (), int(not self._timers.files.problem))
        yield Value("skylark_timer_refused_writes_total", (), now.files.refusals)
        yield Value("skylark_timer_slot_lateness_seconds", (), self._timers.delivery.tally.lateness)
        yield from self._bands()

    def _lags(self) -> Steps:
        now, now_ms = self._timers.statistics(), self._now_ms()
        enqueue = now.enqueue
        lag = max(enqueue.max_offset - enqueue.next_offset, 0)
        stored_ms: int | None = None
        if lag:
            stored_ms = yield from retry_cold_reads(
                lambda: self._store.store_time_at(SystemTopic.TIMER, 0, enqueue.next_offset)
            )
        yield Value("rocketmq_timer_enqueue_lag", (), lag)
        yield Value("rocketmq_timer_enqueue_latency_milliseconds", (), max(now_ms - (stored_ms or now_ms), 0))
        yield Value("rocketmq_timer_dequeue_latency_milliseconds", (), now.behind_ms)

    def _bands(self) -> Steps:
        """Yield how many messages are due within each bound, and how many are overdue; the wheel is read in steps."""
        now_ms = self._now_ms()
        bands = [0] * (len(BOUNDS_S) + 1)
        overdue = 0
        for at, (slot_ms, slot) in enumerate(self._timers.files.wheel.slots()):
            wait_s = (slot_ms + self._timers.precision_ms - now_ms) / 1000
            bands[bisect_left(BOUNDS_S, wait_s)] += max(slot.messages, 0)
            if wait_s <= 0:
                overdue += max(slot.messages, 0)
            if at % SLOTS_PER_STEP == SLOTS_PER_STEP - 1:
                yield None
        yield Value("rocketmq_timer_dequeue_lag", (), overdue)
        total = 0
        for bound_s, count in zip(BOUNDS_S, bands, strict=False):
            total += count
            yield Value("rocketmq_timer_message_snapshot", (str(bound_s),), total)
