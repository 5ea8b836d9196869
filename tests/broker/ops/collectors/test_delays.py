"""Metrics of delayed messages."""

from pathlib import Path

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.delivery.delay.delivery import DelayDelivery
from skylarkmq.broker.ops.collectors.delays import DelayCollector
from skylarkmq.broker.ops.steps import Value
from tests.harness.delayed import DELAYS_MS, delayed, offsets_of
from tests.harness.stores import opened
from tests.harness.timers import SteppedLoop


def test_levels_are_exported_one_by_one(tmp_path: Path) -> None:
    """Waiting, delivered and dropped messages, lateness, and the requested delays by topic."""
    with opened(tmp_path) as it:
        delivery = DelayDelivery(it.store, offsets_of(it), DELAYS_MS, it.clock)
        it.put(delayed(b"one"), delayed(b"never", properties=b"DELAY\x011\x02"), delayed(b"later", 2))
        loop = SteppedLoop(it.clock)
        delivery.start(loop)
        loop.pass_ms(1_000)
        requested = Histogram((60,))
        requested.note(5)
        values = {
            (value.name, value.labels): value.value
            for value in DelayCollector(delivery, {"T": requested})()
            if isinstance(value, Value)
        }
        lateness = values.pop(("skylark_delay_lateness_seconds", ()))
        assert isinstance(lateness, Histogram)
        assert (lateness.count, lateness.total) == (1, 0)
        assert values == {
            ("skylark_delay_waiting", ("1",)): 0,
            ("skylark_delay_delivered_total", ("1",)): 1,
            ("skylark_delay_dropped_total", ("1",)): 1,
            ("skylark_delay_waiting", ("2",)): 1,
            ("skylark_delay_delivered_total", ("2",)): 0,
            ("skylark_delay_dropped_total", ("2",)): 0,
            ("rocketmq_delay_message_latency_seconds", ("T",)): requested,
        }
