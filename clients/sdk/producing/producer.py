"""Sending messages.

    send / send_nowait / send_oneway / send_batch / request
        -> Preparation          checks, compression, UNIQ_KEY, property string     (messages/outgoing_message.py)
        -> Sends.begin          route: known, requested, or the route of the template topic
                                queue: given, by message group, or round-robin     (sends.py)
        -> SendTemplate.frame   -> Connection.submit -> response -> SendResult

Sends do not wait for each other: any number of coroutines may be inside `send`. Their requests leave in one write per
event-loop iteration, and responses arrive in any order. `send_nowait` returns a future. The repetition of failed
attempts is described in clients/sdk/producing/sends.py.

A message may be delivered later: `delay_level` is one of the broker's levels (1 to 18: 1 s to 2 h), which every version
of RocketMQ supports; `delay` and `deliver_at` are arbitrary times up to some days ahead, which RocketMQ 4.9 ignores.
"""

import asyncio
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

import msgspec

from skylarkmq.clients.sdk.base.arguments import (
    check_callable,
    check_group,
    check_queue,
    check_timeout,
    check_type,
    settings_of,
)
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import ClientClosed, InvalidArgument, InvalidMessage, RequestTimeout
from skylarkmq.clients.sdk.base.namespaces import Namespace
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.base.timeouts import within
from skylarkmq.clients.sdk.connection.client import unique_ids
from skylarkmq.clients.sdk.connection.options import check_options, lists_options
from skylarkmq.clients.sdk.connection.participant import Participant
from skylarkmq.clients.sdk.messages.outgoing_message import (
    UNENCODABLE,
    Preparation,
    encoding,
    invalid_message,
    scheduled,
)
from skylarkmq.clients.sdk.messages.send_result import SendResult
from skylarkmq.clients.sdk.producing.options import StandaloneProducerOptions
from skylarkmq.clients.sdk.producing.recalls import recall
from skylarkmq.clients.sdk.producing.sends import Sends
from skylarkmq.clients.sdk.producing.tracing import Tracing
from skylarkmq.clients.sdk.telemetry.hooks import Observer, joined
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import Message, MessageExt, PropertyName


class ProducerStatistics(msgspec.Struct, frozen=True):
    """The figures of a producer; the counters are totals since its start."""

    group: str
    sent: int
    retried: int
    failed: int


