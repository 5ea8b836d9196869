"""Messages into calls of a handler: many at a time, or, in an orderly group, one of each queue.

    concurrent   take a message -> handler -> finish          LATER or an exception -> send it back -> finish
    orderly      take a lane    -> handler -> finish          LATER or an exception -> the lane rests, the same again

A concurrent call has a limit (clients/consuming/handler_calls.py); beyond it the message has failed.
What cannot be sent back comes again here, after a pause that doubles. Broadcast messages never come again: the failure
is logged, and that is all. An orderly message that failed `max_reconsume_times` goes to the retry topic, which for an
orderly group means the dead letters; then the queue goes on. `reconsume_times` of the message counts in all cases.

A message whose queue was given up meanwhile is not this member's any more: nothing follows from how it ended.
"""

import asyncio
import logging
from typing import Final, Protocol

from skylarkmq.clients.connection.background_tasks import Background
from skylarkmq.clients.consuming.handler_calls import HandlerCalls, MessageHandler
from skylarkmq.clients.consuming.message_buffer import Delivery, Inbox
from skylarkmq.clients.consuming.offset_tracker import Progress
from skylarkmq.clients.consuming.queue_inboxes import Lane, Lanes
from skylarkmq.clients.consuming.queue_locks import QueueLocks
from skylarkmq.clients.consuming.send_back import LATER, Later, SendBack
from skylarkmq.clients.hooks import Hooks, ObservedProcess
from skylarkmq.clients.settings import ConsumerSettings
from skylarkmq.protocol.message import MessageExt

UNLOCKED_PAUSE_S: Final = 0.1
ORDERLY_PAUSE_MIN_S: Final = 0.01
FAILED: Final = "handler failed msg_id=%s"

log = logging.getLogger(__name__)


class Handling(Protocol):
    """What calls the handler; `handled` and `failed` are totals."""

    handled: int
    failed: int

    async def work(self) -> None:
        """Handle one message after the other, until there will be no more."""


def observed(
    handler: MessageHandler, hooks: Hooks, group: str, client_id: str, namespace: str = "", *, broadcast: bool = False
) -> MessageHandler:
    """The handler with hooks around each call."""

    async def handle(message: MessageExt) -> object:
        process = ObservedProcess(message, group, client_id, namespace, broadcast)
        with hooks.processing(process):
            result = await handler(message)
            process.succeeded = not isinstance(result, Later)
            return result

    return handle


class ConcurrentHandling:
    """`send_back` None: a broadcasting consumer."""

    def __init__(
        self, calls: HandlerCalls, inbox: Inbox, send_back: SendBack | None, settings: ConsumerSettings
    ) -> None:
        self.handled = self.failed = 0
        self._calls = calls
        self._inbox = inbox
        self._send_back = send_back
        self._settings = settings

    def __repr__(self) -> str:
        return f"<ConcurrentHandling handled={self.handled} failed={self.failed}>"

    async def work(self) -> None:
        inbox, call, task = self._inbox, self._calls.call, asyncio.current_task()
        while (delivery := inbox.take_nowait() or await inbox.take()) is not None:
            later = LATER
            try:
                result = await call(delivery.message, delivery.progress, task)
            except Exception:
                log.warning(FAILED, delivery.message.msg_id, exc_info=True)
            else:
                if type(result) is not Later:
                    self.handled += 1
                    delivery.finish()
                    continue
                later = result
            await self._failed(delivery, later)

    async def _failed(self, delivery: Delivery, later: Later) -> None:
        self.failed += 1
        if delivery.progress.dropped:
            return
        if self._send_back is None or await self._send_back.back(delivery, later.delay_level):
            delivery.finish()
        else:
            self._again(delivery)

    def _again(self, delivery: Delivery) -> None:
        settings = self._settings
        pause_s = min(settings.retry_pause_s * (1 << min(delivery.failures, 16)), settings.retry_pause_max_s)
        delivery.failures += 1
        delivery.message.reconsume_times += 1
        asyncio.get_running_loop().call_later(pause_s, self._inbox.put_back, delivery)


class OrderlyHandling:
    """`max_reconsume_times` None: a message is tried until it succeeds."""

    def __init__(
        self,
        calls: HandlerCalls,
        lanes: Lanes,
        locks: QueueLocks,
        send_back: SendBack,
        settings: ConsumerSettings,
    ) -> None:
        self.handled = self.failed = 0
        self._calls = calls
        self._lanes = lanes
        self._locks = locks
        self._send_back = send_back
        self._settings = settings

    def __repr__(self) -> str:
        return f"<OrderlyHandling handled={self.handled} failed={self.failed}>"

    async def work(self) -> None:
        lanes = self._lanes
        while (lane := await lanes.take()) is not None:
            pause_s = UNLOCKED_PAUSE_S
            try:
                if self._locks.holds(lane.progress.queue):
                    pause_s = await self._first_of(lane)
                else:
                    self._locks.on_stale()
            finally:
                lanes.give_back(lane, pause_s)

    async def _first_of(self, lane: Lane) -> float:
        """Work on the first message; returns how long the lane rests, in seconds."""
        message = lane.deliveries[0].message
        if not await self._succeeds(message, lane.progress):
            self.failed += 1
            if not lane.progress.dropped and not await self._is_given_up(message):
                message.reconsume_times += 1
                return max(self._settings.suspend_pause_s, ORDERLY_PAUSE_MIN_S)
        self._lanes.finish_first(lane)
        return 0.0

    async def _succeeds(self, message: MessageExt, progress: Progress) -> bool:
        try:
            result = await self._calls.call(message, progress)
        except Exception:
            log.warning(FAILED, message.msg_id, exc_info=True)
            return False
        if type(result) is Later:
            return False
        self.handled += 1
        return True

    async def _is_given_up(self, message: MessageExt) -> bool:
        """Send a message that failed too often to where it is in nobody's way."""
        limit = self._settings.max_reconsume_times
        if limit is None or message.reconsume_times < limit:
            return False
        return await self._send_back.resend(message, message.reconsume_times + 1)


class Workers:
    """So many calls at a time."""

    def __init__(self, group: str, settings: ConsumerSettings) -> None:
        self._background = Background(group)
        self._settings = settings
        self._working: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<Workers {len(self._working)}>"

    def start(self, handling: Handling, calls: HandlerCalls) -> None:
        """Begin to take messages, and to cancel calls that take too long."""
        if calls.limit_s is not None:
            self._background.repeat("limit", calls.enforce, calls.limit_s)
        for n in range(self._settings.concurrency):
            self._working.append(self._background.spawn(f"work/{n}", handling.work()))

    async def stop(self) -> None:
        """Wait for what runs, when there is nothing more to take; what takes too long is cancelled."""
        try:
            if self._working:
                _, running = await asyncio.wait(self._working, timeout=self._settings.stop_timeout_s)
                if running:
                    log.warning("handlers cancelled, they did not finish in time handlers=%d", len(running))
        finally:
            await self._background.stop()
