"""Metrics of requests and connections: latencies, pools, refusals, and transfers."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from skylarkmq.broker.ops.collectors.topics import bool_label
from skylarkmq.broker.ops.steps import Steps, Value
from skylarkmq.broker.remoting.admission import PoolStatistics
from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.request_latency import UNKNOWN_CODE, Outcome
from skylarkmq.protocol.codes import RequestCode, ResponseCode

PROCESSORS: Final = {
    "send": "send",
    "pull": "pull",
    "lite_pull": "lite_pull",
    "query": "query_message",
    "heartbeat": "heartbeat",
    "client_manage": "client_manager",
    "consumer_manage": "consumer_manager",
    "end_transaction": "transaction",
    "admin": "admin",
    "reply": "reply",
}
"""RocketMQ's names of the pools."""
REFUSALS: Final = {"requests": "rejected_by_requests", "bytes": "rejected_by_bytes", "wait": "rejected_by_wait"}
"""Reasons to refuse a request, and the fields of a pool's statistics that count them."""
WAYS: Final = ("copied", "sent", "cold_sent", "cold_read")
"""Transfer methods, as the statistics of transfers call them."""
REQUEST_NAMES: Final[dict[int, str]] = {code: code.name.lower() for code in RequestCode} | {UNKNOWN_CODE: "unknown"}
RESPONSE_NAMES: Final[dict[int, str]] = {code: code.name.lower() for code in ResponseCode}


class RequestCollector:
    """Metrics of the remoting layer. `pools` returns the statistics of all pools."""

    def __init__(self, server: RemotingServer, pools: Callable[[], Iterable[PoolStatistics]]) -> None:
        self._server = server
        self._pools = pools

    def __repr__(self) -> str:
        return f"<RequestCollector {self._server!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        for outcome, row in list(self._server.dispatcher.latencies.rows.items()):
            yield Value("rocketmq_rpc_latency_milliseconds", labels_of(Outcome(*outcome)), row)
        for pool in self._pools():
            yield from self._pool(pool)
        yield from self._connections()
        yield from self._tls()
        yield from self._transfers()
        yield from self._unfinished()

    def _pool(self, pool: PoolStatistics) -> Steps:
        labels = (pool.name,)
        processor = PROCESSORS.get(pool.name)
        if processor is not None:
            yield Value("rocketmq_processor_watermark", (processor,), pool.pending)
        yield Value("skylark_pool_held", labels, pool.pending)
        yield Value("skylark_pool_capacity", labels, pool.capacity)
        yield Value("skylark_pool_held_bytes", labels, pool.bytes)
        yield Value("skylark_pool_limit_bytes", labels, pool.max_bytes)
        yield Value("skylark_pool_head_wait_seconds", labels, pool.head_wait_ms / 1000)
        for reason, field in REFUSALS.items():
            yield Value("skylark_pool_refused_total", (pool.name, reason), getattr(pool, field))

    def _connections(self) -> Steps:
        now = self._server.selector.statistics()
        yield Value("skylark_connections", (), now.connections)
        yield Value("skylark_connections_held", (), now.held)
        yield Value("skylark_connections_paused", (), now.paused)
        yield Value("skylark_connections_accepted_total", (), now.accepted)
        yield Value("skylark_connections_refused_total", (), now.refused)
        yield Value("skylark_connections_idle_closed_total", (), now.closed_idle)
        yield Value("skylark_connections_unread_closed_total", (), now.closed_unread)
        yield Value("skylark_connections_in_line", (), self._server.selector.read_scheduler.statistics().queued)
        yield Value("skylark_protocol_errors_total", (), now.protocol_errors)
        yield Value("skylark_received_bytes_total", (), now.received_bytes)
        yield Value("skylark_sent_bytes_total", (), now.sent_bytes)
        yield Value("skylark_backlog_bytes", (), now.backlog_bytes)

    def _tls(self) -> Steps:
        now = self._server.tls.statistics()
        yield Value("skylark_tls_handshakes_total", ("established",), now.established)
        yield Value("skylark_tls_handshakes_total", ("failed",), now.failed)
        yield Value("skylark_tls_refused_total", (), now.refused)
        yield Value("skylark_tls_reloads_total", ("loaded",), now.reloads)
        yield Value("skylark_tls_reloads_total", ("failed",), now.reload_failures)

    def _transfers(self) -> Steps:
        figures = msgspec.structs.asdict(self._server.selector.pending_writes.statistics())
        for way in WAYS:
            yield Value("skylark_transfer_calls_total", (way,), figures[f"{way}_calls"])
            yield Value("skylark_transfer_bytes_total", (way,), figures[f"{way}_bytes"])
        yield Value("skylark_transfer_cut_total", (), figures["cut"])

    def _unfinished(self) -> Steps:
        now = self._server.selector.registry.partial_frames.statistics()
        yield Value("skylark_unfinished_bytes", (), now.bytes)
        yield Value("skylark_unfinished_limit_bytes", (), now.limit_bytes)
        yield Value("skylark_unfinished_waiting", (), now.waiting)
        yield Value("skylark_unfinished_closed_total", (), now.closed)


def labels_of(outcome: Outcome) -> tuple[str, str, str, str]:
    """Return the labels of a row of latencies; a code without a name appears as a number."""
    request = REQUEST_NAMES.get(outcome.request_code, str(outcome.request_code))
    response = RESPONSE_NAMES.get(outcome.response_code, str(outcome.response_code))
    return request, response, bool_label(outcome.was_parked), "oneway" if outcome.was_oneway else "success"