class Producer(Participant):
    """Sends messages for a producer group. `async with mq.producer("group") as producer: ...`

    The options are described in `StandaloneProducerOptions` (`skylarkmq.options`). The attribute `group` is the full
    name, with its namespace. InvalidArgument if a name or an option is invalid.

    A `timeout_s` limits a whole call, with all its attempts; the default is `ProducerSettings.send_timeout_s` (3 s).
    """

    @lists_options
    def __init__(self, group: str, **options: Unpack[StandaloneProducerOptions]) -> None:
        check_options(options, StandaloneProducerOptions, type(self).__name__)
        check_group(group)
        namespace = options.get("namespace", "")
        self._namespace = Namespace(namespace)
        self.group = self._namespace.wrap(group)
        super().__init__(options)
        self._settings = settings_of(options.get("settings"), ProducerSettings)
        ids = unique_ids(self.client)
        self._preparation = Preparation(ids, self._settings, options.get("compression", "zlib"))
        self._serializer = options.get("serializer")
        if self._serializer is not None:
            check_callable("serializer", self._serializer)
        self._sends = Sends(self.group, self.client, self._settings, self._namespace)
        self._tracing = Tracing(self.client, self.group, ids, self._namespace) if options.get("trace") else None
        hooks = joined(options.get("hooks"), self._tracing)
        self._observe_connections(options.get("hooks"))
        self._observer = None if hooks is None else Observer(hooks, self.group, self.client.client_id, namespace)
        self._running = False

    def __repr__(self) -> str:
        return f"<Producer {self.group} sent={self._sends.sent} {'running' if self._running else 'stopped'}>"

    def statistics(self) -> ProducerStatistics:
        """Return the producer's figures now."""
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

    def message(
        self,
        topic: str,
        value: Any,
        *,
        tags: str = "",
        keys: Sequence[str] = (),
        properties: dict[str, str] | None = None,
    ) -> Message:
        """Return a message with the serialized value as its body.

        InvalidMessage if the producer has no `serializer`, or the serializer raises.
        """
        if self._serializer is None:
            raise InvalidMessage("this producer has no serializer=...: make a Message with bytes as its body")
        try:
            body = self._serializer(value)
        except Exception as error:
            raise InvalidMessage(f"the serializer failed: {error!r}", topic=topic) from error
        message = Message(topic, body, tags=tags, keys=keys)
        if properties is not None:
            with encoding(message):
                message = msgspec.structs.replace(message, properties=dict(properties))
        return message

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

        Messages of one `message_group` go to one queue, in the order in which they are sent; `queue` is one of the
        message's topic. `delay`, `deliver_at` or
        `delay_level` sets the time of delivery; default: at once. InvalidArgument, InvalidMessage, NoRoute,
        BrokerError, RequestTimeout, ConnectFailed, ConnectionLost.
        """
        if delay is not None or deliver_at is not None or delay_level is not None:
            message = scheduled(message, delay, deliver_at, delay_level)
        return await self._begin(message, message_group, queue, timeout_s)

    def send_nowait(
        self, message: Message, *, message_group: str | None = None, timeout_s: float | None = None
    ) -> "asyncio.Future[SendResult]":
        """Begin a send and return a future of its result. The number of unfinished sends is not limited."""
        return self._begin(message, message_group, None, timeout_s)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        message_group: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in as few requests as the size limit allows; return a result for each request.

        The messages of a request get consecutive offsets of one queue. Errors as of `send`: the first error is raised;
        other requests of the same batch may have succeeded.
        """
        self._check_running()
        check_timeout(timeout_s)
        with encoding(messages):
            messages = list(messages)

        def begin(messages: Sequence[Message]) -> "asyncio.Future[list[SendResult]]":
            with encoding(messages[0] if messages else None):
                addressed = self._addressed(messages)
                batches = self._preparation.batches(addressed, now_ms())
            limit_s = timeout_s or self._settings.send_timeout_s
            target = self._target(queue, addressed[0].topic) if batches else None
            return asyncio.gather(*[self._sends.begin(each, message_group, target, limit_s) for each in batches])

        if self._observer is None or not messages:
            return await begin(messages)
        return await self._observer.around(messages, begin)

    async def send_oneway(
        self,
        message: Message,
        *,
        message_group: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Send without a response. Returns when the request is passed to the transport; a later loss is not noticed."""
        self._check_running()
        check_timeout(timeout_s)
        if message_group is not None:
            message = _grouped(message, message_group)

        async def send(messages: Sequence[Message]) -> None:
            (addressed,) = self._addressed(messages)
            outgoing = self._preparation.one(addressed, now_ms())
            limit_s = timeout_s or self._settings.send_timeout_s
            await self._sends.oneway(outgoing, message_group, self._target(queue, addressed.topic), limit_s)

        if self._observer is None:
            await send((message,))
        else:
            await self._observer.around([message], lambda messages: asyncio.ensure_future(send(messages)), oneway=True)

    async def request(
        self, message: Message, *, message_group: str | None = None, timeout_s: float | None = None
    ) -> MessageExt:
        """Send a message that a consumer replies to (`PushConsumer.reply`), and return the reply.

        Errors as of `send`; RequestTimeout also if no reply arrives within `timeout_s`.
        """
        check_timeout(timeout_s)
        timeout_s = timeout_s or self._settings.send_timeout_s
        correlation_id = str(uuid.uuid4())
        asking = {
            PropertyName.CORRELATION_ID: correlation_id,
            PropertyName.REPLY_TO_CLIENT: self.client.client_id,
            PropertyName.TTL: str(int(timeout_s * 1000)),
        }
        with encoding(message):
            message = msgspec.structs.replace(message, properties=message.properties | asking)
        reply = self.client.callbacks.replies.expect(correlation_id)
        try:
            async with asyncio.timeout(timeout_s):
                await self.send(message, message_group=message_group, timeout_s=timeout_s)
                return await reply
        except TimeoutError as error:
            raise RequestTimeout(
                f"no reply to the request to {message.topic} within {timeout_s:g} s. Check that a consumer of the "
                "topic replies, or allow more time.",
                topic=message.topic,
            ) from error
        finally:
            reply.cancel()

    async def publish_queues(self, topic: str, *, timeout_s: float | None = None) -> tuple[MessageQueue, ...]:
        """Return the queues for messages to `topic`. InvalidMessage, NoRoute, or an error of the transport."""
        self._check_running()
        check_type("topic", topic, str)
        check_timeout(timeout_s)
        async with within(timeout_s or self._settings.send_timeout_s, f"the route of topic {topic}"):
            queues = (await self._sends.route(self._namespace.wrap(topic))).publish_queues
        return tuple(map(self._namespace.strip_queue, queues))

    async def recall(self, topic: str, handle: str, *, timeout_s: float | None = None) -> str:
        """Cancel a message that waits for its time of delivery, by `SendResult.recall_handle`; return its message id.

        InvalidMessage if that is no handle of this topic; BrokerError if the broker does not allow it
        (`recallMessageEnable`), or the message is delivered already; NoRoute and errors of the transport.
        """
        self._check_running()
        check_type("topic", topic, str)
        check_type("handle", handle, str)
        check_timeout(timeout_s)
        timeout_s = timeout_s or self._settings.send_timeout_s
        async with within(timeout_s, f"the recall of a message of topic {topic}"):
            return await recall(self.client, self.group, self._namespace.wrap(topic), handle, timeout_s)

    def _begin(
        self,
        message: Message,
        message_group: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        sys_flag: int = 0,
    ) -> "asyncio.Future[SendResult]":
        """Begin to send one message, inside the hooks if there are any."""
        if not self._running:
            self._check_running()
        if timeout_s is not None:
            check_timeout(timeout_s)
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
            (message,) = self._addressed((message,))
        if queue is not None:
            queue = self._target(queue, message.topic)
        outgoing = self._preparation.one(message, now_ms())
        if sys_flag:
            outgoing = msgspec.structs.replace(outgoing, sys_flag=outgoing.sys_flag | sys_flag)
        return self._sends.begin(outgoing, message_group, queue, timeout_s or self._settings.send_timeout_s)

    def _addressed(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages with the full names of their topics."""
        if not self._namespace.name:
            return messages
        try:
            return [msgspec.structs.replace(each, topic=self._namespace.wrap(each.topic)) for each in messages]
        except UNENCODABLE as error:
            raise invalid_message(messages[0], error) from error

    def _target(self, queue: MessageQueue | None, topic: str) -> MessageQueue | None:
        """Return a given queue with the full name of its topic. InvalidArgument if that is not the message's topic: a
        broker would store the message in the topic of the queue."""
        if queue is None:
            return None
        check_queue(queue)
        target = self._namespace.wrap_queue(queue)
        if target.topic != topic:
            raise InvalidArgument(f"queue must be one of the message's topic {topic!r}, not of {target.topic!r}")
        return target

    def _forked(self) -> None:
        super()._forked()
        self._running = False

    def _check_running(self) -> None:
        self._check_process()
        if not self._running:
            raise ClientClosed(f"producer {self.group} is not running: use it inside `async with`, or call start()")


def _grouped(message: Message, message_group: str) -> Message:
    try:
        properties = message.properties | {PropertyName.SHARDING_KEY: message_group}
        return msgspec.structs.replace(message, properties=properties)
    except UNENCODABLE as error:
        raise invalid_message(message, error) from error
