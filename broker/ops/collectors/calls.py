"""Metrics of requests to clients, and of replies that are forwarded by such requests."""

from skylarkmq.broker.delivery.calls.client_calls import ClientCalls
from skylarkmq.broker.delivery.calls.request_reply import Replies
from skylarkmq.broker.ops.steps import Steps, Value


class CallCollector:
    """Metrics of the requests that one broker sends to its clients."""

    def __init__(self, calls: ClientCalls, replies: Replies) -> None:
        self._calls = calls
        self._replies = replies

    def __repr__(self) -> str:
        return f"<CallCollector {self._calls!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        calls, replies = self._calls.statistics(), self._replies.statistics()
        yield Value("skylark_client_calls_waiting", (), calls.waiting)
        for outcome in ("answered", "timed_out", "failed", "refused"):
            yield Value("skylark_client_calls_total", (outcome,), getattr(calls, outcome))
        for outcome in ("pushed", "failed"):
            yield Value("skylark_replies_total", (outcome,), getattr(replies, outcome))
