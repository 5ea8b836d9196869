"""Hooks that create spans by OpenTelemetry's conventions for messaging.

    from opentelemetry import propagate, trace
    from skylarkmq.tracing import Spans

    spans = Spans(trace.get_tracer("shop"), trace.SpanKind, propagate.inject, propagate.extract)
    skylarkmq.connect("127.0.0.1:9876", hooks=spans)

docs/use/sdk.md, "Hooks: traces, metrics, connection events", lists the spans and their attributes. The message traces
of RocketMQ need no hooks: they are the option `trace=True` of producers and push consumers.
"""

from skylarkmq.clients.sdk.telemetry.spans import Span, Spans, Tracer

__all__ = ["Span", "Spans", "Tracer"]
