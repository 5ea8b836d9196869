"""Sending messages.

    send / send_nowait / send_oneway / send_batch / request
        -> outgoing.prepare     checks, compression, UNIQ_KEY, property string
        -> Sends.begin          route: known, asked for, or that of the template topic
                                queue: given, by message group, or the next in turn
        -> SendTemplate.frame   -> Connection.ask -> answer -> SendResult

Sends do not wait for each other: any number of coroutines may be inside `send`, their requests leave in one write per
turn of the loop, and answers come as they come. `send_nowait` gives a future instead. What
follows a failed attempt is told in clients/producing/sends.py.

A message may be delivered later: `delay_level` is one of the broker's levels (1 to 18: 1 s to 2 h), which every version
of RocketMQ has; `delay` and `deliver_at` are arbitrary times up to some days ahead, which 4.9 ignores.
"""

import asyncio
import time
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Unpack

import msgspec

from skylarkmq.clients.arguments import check_group
from skylarkmq.clients.connection.client import unique_ids
from skylarkmq.clients.connection.participant import Participant
from skylarkmq.clients.errors import ClientClosed, RequestTimeout
from skylarkmq.clients.hooks import Observer, joined
from skylarkmq.clients.namespaces import Namespace
from skylarkmq.clients.options import StandaloneProducerOptions, check_options
from skylarkmq.clients.producing.outgoing_message import prepare, prepare_batches, scheduled
from skylarkmq.clients.producing.recalls import recall
from skylarkmq.clients.producing.sends import SendResult, Sends
from skylarkmq.clients.settings import ProducerSettings
from skylarkmq.clients.tracing import Tracing
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import Message, MessageExt, PropertyName


class ProducerStatistics(msgspec.Struct, frozen=True):
    """A producer at one moment; totals since its start."""

    group: str
    sent: int
    retried: int
    failed: int


