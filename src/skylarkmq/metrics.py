"""Hooks that export the metrics of a client to Prometheus. `pip install 'skylarkmq[metrics]'` installs what they need.

    from skylarkmq.metrics import ClientMetrics

    skylarkmq.connect("127.0.0.1:9876", hooks=ClientMetrics())

docs/use/sdk.md, "Hooks: traces, metrics, connection events", lists the metrics.
"""

from skylarkmq.clients.sdk.telemetry.metrics import ClientMetrics

__all__ = ["ClientMetrics"]
