"""A consumer that is handed messages: by a loop, or by calls of a handler.

    async for message in consumer: ...            one at a time; a message is finished when the next is asked for
    PushConsumer("group", handler=handle, ...)    up to `concurrency` calls at a time; finished when a call returns

The members of a group share the queues (clustering). A queue's committed offset is its smallest message that is not
finished, so after a crash some messages come again; none is lost.

A handler that raises has not finished its message. The message comes again on this member, after a pause that doubles
(`retry_pause_s` to `retry_pause_max_s`), and the queue's offset does not pass it. `message.reconsume_times` counts.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime

import msgspec

from clients.background import Background
from clients.client import Client
from clients.group_member import ConsumeFrom, GroupMember, Role
from clients.inbox import Delivery, Inbox
from clients.participant import Participant
from clients.settings import ConsumerSettings, TlsSettings
from protocol.bodies.enums import ConsumeType
from protocol.bodies.message_queue import MessageQueue
from protocol.message import MessageExt

log = logging.getLogger(__name__)

MessageHandler = Callable[[MessageExt], Awaitable[object]]


class ConsumerStatistics(msgspec.Struct, frozen=True):
    """A consumer at one moment; `handled` and `failed` are totals since its start."""

    group: str
    queues: tuple[MessageQueue, ...]
    waiting: int
    unfinished: int
    handled: int
    failed: int


class PushConsumer(Participant):
    """A member of `group`. Give either `namesrv` (`host:port;host:port`), and `tls` if it is not to be plain, or a
    started `client` of its own.

    Reading begins with the first subscription. `stop` lets running handlers finish (at most `stop_timeout_s`), and
    commits; loops over messages end.

    `consume_from` counts for queues of which the group has no committed offset; a time means what was stored since.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        client: Client | None = None,
        tls: TlsSettings | ssl.SSLContext | None = None,
        handler: MessageHandler | None = None,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        settings: ConsumerSettings | None = None,
    ) -> None:
        super().__init__(namesrv, client, tls)
        self._settings = settings or ConsumerSettings()
        self._handler = handler
        self._inbox = Inbox()
        role = Role(ConsumeType.CONSUME_PASSIVELY, consume_from, retries=True)
        self._member = GroupMember(self.client, group, role, self._settings, self._inbox)
        self._workers = Background(group)
        self._working: list[asyncio.Task[None]] = []
        self._handled = self._failed = 0

    def __repr__(self) -> str:
        return f"<PushConsumer {self._member}>"

    def statistics(self) -> ConsumerStatistics:
        """The consumer's figures now."""
        owned = self._member.owned
        return ConsumerStatistics(
            group=self._member.group,
            queues=owned.queues(),
            waiting=len(self._inbox),
            unfinished=owned.unfinished(),
            handled=self._handled,
            failed=self._failed,
        )

    async def _join(self) -> None:
        await self._member.start()
        if self._handler is not None:
            for n in range(self._settings.concurrency):
                self._working.append(self._workers.spawn(f"work/{n}", self._work(self._handler)))

    async def _leave(self) -> None:
        self._inbox.close()
        await self._member.stop_reading()
        if self._working:
            _, running = await asyncio.wait(self._working, timeout=self._settings.stop_timeout_s)
            if running:
                log.warning("handlers cancelled, they did not finish in time handlers=%d", len(running))
        await self._workers.stop()
        await self._member.leave()

    async def subscribe(self, topic: str, expression: str = "*") -> None:
        """Read `topic` from now on: every message, or those with one of the tags in `expression` (`a || b`)."""
        await self._member.subscribe(topic, expression)

    async def unsubscribe(self, topic: str) -> None:
        """Read `topic` no more."""
        await self._member.unsubscribe(topic)

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        return self._inbox.iterate()

    async def _work(self, handler: MessageHandler) -> None:
        while (delivery := await self._inbox.take()) is not None:
            try:
                await handler(delivery.message)
            except Exception:
                log.warning("handler failed, its message comes again msg_id=%s", delivery.message.msg_id, exc_info=True)
                self._again(delivery)
            else:
                self._handled += 1
                delivery.finish()

    def _again(self, delivery: Delivery) -> None:
        settings = self._settings
        pause_s = min(settings.retry_pause_s * (1 << min(delivery.failures, 16)), settings.retry_pause_max_s)
        self._failed += 1
        delivery.failures += 1
        delivery.message.reconsume_times += 1
        asyncio.get_running_loop().call_later(pause_s, self._inbox.put_back, delivery)
