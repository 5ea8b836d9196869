"""Metrics of timer messages."""

from pathlib import Path

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.ops.collectors.timers import TimerCollector
from skylarkmq.broker.ops.steps import Value
from tests.harness.stores import opened
from tests.harness.timed import deletion, stop, timed, timers_of


def test_waiting_and_ended_timer_messages(tmp_path: Path) -> None:
    """By topic, by due time, by outcome; and the lag."""
    with opened(tmp_path) as it:
        timers = timers_of(it)
        timers.delivery.load()
        now = it.clock.now_ms
        it.put(timed(b"one", now), timed(b"gone", now, key="k"), deletion(now, "k"), timed(b"late", now + 90_000, "U"))
        it.clock.now_ms += 1_500
        collector = TimerCollector(timers, it.store, it.clock)

        def values() -> dict[tuple[str, ...], object]:
            found = [value for value in collector() if isinstance(value, Value)]
            return {(value.name.removeprefix("rocketmq_"), *value.labels): value.value for value in found}

        assert (values()["timer_enqueue_lag",], values()["timer_enqueue_latency_milliseconds",]) == (4, 1_500)
        timers.delivery.step(it.clock.now_ms)
        before = values()
        assert (before["timer_dequeue_lag",], before["timer_dequeue_latency_milliseconds",]) == (1, 500)
        while (next_ms := timers.delivery.step(it.clock.now_ms)) is not None and next_ms <= it.clock.now_ms:
            pass
        after = values()
        assert {key: after[key] for key in after if key[0].startswith("timer_message_snapshot")} == {
            ("timer_message_snapshot", bound): int(int(bound) >= 300)
            for bound in ("5", "60", "300", "900", "3600", "14400", "28800", "86400")
        }
        assert (after["timing_messages", "T"], after["timing_messages", "U"]) == (0, 1)
        assert (after["timer_enqueue_total", "T"], after["timer_dequeue_total", "T"]) == (2, 2)
        ended = {key[1]: value for key, value in after.items() if key[0] == "skylark_timer_ended_total"}
        assert ended == {"delivered": 1, "deleted": 1, "rolled": 0, "dropped": 0}
        lateness = after["skylark_timer_slot_lateness_seconds",]
        assert isinstance(lateness, Histogram)
        assert (lateness.count, lateness.total) == (1, 0.5)
        stop(it, timers)
