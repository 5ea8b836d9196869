"""Sending messages.

    send / send_nowait / send_oneway / send_batch / request
        -> outgoing.prepare     checks, compression, UNIQ_KEY, property string
        -> Sends.begin          route: known, asked for, or that of the template topic
                                queue: given, by message group, or the next in turn
        -> SendTemplate.frame   -> Connection.ask -> answer -> SendResult

Sends do not wait for each other: any number of coroutines may be inside `send`, their requests leave in one write per
turn of the loop, and answers come as they come. `send_nowait` gives a future instead. What
follows a failed attempt is told in clients/sends.py.

A message may be delivered later: `delay_level` is one of the broker's levels (1 to 18: 1 s to 2 h), which every version
of RocketMQ has; `delay` and `deliver_at` are arbitrary times up to some days ahead, which 4.9 ignores.
"""

import asyncio
import os
import ssl
import time
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from clients.client import Client
from clients.errors import ClientClosed, RequestTimeout
from clients.hooks import Hooks
from clients.outgoing import Outgoing, prepare, prepare_batches, scheduled
from clients.participant import Participant
from clients.sends import SendResult, Sends
from clients.settings import ProducerSettings, TlsSettings
from protocol.bodies.message_queue import MessageQueue
from protocol.message import Message, MessageExt, PropertyName, check_group_name
from protocol.message_id import UniqueIds


class ProducerStatistics(msgspec.Struct, frozen=True):
    """A producer at one moment; totals since its start."""

    group: str
    sent: int
    retried: int
    failed: int


class Producer(Participant):
    """Sends messages in the name of a group. `async with Producer("group", namesrv="host:9876") as producer: ...`

    Give either `namesrv` (`host:port;host:port`), and `tls` if it is not to be plain, or a started `client` to share.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        client: Client | None = None,
        tls: TlsSettings | ssl.SSLContext | None = None,
        settings: ProducerSettings | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        check_group_name(group)
        self.group = group
        super().__init__(namesrv, client, tls)
        self._settings = settings or ProducerSettings()
        self._ids = UniqueIds(self.client.ip, os.getpid(), time.time_ns() & 0xFFFF_FFFF)
        self._sends = Sends(group, self.client, self._settings)
        self._hooks = hooks
        self._running = False

    def __repr__(self) -> str:
        return f"<Producer {self.group} sent={self._sends.sent} {'running' if self._running else 'stopped'}>"

    def statistics(self) -> ProducerStatistics:
        """The producer's figures now."""
        return ProducerStatistics(self.group, self._sends.sent, self._sends.retried, self._sends.failed)

    async def _join(self) -> None:
        self.client.join_as_producer(self.group)
        self._sends.start()
        self._running = True

    async def _leave(self) -> None:
        self._running = False
        await self._sends.finish()
        await self.client.leave_as_producer(self.group)

    # --------------------------------------------------------------------------------------------------------- sends

    async def send(
        self,
        message: Message,
        *,
        message_group: str | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        delay_level: int | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send one message and return where it is stored.

        Messages of one `message_group` go to one queue, in the order in which they are sent. `delay`, `deliver_at` or
        `delay_level` says when it is delivered, at once otherwise. InvalidMessage, NoRoute, BrokerError,
        RequestTimeout, ConnectFailed, ConnectionLost; ValueError for a time that is none.
        """
        if delay is not None or deliver_at is not None or delay_level is not None:
            message = scheduled(message, delay, deliver_at, delay_level)
        if self._hooks is not None:
            return await self._send_observed(self._hooks, message, message_group, queue, timeout_s)
        outgoing = self._prepare(message, message_group)
        return await self._sends.begin(outgoing, message_group, queue, timeout_s or self._settings.send_timeout_s)

    def send_nowait(self, message: Message, *, message_group: str | None = None) -> "asyncio.Future[SendResult]":
        """As `send`, begun at once: the future holds its result. Nothing limits how many are begun, and hooks hear of
        none.
        """
        outgoing = self._prepare(message, message_group)
        return self._sends.begin(outgoing, message_group, None, self._settings.send_timeout_s)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        message_group: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as the size limit allows: one result for each.

        The messages of a request go to consecutive places of one queue. Errors as of `send`: the first that came; other
        requests of the same batch may have succeeded.
        """
        self._check_running()
        begin, timeout_s = self._sends.begin, timeout_s or self._settings.send_timeout_s
        batches = prepare_batches(messages, self._ids, now_ms(), self._settings)
        sendings = [begin(outgoing, message_group, queue, timeout_s) for outgoing in batches]
        return list(await asyncio.gather(*sendings))

    async def send_oneway(
        self, message: Message, *, message_group: str | None = None, queue: MessageQueue | None = None
    ) -> None:
        """Send without an answer: done when it was handed to the transport, and lost without notice if it gets lost."""
        outgoing = self._prepare(message, message_group)
        await self._sends.oneway(outgoing, message_group, queue)

    async def request(
        self, message: Message, *, message_group: str | None = None, timeout_s: float | None = None
    ) -> MessageExt:
        """Send a message that a consumer answers (`PushConsumer.reply`), and return the reply.

        Errors as of `send`; RequestTimeout also if no reply came within `timeout_s`.
        """
        timeout_s = timeout_s or self._settings.send_timeout_s
        correlation_id = str(uuid.uuid4())
        asking = {
            PropertyName.CORRELATION_ID: correlation_id,
            PropertyName.REPLY_TO_CLIENT: self.client.client_id,
            PropertyName.TTL: str(int(timeout_s * 1000)),
        }
        message = msgspec.structs.replace(message, properties=message.properties | asking)
        reply = self.client.callbacks.replies.expect(correlation_id)
        try:
            async with asyncio.timeout(timeout_s):
                await self.send(message, message_group=message_group, timeout_s=timeout_s)
                return await reply
        except TimeoutError as error:
            raise RequestTimeout(
                f"nobody replied to the request to {message.topic} within {timeout_s:g} s. Check that a consumer of "
                "the topic replies, or allow more time.",
                topic=message.topic,
            ) from error
        finally:
            reply.cancel()

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages to `topic` may go to."""
        return (await self._sends.route(topic)).publish_queues

    async def _send_observed(
        self,
        hooks: Hooks,
        message: Message,
        message_group: str | None,
        queue: MessageQueue | None,
        timeout_s: float | None,
    ) -> SendResult:
        """As `send`, with hooks around it."""
        if message_group is not None:
            message = _grouped(message, message_group)
        with hooks.sending(message, self.client.client_id) as observed:
            outgoing = self._prepare(observed.message, None)
            timeout_s = timeout_s or self._settings.send_timeout_s
            observed.result = await self._sends.begin(outgoing, message_group, queue, timeout_s)
            return observed.result

    def _prepare(self, message: Message, message_group: str | None) -> Outgoing:
        self._check_running()
        if message_group is not None:
            message = _grouped(message, message_group)
        return prepare(message, self._ids, now_ms(), self._settings)

    def _check_running(self) -> None:
        if not self._running:
            raise ClientClosed(f"producer {self.group} is not running: use it inside `async with`, or call start()")


def _grouped(message: Message, message_group: str) -> Message:
    return msgspec.structs.replace(message, properties=message.properties | {PropertyName.SHARDING_KEY: message_group})


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000
