"""Messages and callbacks of `skylarkmq.blocking`: the same as in the asyncio classes, with calls that block."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Self

from skylarkmq.clients.sdk.base.arguments import check_callable
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.sdk.consuming import received_message
from skylarkmq.clients.sdk.consuming.options import ConsumerOptions
from skylarkmq.clients.sdk.consuming.rebalance_callbacks import QueuesCallback
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import MessageExt


class ReceivedMessage(MessageExt, eq=False):
    """`skylarkmq.ReceivedMessage`, blocking: `with message.process():`, `message.ack()`, `message.nack()`."""

    value: Any
    _original: received_message.ReceivedMessage

    def __repr__(self) -> str:
        return f"<Blocking {self._original!r}>"

    @property
    def is_acknowledged(self) -> bool:
        """Whether the message is acknowledged, positively or negatively."""
        return self._original.is_acknowledged

    def ack(self) -> None:
        """Acknowledge the message. Errors: see `skylarkmq.ReceivedMessage.ack`."""
        run(self._original.ack())

    def nack(self, delay: timedelta | None = None, *, delay_level: int = 0, timeout_s: float | None = None) -> None:
        """Acknowledge the message negatively. Arguments and errors: see `skylarkmq.ReceivedMessage.nack`."""
        run(self._original.nack(delay, delay_level=delay_level, timeout_s=timeout_s))

    @contextmanager
    def process(self, delay: timedelta | None = None) -> Iterator[Self]:
        """Acknowledge the message at the end of the block; if the block raises, acknowledge it negatively and let the
        exception pass. Errors: see `skylarkmq.ReceivedMessage.process`.
        """
        process = self._original.process(delay)
        run(process.__aenter__())
        try:
            yield self
        except Exception as error:
            run(process.__aexit__(type(error), error, error.__traceback__))
            raise
        run(process.__aexit__(None, None, None))


def blocking_message(original: received_message.ReceivedMessage) -> ReceivedMessage:
    """Return the message with calls that block."""
    fields: dict[str, Any] = {name: getattr(original, name) for name in MessageExt.__struct_fields__}
    return ReceivedMessage(**fields, value=original.value, _original=original)


def callbacks_in_threads(options: ConsumerOptions) -> None:
    """Run the rebalance callbacks of the options in threads, if they are plain functions: there they may block.

    Raises InvalidArgument if one of them is no function.
    """
    if (on_assigned := options.get("on_assigned")) is not None:
        check_callable("on_assigned", on_assigned)
        options["on_assigned"] = _in_thread(on_assigned)
    if (on_revoked := options.get("on_revoked")) is not None:
        check_callable("on_revoked", on_revoked)
        options["on_revoked"] = _in_thread(on_revoked)


def _in_thread(callback: QueuesCallback) -> QueuesCallback:
    async def call(queues: Sequence[MessageQueue]) -> None:
        pending = await asyncio.to_thread(callback, queues)
        if pending is not None:
            await pending

    return call
