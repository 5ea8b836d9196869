"""Messages as the application receives them: with the deserialized value, and with their acknowledgment.

    async for message in consumer:             of a PushConsumer without a handler
        async with message.process():          acknowledged at the end of the block; sent back if the block raises
            ...

    await message.ack()                        the same without a block
    await message.nack(delay=timedelta(minutes=1))

The messages that a handler, `PullConsumer.poll`, or a loop over a PullConsumer receives are acknowledged by the
handler's result or by `commit`: `ack` and `nack` raise InvalidMessage there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final, Protocol, Self

import msgspec

from skylarkmq.clients.sdk.base.arguments import check_callable, check_timeout
from skylarkmq.clients.sdk.base.errors import ClientClosed, ClientError, InvalidBody, InvalidMessage
from skylarkmq.clients.sdk.base.timeouts import within
from skylarkmq.clients.sdk.consuming.later import Later
from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.messages.stored_messages import place_of
from skylarkmq.protocol.message import MessageExt

Deserializer = Callable[[bytes], Any]
"""Turns a body into `ReceivedMessage.value`. A message for which it raises is handled like one that cannot be
inflated: it is not delivered, and sent back."""

DETACHED: Final = OffsetTracker(0)
"""The tracker of a message that belongs to no queue of a consumer."""


class Acknowledger(Protocol):
    """Acknowledges the messages of one consumer (clients/sdk/consuming/acknowledgment.py)."""

    def check(self, message: "ReceivedMessage") -> None:
        """Raise InvalidMessage if the message is finished already, ClientClosed after the consumer's stop."""

    def ack(self, message: "ReceivedMessage") -> None:
        """Acknowledge a message. Raises the errors of `check`."""

    async def nack(self, message: "ReceivedMessage", later: Later) -> None:
        """Acknowledge a message negatively. Raises the errors of `check`."""

    def put_back(self, message: "ReceivedMessage") -> None:
        """Deliver a message again, next, unless it is finished."""


class ReceivedMessage(MessageExt, eq=False):
    """A message with its acknowledgment. `body` is inflated, and `topic` is the one that the producer sent to. Times
    are in ms, hosts (ip, port).

    The other fields belong to the SDK. `tracker` has the offsets of the queue. `failures` counts redeliveries within
    this process. `finished`: the message is acknowledged. `error` is set if the body cannot be inflated.
    """

    deserialized: Any = msgspec.UNSET
    tracker: OffsetTracker = DETACHED
    failures: int = 0
    finished: bool = False
    error: ClientError | None = None
    acknowledger: Acknowledger | None = None

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.msg_id} {place_of(self)}{' acknowledged' if self.is_acknowledged else ''}>"

    @property
    def value(self) -> Any:
        """The result of the consumer's `deserializer`; without one the body."""
        return self.body if self.deserialized is msgspec.UNSET else self.deserialized

    @property
    def is_acknowledged(self) -> bool:
        """Whether the message is acknowledged, positively or negatively."""
        return self.finished

    async def ack(self) -> None:
        """Acknowledge the message: the committed offset may advance over it. Offsets are committed in the background.

        Raises InvalidMessage if it is acknowledged already, ClientClosed after the consumer's stop. Has no effect if
        the queue was revoked: another member receives the message.
        """
        self._checked().ack(self)

    async def nack(
        self, delay: timedelta | None = None, *, delay_level: int = 0, timeout_s: float | None = None
    ) -> None:
        """Acknowledge the message negatively: the broker redelivers it, as `Later` describes, after `delay` (rounded up
        to the next delay level, at most 2 h), or after its own time, which grows with each redelivery.

        If the broker does not take the message, this consumer delivers it again itself. Raises the errors of `ack`,
        InvalidArgument for a bad delay, and RequestTimeout after `timeout_s`; the message is then not acknowledged.
        """
        acknowledger, later = self._checked(), Later(delay_level, delay)
        check_timeout(timeout_s)
        async with within(timeout_s, "nack"):
            await acknowledger.nack(self, later)

    @asynccontextmanager
    async def process(self, delay: timedelta | None = None) -> AsyncIterator[Self]:
        """Acknowledge the message at the end of the block; if the block raises, acknowledge it negatively (with
        `delay`, see `nack`) and let the exception pass.

        If the block is canceled, this consumer delivers the message again. A block that acknowledges the message itself
        decides. Raises the errors of `ack`.
        """
        acknowledger, later = self._checked(), Later(delay=delay)
        acknowledger.check(self)
        try:
            yield self
        except asyncio.CancelledError:
            acknowledger.put_back(self)
            raise
        except Exception:
            if not self.finished:
                with suppress(ClientClosed):  # the consumer has stopped: another member receives the message
                    await acknowledger.nack(self, later)
            raise
        if not self.finished:
            acknowledger.ack(self)

    def finish(self) -> None:
        """Let the committed offset advance over this message. Part of the SDK: applications call `ack`."""
        self.finished = True
        self.tracker.finish(self.queue_offset)

    def _checked(self) -> Acknowledger:
        if self.acknowledger is None:
            raise InvalidMessage(
                f"message {self.msg_id} cannot be acknowledged by itself: the result of the handler, or the commit of "
                "the PullConsumer, does that",
                topic=self.topic,
            )
        return self.acknowledger


def checked_deserializer(deserializer: Deserializer | None) -> Deserializer | None:
    """Return the deserializer. Raises InvalidArgument if it cannot be called."""
    if deserializer is not None:
        check_callable("deserializer", deserializer)
    return deserializer


def prepare(
    message: ReceivedMessage, deserializer: Deserializer | None, acknowledger: Acknowledger | None = None
) -> ReceivedMessage:
    """Return the message, ready for the application. Raises InvalidBody if its body cannot be read."""
    if message.error is not None:
        raise message.error.with_traceback(None)
    message.acknowledger = acknowledger
    if deserializer is None:
        return message
    try:
        message.deserialized = deserializer(message.body)
    except Exception as error:
        reason = f"the deserializer failed: {type(error).__name__}: {error}"
        raise InvalidBody(f"{place_of(message)}: {reason}", topic=message.topic) from error
    return message


def received(message: MessageExt, tracker: OffsetTracker) -> ReceivedMessage:
    """Return a copy of a message, with this tracker."""
    fields: dict[str, Any] = {name: getattr(message, name) for name in MessageExt.__struct_fields__}
    return ReceivedMessage(**fields, tracker=tracker)
