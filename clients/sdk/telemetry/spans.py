"""Spans of sends and handler calls, by OpenTelemetry's conventions for messaging.

    Producer(..., hooks=Spans(trace.get_tracer("shop"), kinds=trace.SpanKind, inject=..., extract=...))

The application passes in the objects of OpenTelemetry, so this module imports none: a tracer, the enumeration of span
kinds, and, for traces across the broker, the two functions of `opentelemetry.propagate` (`inject` writes the current
context into the properties of a message, `extract` reads it).

A span is named `send <topic>`, `receive <topic>` or `process <topic>`; docs/use/sdk.md, "Hooks: traces, metrics,
connection events", lists its attributes. A batch is one span.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

import msgspec

from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.messages.message_types import message_type
from skylarkmq.clients.sdk.telemetry.hooks import Hooks, ObservedProcess, ObservedSend, Received
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.message import Message, PropertyName

SYSTEM: Final = "rocketmq"


class Span(Protocol):
    """The methods of OpenTelemetry's class that are used here."""

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute."""

    def end(self) -> None:
        """End the span now."""


class Tracer(Protocol):
    """The methods of OpenTelemetry's class that are used here."""

    def start_as_current_span(
        self, name: str, context: Any = None, kind: Any = None, attributes: Mapping[str, Any] | None = None
    ) -> AbstractContextManager[Any]:
        """Return a span that is current inside the block; an exception is recorded and sets the status to error."""

    def start_span(
        self, name: str, *, kind: Any = None, attributes: Mapping[str, Any] | None = None, start_time: int | None = None
    ) -> Any:
        """Return a span with this start (Unix time, ns)."""


class Spans(Hooks):
    """Hooks that create spans."""

    def __init__(
        self,
        tracer: Tracer,
        kinds: Any,
        inject: Callable[[dict[str, str]], None] | None = None,
        extract: Callable[[Mapping[str, str]], Any] | None = None,
    ) -> None:
        self._tracer = tracer
        self._kinds = kinds
        self._inject = inject
        self._extract = extract

    def __repr__(self) -> str:
        return f"<Spans {self._tracer}>"

    @contextmanager
    def sending(self, send: ObservedSend) -> Iterator[None]:
        """Create a span of kind PRODUCER; the messages get its context."""
        first, count = send.messages[0], len(send.messages)
        attributes = _common("send", first.topic, send.client_id, send.namespace)
        attributes |= _of_message(first.all_properties()) if count == 1 else {"messaging.batch.message_count": count}
        attributes["messaging.message.body.size"] = sum(len(message.body) for message in send.messages)
        name, kind = f"send {first.topic}", self._kinds.PRODUCER
        with self._tracer.start_as_current_span(name, kind=kind, attributes=attributes) as span, _with_error_type(span):
            send.messages = [self._with_context(message) for message in send.messages]
            yield
            if len(send.results) == 1:
                (result,) = send.results
                span.set_attribute("messaging.message.id", result.msg_id)
                span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))

    @contextmanager
    def processing(self, process: ObservedProcess) -> Iterator[None]:
        """Create a span of kind CONSUMER; with `extract`, its parent is the span of the send."""
        message = process.message
        attributes = _common("process", message.topic, process.client_id, process.namespace)
        attributes |= _of_message(message.properties) | {
            "messaging.consumer.group.name": process.group,
            "messaging.destination.partition.id": str(message.queue_id),
            "messaging.message.body.size": len(message.body),
            "messaging.message.id": message.msg_id,
            "messaging.rocketmq.consumption_model": "broadcasting" if process.broadcast else "clustering",
        }
        context = None if self._extract is None else self._extract(message.properties)
        name, kind = f"process {message.topic}", self._kinds.CONSUMER
        span = self._tracer.start_as_current_span(name, context=context, kind=kind, attributes=attributes)
        with span as current, _with_error_type(current):
            yield
            if not process.succeeded:
                current.set_attribute("error.type", "LATER")

    def received(self, received: Received) -> None:
        """Create a span of kind CLIENT for each topic; it begins with the wait for messages."""
        for topic, count in Counter(message.topic for message in received.messages).items():
            attributes = _common("receive", topic, received.client_id, received.namespace)
            attributes["messaging.consumer.group.name"] = received.group
            attributes["messaging.batch.message_count"] = count
            begun_ns, kind = int(received.begun_s * 1e9), self._kinds.CLIENT
            span = self._tracer.start_span(f"receive {topic}", kind=kind, attributes=attributes, start_time=begun_ns)
            span.end()

    def _with_context(self, message: Message) -> Message:
        if self._inject is None:
            return message
        properties = dict(message.properties)
        self._inject(properties)
        return msgspec.structs.replace(message, properties=properties)


@contextmanager
def _with_error_type(span: Span) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        span.set_attribute("error.type", _error_type(error))
        raise


def _error_type(error: Exception) -> str:
    known = ResponseCode._value2member_map_.get(error.code) if isinstance(error, ClientError) else None
    return type(error).__name__ if known is None else known.name


def _common(operation: str, topic: str, client_id: str, namespace: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        "messaging.rocketmq.namespace": namespace,
        "messaging.client.id": client_id,
    }


def _of_message(properties: Mapping[str, str]) -> dict[str, Any]:
    attributes: dict[str, Any] = {"messaging.rocketmq.message.type": message_type(properties)}
    if tag := properties.get(PropertyName.TAGS):
        attributes["messaging.rocketmq.message.tag"] = tag
    if keys := properties.get(PropertyName.KEYS):
        attributes["messaging.rocketmq.message.keys"] = keys.split()
    if message_group := properties.get(PropertyName.SHARDING_KEY):
        attributes["messaging.rocketmq.message.group"] = message_group
    level, at_ms = properties.get(PropertyName.DELAY), properties.get(PropertyName.TIMER_DELIVER_MS)
    if level and level.isdecimal():
        attributes["messaging.rocketmq.message.delay_time_level"] = int(level)
    if at_ms and at_ms.isdecimal():
        attributes["messaging.rocketmq.message.delivery_timestamp"] = int(at_ms)
    return attributes
