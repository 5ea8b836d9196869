"""Hooks: callbacks about sends, handler calls and connections, and the values that they get.

    from skylarkmq.hooks import Hooks, ObservedSend

    class Counting(Hooks):
        @contextmanager
        def sending(self, send: ObservedSend) -> Iterator[None]:
            yield
            counts[send.group] += len(send.results)

    skylarkmq.connect("127.0.0.1:9876", hooks=Counting())

Subclass `Hooks` and override the callbacks that you need; `Several` combines hooks. `skylarkmq.metrics` has hooks for
Prometheus, `skylarkmq.tracing` those for OpenTelemetry. docs/use/sdk.md, "Hooks: traces, metrics, connection events",
lists when each callback is called.
"""

from skylarkmq.clients.sdk.telemetry.connection_events import ConnectionEvent
from skylarkmq.clients.sdk.telemetry.hooks import Hooks, ObservedEnd, ObservedProcess, ObservedSend, Received, Several

__all__ = ["ConnectionEvent", "Hooks", "ObservedEnd", "ObservedProcess", "ObservedSend", "Received", "Several"]
