"""Spans of sends and of handler calls, by OpenTelemetry's conventions for messaging.

    Producer(..., hooks=Spans(trace.get_tracer("shop"), kinds=trace.SpanKind, inject=..., extract=...))

The application hands over what it has of OpenTelemetry, so that nothing here imports it: a tracer, the enumeration of
span kinds, and, if traces shall go on across the broker, the two functions of `opentelemetry.propagate` (`inject`
writes the current context into a message's properties, `extract` reads it there).

A span is named `send <topic>` or `process <topic>`; its attributes are those of docs/sdk.md, "Traces and metrics".
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

import msgspec

from clients.errors import ClientError
from clients.hooks import ObservedProcess, ObservedSend
from protocol.codes import ResponseCode
from protocol.message import Message, MessageExt, PropertyName

SYSTEM: Final = "rocketmq"
_TIMERS: Final = (PropertyName.TIMER_DELAY_MS, PropertyName.TIMER_DELIVER_MS)


class Span(Protocol):
    """OpenTelemetry's, as far as it is used here."""

    def set_attribute(self, key: str, value: Any) -> None:
        """One attribute."""


class Tracer(Protocol):
    """OpenTelemetry's, as far as it is used here."""

    def start_as_current_span(
        self, name: str, context: Any = None, kind: Any = None, attributes: Mapping[str, Any] | None = None
    ) -> AbstractContextManager[Any]:
        """A span that is the current one inside; an exception that passes is recorded and its status an error."""


class Spans:
    """`clients.hooks.Hooks` that make spans."""

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
    def sending(self, message: Message, client_id: str) -> Iterator[ObservedSend]:
        """A span of kind PRODUCER."""
        attributes = _common("send", "send", message.topic, client_id) | _of_message(message.all_properties())
        attributes["messaging.message.body.size"] = len(message.body)
        name, kind = f"send {message.topic}", self._kinds.PRODUCER
        with self._tracer.start_as_current_span(name, kind=kind, attributes=attributes) as span, _told(span):
            observed = ObservedSend(self._with_context(message))
            yield observed
            if observed.result is not None:
                span.set_attribute("messaging.message.id", observed.result.msg_id)
                span.set_attribute("messaging.destination.partition.id", str(observed.result.queue.queue_id))

    @contextmanager
    def processing(self, message: MessageExt, group: str, client_id: str) -> Iterator[ObservedProcess]:
        """A span of kind CONSUMER, whose parent is the sender's if traces go across."""
        attributes = _common("process", "process", message.topic, client_id) | _of_message(message.properties)
        attributes |= {
            "messaging.consumer.group.name": group,
            "messaging.destination.partition.id": str(message.queue_id),
            "messaging.message.body.size": len(message.body),
            "messaging.message.id": message.msg_id,
        }
        context = None if self._extract is None else self._extract(message.properties)
        name, kind = f"process {message.topic}", self._kinds.CONSUMER
        span = self._tracer.start_as_current_span(name, context=context, kind=kind, attributes=attributes)
        with span as current, _told(current):
            observed = ObservedProcess(message)
            yield observed
            if not observed.succeeded:
                current.set_attribute("error.type", "LATER")

    def consuming(self, group: str, client_id: str, cached: Callable[[], tuple[int, int]]) -> None:
        """Gauges are for metrics."""

    def _with_context(self, message: Message) -> Message:
        if self._inject is None:
            return message
        properties = dict(message.properties)
        self._inject(properties)
        return msgspec.structs.replace(message, properties=properties)


@contextmanager
def _told(span: Span) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        span.set_attribute("error.type", _error_type(error))
        raise


def _error_type(error: Exception) -> str:
    known = ResponseCode._value2member_map_.get(error.code) if isinstance(error, ClientError) else None
    return type(error).__name__ if known is None else known.name


def _common(name: str, kind: str, topic: str, client_id: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
        "messaging.rocketmq.namespace": "",
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


def message_type(properties: Mapping[str, str]) -> str:
    """normal, fifo, delay or transaction, by the properties."""
    if properties.get(PropertyName.TRANSACTION_PREPARED) == "true":
        return "transaction"
    if PropertyName.SHARDING_KEY in properties:
        return "fifo"
    if PropertyName.DELAY in properties or any(name in properties for name in _TIMERS):
        return "delay"
    return "normal"
