"""Metrics of sends and handler calls, with the names of RocketMQ's own clients and of OpenTelemetry.

    metrics = ClientMetrics()                     in prometheus_client's registry, or in a given one
    connect(..., hooks=metrics)

Times are ms in RocketMQ's metrics and seconds in OpenTelemetry's. The number of messages that a consumer holds is read
at the scrape. The names: docs/use/sdk.md, "Hooks: traces, metrics, connection events".
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from skylarkmq.clients.sdk.telemetry.hooks import Hooks, ObservedProcess, ObservedSend, Received

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily, Metric
except ImportError as error:
    raise ImportError(
        f"skylarkmq.metrics needs prometheus_client ({error}): pip install 'skylarkmq[metrics]'",
        name="prometheus_client",
    ) from error

MS_BUCKETS: Final = (1, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000)
DELIVERY_MS_BUCKETS: Final = (10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000)
S_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_SENT: Final = ("topic", "client_id", "invocation_status")
_RECEIVED: Final = ("topic", "consumer_group", "client_id")
_HANDLED: Final = (*_RECEIVED, "invocation_status")
_OPERATION: Final = ("messaging_operation_name", "messaging_destination_name", "error_type")


class ClientMetrics(Hooks):
    """Hooks that export metrics. One object serves all producers and consumers of a process."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def histogram(name: str, text: str, labels: Iterable[str], buckets: Iterable[float]) -> Histogram:
            return Histogram(name, text, tuple(labels), registry=registry, buckets=tuple(buckets))

        self._send_ms = histogram("rocketmq_send_cost_time", "Time from a send to its result, ms.", _SENT, MS_BUCKETS)
        self._process_ms = histogram("rocketmq_process_time", "Duration of a handler call, ms.", _HANDLED, MS_BUCKETS)
        self._await_ms = histogram("rocketmq_await_time", "Time from store to handler, ms.", _RECEIVED, MS_BUCKETS)
        self._delivery_ms = histogram(
            "rocketmq_delivery_latency", "Time from the producer to the handler, ms.", _RECEIVED, DELIVERY_MS_BUCKETS
        )
        self._operation_s = histogram(
            "messaging_client_operation_duration_seconds", "Duration of a send.", _OPERATION, S_BUCKETS
        )
        self._process_s = histogram(
            "messaging_process_duration_seconds", "Duration of a handler call.", _OPERATION, S_BUCKETS
        )
        self._sent = Counter("messaging_client_sent_messages", "Messages sent.", _OPERATION, registry=registry)
        self._consumed = Counter(
            "messaging_client_consumed_messages", "Messages delivered.", _OPERATION, registry=registry
        )
        self._caches: dict[tuple[str, str], Callable[[], tuple[int, int]]] = {}
        registry.register(self)

    def __repr__(self) -> str:
        return f"<ClientMetrics {len(self._caches)} consumers>"

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of messages that consumers hold, for the registry."""
        count = GaugeMetricFamily("rocketmq_consumer_cached_messages", "Unacknowledged messages.", labels=_RECEIVED[1:])
        size = GaugeMetricFamily("rocketmq_consumer_cached_bytes", "Unacknowledged bytes.", labels=_RECEIVED[1:])
        for labels, cached in self._caches.items():
            messages, in_bytes = cached()
            count.add_metric(labels, messages)
            size.add_metric(labels, in_bytes)
        yield count
        yield size

    @contextmanager
    def sending(self, send: ObservedSend) -> Iterator[None]:
        """Measure a send, and count its messages."""
        topic, begun_s, error = send.messages[0].topic, time.perf_counter(), ""
        try:
            yield
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            spent_s = time.perf_counter() - begun_s
            self._send_ms.labels(topic, send.client_id, _status(not error)).observe(spent_s * 1000)
            self._operation_s.labels("send", topic, error).observe(spent_s)
            self._sent.labels("send", topic, error).inc(len(send.messages))

    @contextmanager
    def processing(self, process: ObservedProcess) -> Iterator[None]:
        """Measure a handler call, and the times before it."""
        message, topic, begun_s, error = process.message, process.message.topic, time.perf_counter(), ""
        labels, now_ms = (topic, process.group, process.client_id), time.time() * 1000
        self._await_ms.labels(*labels).observe(max(0.0, now_ms - message.store_timestamp))
        self._delivery_ms.labels(*labels).observe(max(0.0, now_ms - message.born_timestamp))
        try:
            yield
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            spent_s = time.perf_counter() - begun_s
            self._process_ms.labels(*labels, _status(process.succeeded)).observe(spent_s * 1000)
            self._process_s.labels("process", topic, error).observe(spent_s)
            self._consumed.labels("process", topic, error).inc()

    def received(self, received: Received) -> None:
        """Count the delivered messages."""
        for message in received.messages:
            self._consumed.labels("receive", message.topic, "").inc()

    def consuming(self, group: str, client_id: str, cached: Callable[[], tuple[int, int]]) -> None:
        """Include this consumer in scrapes."""
        self._caches[group, client_id] = cached


def _status(succeeded: bool) -> str:
    return "success" if succeeded else "failure"
