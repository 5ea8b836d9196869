"""Dispatches messages to handlers: many at a time, or, in an orderly group, one of each queue.

    concurrent   take a message -> handler -> acknowledge    a failure -> send the message back -> acknowledge
    orderly      take an inbox  -> handler -> acknowledge    a failure -> the inbox pauses, then the same message again

A failure is an exception, a `Later`, any other result but None, or a body that cannot be read. Concurrent calls have a
time limit (clients/sdk/consuming/handler_calls.py); a message that exceeds it has failed.

A message that cannot be sent back is handled again here, after a pause that doubles. A broadcast message is never
redelivered: its failure is logged. An orderly message that failed `max_reconsume_times` times is sent to the retry
topic, which brokers turn into a dead letter for an orderly group; then the queue goes on. `reconsume_times` of the
message is incremented in all cases.

The result for a message whose queue was revoked meanwhile has no effect: the message belongs to another member.
"""

import asyncio
import logging
from typing import Final, Protocol

from skylarkmq.clients.sdk.base.errors import ClientError, InvalidBody
from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.connection.background_tasks import Background
from skylarkmq.clients.sdk.consuming.acknowledgment import Acknowledgment
from skylarkmq.clients.sdk.consuming.handler_calls import HandlerCalls, InvalidResult, invalid_result
from skylarkmq.clients.sdk.consuming.handlers import MessageHandler
from skylarkmq.clients.sdk.consuming.later import LATER, Later
from skylarkmq.clients.sdk.consuming.message_buffer import MessageBuffer
from skylarkmq.clients.sdk.consuming.queue_inboxes import QueueInbox, QueueInboxes
from skylarkmq.clients.sdk.consuming.queue_locks import QueueLocks
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage
from skylarkmq.clients.sdk.consuming.send_back import SendBack
from skylarkmq.clients.sdk.telemetry.hooks import Hooks, ObservedProcess
from skylarkmq.protocol.message import MessageExt

UNLOCKED_PAUSE_S: Final = 0.1
ORDERLY_PAUSE_MIN_S: Final = 0.01
FAILED: Final = "handler failed msg_id=%s"

log = logging.getLogger(__name__)


class Handling(Protocol):
    """Calls the handler. `handled` and `failed` are totals."""

    handled: int

    @property
    def failed(self) -> int:
        """The number of failures."""

    async def work(self) -> None:
        """Handle one message after the other, until the consumer stops."""


def observed(
    handler: MessageHandler, hooks: Hooks, group: str, client_id: str, namespace: str = "", *, broadcast: bool = False
) -> MessageHandler:
    """Return the handler with the `processing` hook around each call."""

    async def handle(message: ReceivedMessage) -> Later | None:
        process = ObservedProcess(message, group, client_id, namespace, broadcast)
        with hooks.processing(process):
            result = await handler(message)
            if result is not None and type(result) is not Later:
                raise invalid_result(result)
            process.succeeded = result is None
            return result

    return handle


class ConcurrentHandling:
    """Handles messages in any order, up to `concurrency` at a time."""

    def __init__(self, calls: HandlerCalls, buffer: MessageBuffer, acknowledgment: Acknowledgment) -> None:
        self.handled = 0
        self._calls = calls
        self._buffer = buffer
        self._acknowledgment = acknowledgment

    def __repr__(self) -> str:
        return f"<ConcurrentHandling handled={self.handled} failed={self.failed}>"

    @property
    def failed(self) -> int:
        """The number of failures."""
        return self._acknowledgment.failed

    async def work(self) -> None:
        """Handle one message after the other, until the buffer is closed."""
        buffer, call, task = self._buffer, self._calls.call, asyncio.current_task()
        while (message := buffer.take_nowait() or await buffer.take()) is not None:
            later = LATER
            try:
                result = await call(message, task)
            except (InvalidBody, InvalidResult) as error:
                log_rejected(message, error)
            except Exception:
                log.warning(FAILED, message.msg_id, exc_info=True)
            else:
                if result is None:
                    self.handled += 1
                    message.finish()
                    continue
                later = result
            await self._acknowledgment.failure(message, later)


class OrderlyHandling:
    """Handles the messages of each queue one by one. `max_reconsume_times` None: until each one succeeds."""

    def __init__(
        self,
        calls: HandlerCalls,
        inboxes: QueueInboxes,
        locks: QueueLocks,
        send_back: SendBack,
        settings: ConsumerSettings,
    ) -> None:
        self.handled = 0
        self._failed = 0
        self._calls = calls
        self._inboxes = inboxes
        self._locks = locks
        self._send_back = send_back
        self._settings = settings

    def __repr__(self) -> str:
        return f"<OrderlyHandling handled={self.handled} failed={self.failed}>"

    @property
    def failed(self) -> int:
        """The number of failures."""
        return self._failed

    async def work(self) -> None:
        """Handle one message after the other, until the inboxes are closed."""
        inboxes = self._inboxes
        while (inbox := await inboxes.take()) is not None:
            pause_s = UNLOCKED_PAUSE_S
            try:
                if self._locks.holds(inbox.tracker.queue):
                    pause_s = await self._handle_first(inbox)
                else:
                    self._locks.on_stale()
            finally:
                inboxes.put_back(inbox, pause_s)

    async def _handle_first(self, inbox: QueueInbox) -> float:
        """Handle the first message. Return how long the inbox pauses, in seconds."""
        message = inbox.messages[0]
        if not await self._succeeds(message):
            self._failed += 1
            if not inbox.tracker.dropped and not await self._is_given_up(message):
                message.reconsume_times += 1
                return max(self._settings.suspend_pause_s, ORDERLY_PAUSE_MIN_S)
        self._inboxes.finish_first(inbox)
        return 0.0

    async def _succeeds(self, message: ReceivedMessage) -> bool:
        try:
            result = await self._calls.call(message)
        except (InvalidBody, InvalidResult) as error:
            log_rejected(message, error)
            return False
        except Exception:
            log.warning(FAILED, message.msg_id, exc_info=True)
            return False
        if result is not None:
            return False
        self.handled += 1
        return True

    async def _is_given_up(self, message: MessageExt) -> bool:
        """Send a message that failed too often to the retry topic. Return False if it is to be handled again."""
        limit = self._settings.max_reconsume_times
        if limit is None or message.reconsume_times < limit:
            return False
        return await self._send_back.resend(message, message.reconsume_times + 1)


class Workers:
    """The tasks that call the handler: `concurrency` of them."""

    def __init__(self, group: str, settings: ConsumerSettings) -> None:
        self._background = Background(group)
        self._settings = settings
        self._working: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<Workers {len(self._working)}>"

    def start(self, handling: Handling, calls: HandlerCalls) -> None:
        """Begin to handle messages, and to cancel calls that exceed the limit."""
        if calls.limit_s is not None:
            self._background.repeat("limit", calls.enforce, calls.limit_s)
        for n in range(self._settings.concurrency):
            self._working.append(self._background.spawn(f"work/{n}", handling.work()))

    async def stop(self) -> None:
        """Wait for the running calls, once there are no more messages; cancel those that exceed `stop_timeout_s`."""
        try:
            if self._working:
                _, running = await asyncio.wait(self._working, timeout=self._settings.stop_timeout_s)
                if running:
                    log.warning("handlers canceled, they did not finish in time handlers=%d", len(running))
        finally:
            await self._background.stop()


def log_rejected(message: MessageExt, error: ClientError) -> None:
    """Log a message whose body cannot be read, or for which the handler returned an invalid result."""
    log.error("message not acknowledged msg_id=%s error=%s", message.msg_id, error)
