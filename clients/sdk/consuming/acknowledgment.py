"""What becomes of a message once the application is done with it.

    ack     the message is finished: the committed offset may advance over it
    nack    the message is sent back (CONSUMER_SEND_MSG_BACK, 36), and its broker redelivers it later. If the broker
            does not take it, this consumer delivers it again itself, after a pause that doubles with each failure

A broadcasting consumer sends nothing back: a negatively acknowledged message is finished there. A message of a queue
that was revoked belongs to another member: neither call has an effect on it.
"""

import asyncio

from skylarkmq.clients.sdk.base.errors import ClientClosed, InvalidMessage
from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.consuming.later import Later
from skylarkmq.clients.sdk.consuming.message_buffer import MessageBuffer
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage
from skylarkmq.clients.sdk.consuming.send_back import SendBack


class Acknowledgment:
    """Finishes the messages of one consumer. `send_back` None: the consumer broadcasts. `failed` is a total."""

    def __init__(self, buffer: MessageBuffer, send_back: SendBack | None, settings: ConsumerSettings) -> None:
        self.failed = 0
        self._buffer = buffer
        self._send_back = send_back
        self._settings = settings
        self._closed = False

    def __repr__(self) -> str:
        return f"<Acknowledgment failed={self.failed}>"

    def check(self, message: ReceivedMessage) -> None:
        """Raise the errors of `ack`."""
        if message.finished:
            raise InvalidMessage(f"message {message.msg_id} is acknowledged already", topic=message.topic)
        if self._closed:
            raise ClientClosed(
                f"message {message.msg_id} is not acknowledged: its consumer has stopped, so it is redelivered",
                topic=message.topic,
            )

    def ack(self, message: ReceivedMessage) -> None:
        """Finish a message. Raises InvalidMessage if it is finished already, ClientClosed after the consumer's stop."""
        self.check(message)
        message.finish()

    async def nack(self, message: ReceivedMessage, later: Later) -> None:
        """Send a message back to its broker, to be redelivered as `later` describes. Raises the errors of `ack`."""
        self.check(message)
        await self.failure(message, later)

    async def failure(self, message: ReceivedMessage, later: Later) -> None:
        """As `nack`, also while the consumer stops: for messages that a handler could not finish."""
        self.failed += 1
        if message.tracker.dropped:
            message.finished = True
            return
        message.finished = True  # nothing else may finish it while the request is under way
        is_back = False
        try:
            is_back = self._send_back is None or await self._send_back.back(message, later.level)
        finally:
            if is_back:
                message.finish()
            else:
                message.finished = False
        if not is_back:
            self._again(message)

    def put_back(self, message: ReceivedMessage) -> None:
        """Deliver a message again, next, unless it is finished."""
        if not message.finished:
            self._buffer.put_back(message)

    def close(self) -> None:
        """Raise ClientClosed from now on: offsets are committed, and a later acknowledgment would be lost."""
        self._closed = True

    def _again(self, message: ReceivedMessage) -> None:
        settings = self._settings
        pause_s = min(settings.retry_pause_s * (1 << min(message.failures, 16)), settings.retry_pause_max_s)
        message.failures += 1
        message.reconsume_times += 1
        asyncio.get_running_loop().call_later(pause_s, self._buffer.put_back, message)
