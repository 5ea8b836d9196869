"""Messages as the application receives them: with the deserialized value, and with their acknowledgement.

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
from typing import Any, Self

from skylarkmq.clients.connection.time_limit import time_limit
from skylarkmq.clients.consuming.acknowledgement import Acknowledgement
from skylarkmq.clients.consuming.later import Later
from skylarkmq.clients.consuming.message_buffer import Delivery
from skylarkmq.clients.consuming.stored_messages import place_of
from skylarkmq.clients.errors import ClientClosed, InvalidBody, InvalidMessage
from skylarkmq.protocol.message import MessageExt

Deserializer = Callable[[bytes], Any]
"""Turns a body into `ReceivedMessage.value`. A message for which it raises is handled like one that cannot be
inflated: it is not delivered, and sent back."""


class ReceivedMessage(MessageExt, eq=False):
    """A message with its acknowledgement. `value` is the result of the consumer's `deserializer`, without one the body.

    `body` is inflated, `topic` the one that the producer sent to. Times in ms, hosts as (ip, port).
    """

    value: Any
    _delivery: Delivery
    _acknowledgement: Acknowledgement | None

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.msg_id} {place_of(self)}{' acknowledged' if self.is_acknowledged else ''}>"

    @property
    def is_acknowledged(self) -> bool:
        """Whether the message is acknowledged, positively or negatively."""
        return self._delivery.finished

    async def ack(self) -> None:
        """Acknowledge the message: the committed offset may advance over it. Offsets are committed in the background.

        Raises InvalidMessage if it is acknowledged already, ClientClosed after the consumer's stop. Has no effect if
        the queue was revoked: another member receives the message.
        """
        self._checked().ack(self._delivery)

    async def nack(
        self, delay: timedelta | None = None, *, delay_level: int = 0, timeout_s: float | None = None
    ) -> None:
        """Acknowledge the message negatively: the broker redelivers it, as `Later` describes, after `delay` (rounded up
        to the next delay level, at most 2 h), or after its own time, which grows with each redelivery.

        If the broker does not take the message, this consumer delivers it again itself. Raises the errors of `ack`,
        InvalidArgument for a bad delay, and RequestTimeout after `timeout_s`; the message is then not acknowledged.
        """
        acknowledgement, later = self._checked(), Later(delay_level, delay)
        async with time_limit(timeout_s, "nack"):
            await acknowledgement.nack(self._delivery, later)

    @asynccontextmanager
    async def process(self, delay: timedelta | None = None) -> AsyncIterator[Self]:
        """Acknowledge the message at the end of the block; if the block raises, acknowledge it negatively (with
        `delay`, see `nack`) and let the exception pass.

        If the block is canceled, this consumer delivers the message again. A block that acknowledges the message itself
        decides. Raises the errors of `ack`.
        """
        acknowledgement, later = self._checked(), Later(delay=delay)
        acknowledgement.check(self._delivery)
        try:
            yield self
        except asyncio.CancelledError:
            acknowledgement.put_back(self._delivery)
            raise
        except Exception:
            if not self._delivery.finished:
                with suppress(ClientClosed):  # the consumer has stopped: another member receives the message
                    await acknowledgement.nack(self._delivery, later)
            raise
        if not self._delivery.finished:
            acknowledgement.ack(self._delivery)

    def _checked(self) -> Acknowledgement:
        if self._acknowledgement is None:
            raise InvalidMessage(
                f"message {self.msg_id} cannot be acknowledged by itself: the result of the handler, or the commit of "
                "the PullConsumer, does that",
                topic=self.topic,
            )
        return self._acknowledgement


def receive(
    delivery: Delivery, deserializer: Deserializer | None, acknowledgement: Acknowledgement | None = None
) -> ReceivedMessage:
    """Return the message of a delivery. Raises InvalidBody if its body cannot be inflated or deserialized."""
    if delivery.error is not None:
        raise delivery.error.with_traceback(None)
    stored = delivery.message
    value: Any = stored.body
    if deserializer is not None:
        try:
            value = deserializer(stored.body)
        except Exception as error:
            reason = f"the deserializer failed: {type(error).__name__}: {error}"
            raise InvalidBody(f"{place_of(stored)}: {reason}", topic=stored.topic) from error
    return ReceivedMessage(
        stored.topic,
        stored.queue_id,
        stored.queue_offset,
        stored.physical_offset,
        stored.body,
        stored.properties,
        stored.flag,
        stored.sys_flag,
        stored.born_timestamp,
        stored.born_host,
        stored.store_timestamp,
        stored.store_host,
        stored.reconsume_times,
        stored.prepared_transaction_offset,
        stored.body_crc,
        stored.size,
        value,
        delivery,
        acknowledgement,
    )
