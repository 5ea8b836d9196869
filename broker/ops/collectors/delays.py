"""Metrics of delayed messages: waiting, delivered, lateness, and requested delays."""

from collections.abc import Mapping

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.delivery.delay.delivery import DelayDelivery
from skylarkmq.broker.ops.steps import Steps, Value


class DelayCollector:
    """Metrics of one broker's delay levels. `requested`: requested delays in seconds, by topic."""

    def __init__(self, delivery: DelayDelivery, requested: Mapping[str, Histogram]) -> None:
        self._delivery = delivery
        self._requested = requested

    def __repr__(self) -> str:
        return f"<DelayCollector {self._delivery!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        for number, level in self._delivery.statistics().levels.items():
            labels = (str(number),)
            yield Value("skylark_delay_waiting", labels, max(level.max_offset - level.next_offset, 0))
            yield Value("skylark_delay_delivered_total", labels, level.delivered)
            yield Value("skylark_delay_dropped_total", labels, level.dropped)
        yield Value("skylark_delay_lateness_seconds", (), self._delivery.lateness)
        for topic, seconds in list(self._requested.items()):
            yield Value("rocketmq_delay_message_latency_seconds", (topic,), seconds)