class Producer(Participant):
    """Sends messages in the name of a group. `async with Producer("group", namesrv="host:9876") as producer: ...`

    The options are those of `StandaloneProducerOptions` (clients/options.py). The attribute `group` is the name that
    brokers know, with its namespace. InvalidArgument if a name or an option is invalid.
    """

    def __init__(self, group: str, **options: Unpack[StandaloneProducerOptions]) -> None:
        check_options(options, StandaloneProducerOptions, type(self).__name__)
        check_group(group)
        namespace = options.get("namespace", "")
        self._namespace = Namespace(namespace)
        self.group = self._namespace.wrap(group)
        super().__init__(options)
        self._settings = options.get("settings") or ProducerSettings()
        self._ids = unique_ids(self.client)
        self._sends = Sends(self.group, self.client, self._settings, self._namespace)
        self._tracing = Tracing(self.client, self.group, self._ids, self._namespace) if options.get("trace") else None
        hooks = joined(options.get("hooks"), self._tracing)
        self._observe_connections(options.get("hooks"))
        self._observer = None if hooks is None else Observer(hooks, self.group, self.client.client_id, namespace)
        self._running = False

    def __repr__(self) -> str:
        return f"<Producer {self.group} sent={self._sends.sent} {'running' if self._running else 'stopped'}>"

    def statistics(self) -> ProducerStatistics:
        """The producer's figures now."""
        return ProducerStatistics(self.group, self._sends.sent, self._sends.retried, self._sends.failed)

    async def _join(self) -> None:
        self.client.join_as_producer(self.group)
        self._sends.start()
        if self._tracing is not None:
            self._sends.heard = self._tracing.heard
            self._tracing.start()
        self._running = True

    async def _leave(self) -> None:
        self._running = False
        try:
            await self._sends.finish()
        finally:
            if self._tracing is not None:
                await self._tracing.stop()
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
        return await self._begin(message, message_group, queue, timeout_s)

    def send_nowait(self, message: Message, *, message_group: str | None = None) -> "asyncio.Future[SendResult]":
        """As `send`, begun at once: the future holds its result. Nothing limits how many are begun."""
        return self._begin(message, message_group)

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

        def begin(messages: Sequence[Message]) -> "asyncio.Future[list[SendResult]]":
            batches = prepare_batches(self._addressed(messages), self._ids, now_ms(), self._settings)
            target, limit_s = self._target(queue), timeout_s or self._settings.send_timeout_s
            return asyncio.gather(*[self._sends.begin(each, message_group, target, limit_s) for each in batches])

        if self._observer is None or not messages:
            return await begin(messages)
        return await self._observer.around(list(messages), begin)

    async def send_oneway(
        self, message: Message, *, message_group: str | None = None, queue: MessageQueue | None = None
    ) -> None:
        """Send without an answer: done when it was handed to the transport, and lost without notice if it gets lost."""
        self._check_running()
        if message_group is not None:
            message = _grouped(message, message_group)

        async def send(messages: Sequence[Message]) -> None:
            (addressed,) = self._addressed(messages)
            outgoing = prepare(addressed, self._ids, now_ms(), self._settings)
            await self._sends.oneway(outgoing, message_group, self._target(queue))

        if self._observer is None:
            await send((message,))
        else:
            await self._observer.around([message], lambda messages: asyncio.ensure_future(send(messages)), oneway=True)

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
        self._check_process()
        queues = (await self._sends.route(self._namespace.wrap(topic))).publish_queues
        return tuple(map(self._namespace.strip_queue, queues))

    async def recall(self, topic: str, handle: str, *, timeout_s: float | None = None) -> str:
        """Take back a message that waits for its time of delivery, by `SendResult.recall_handle`; returns its id.

        InvalidMessage if that is no handle of this topic; BrokerError if the broker does not allow it
        (`recallMessageEnable`), or the time has come; NoRoute and errors of the transport.
        """
        self._check_running()
        timeout_s = timeout_s or self._settings.send_timeout_s
        return await recall(self.client, self.group, self._namespace.wrap(topic), handle, timeout_s)

    def _begin(
        self,
        message: Message,
        message_group: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        sys_flag: int = 0,
    ) -> "asyncio.Future[SendResult]":
        """Begin to send one message, with what hooks there are around it."""
        if not self._running:
            self._check_running()
        if message_group is not None:
            message = _grouped(message, message_group)
        if self._observer is None:
            return self._begin_one(message, message_group, queue, timeout_s, sys_flag)
        return self._observer.around(
            [message], lambda messages: self._begin_one(messages[0], message_group, queue, timeout_s, sys_flag)
        )

    def _begin_one(
        self,
        message: Message,
        message_group: str | None,
        queue: MessageQueue | None,
        timeout_s: float | None,
        sys_flag: int,
    ) -> "asyncio.Future[SendResult]":
        if self._namespace.name:
            (message,), queue = self._addressed((message,)), self._target(queue)
        outgoing = prepare(message, self._ids, now_ms(), self._settings)
        if sys_flag:
            outgoing = msgspec.structs.replace(outgoing, sys_flag=outgoing.sys_flag | sys_flag)
        return self._sends.begin(outgoing, message_group, queue, timeout_s or self._settings.send_timeout_s)

    def _addressed(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages, to the topics as brokers know them."""
        if not self._namespace.name:
            return messages
        return [msgspec.structs.replace(each, topic=self._namespace.wrap(each.topic)) for each in messages]

    def _target(self, queue: MessageQueue | None) -> MessageQueue | None:
        return None if queue is None else self._namespace.wrap_queue(queue)

    def _forked(self) -> None:
        """As a participant's."""
        super()._forked()
        self._running = False

    def _check_running(self) -> None:
        self._check_process()
        if not self._running:
            raise ClientClosed(f"producer {self.group} is not running: use it inside `async with`, or call start()")


def _grouped(message: Message, message_group: str) -> Message:
    return msgspec.structs.replace(message, properties=message.properties | {PropertyName.SHARDING_KEY: message_group})


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000
