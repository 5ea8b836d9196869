"""The loop of an application over the messages of a consumer: `async for message in consumer`.

The loop has at most one message in hand. When the loop asks for the next message, the one in hand is acknowledged, if
the consumer acknowledges by itself. When the loop is left, by `break` or by an exception, the message in hand is put
back, unless it is acknowledged: the next loop receives it first.
"""

from collections.abc import Awaitable, Callable
from typing import Self

from skylarkmq.clients.sdk.consuming.message_buffer import MessageBuffer
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage

Take = Callable[[], Awaitable[ReceivedMessage | None]]
"""Returns the next message, as soon as there is one; None once the consumer has stopped."""


class MessageLoop:
    """An asynchronous iterator over the messages of one consumer. Several can run at a time."""

    def __init__(self, buffer: MessageBuffer, take: Take, *, acknowledges: bool) -> None:
        self._buffer = buffer
        self._take = take
        self._acknowledges = acknowledges
        self._in_hand: ReceivedMessage | None = None

    def __repr__(self) -> str:
        return f"<MessageLoop {self._buffer}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message, self._in_hand = self._in_hand, None
        if message is not None and self._acknowledges and not message.finished:
            message.finish()
        self._in_hand = following = await self._take()
        if following is None:
            raise StopAsyncIteration
        return following

    async def aclose(self) -> None:
        """Leave the loop."""
        self._leave()

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        message, self._in_hand = self._in_hand, None
        if message is not None and not message.finished:
            self._buffer.put_back(message)
