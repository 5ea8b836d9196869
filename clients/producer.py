"""Sending messages.

    send / send_nowait / send_oneway / send_batch
        -> outgoing.prepare     checks, compression, UNIQ_KEY, property string
        -> route                known, asked for, or that of the template topic
        -> queue                given, by message group, or the next in turn
        -> SendTemplate.frame   -> Connection.submit -> answer -> SendResult

Sends do not wait for each other: any number of coroutines may be inside `send`, their requests leave in one write per
turn of the loop, and answers come as they come. `send_nowait` gives a future instead.

What may be repeated is repeated: answers with a code of RETRY_CODES and errors of the transport go to another queue, if
possible on another broker, up to `retries` times within `send_timeout_s`. After a lost connection or a timeout the
first attempt may have been stored too, so consumers must be prepared for duplicates (same `msg_id`). A message with a
message group or a given queue is not repeated: what followed it may already be stored.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, Self

import msgspec

from clients.client import Client, client_of
from clients.connection import Connection
from clients.errors import BrokerError, ClientClosed, ClientError, NoRoute, RequestTimeout
from clients.outgoing import Outgoing, SendTemplate, check_topic, prepare, prepare_batch
from clients.queue_choice import RoundRobin, queue_of_key
from clients.routes import TRANSPORT_ERRORS, TopicRoute
from clients.settings import ProducerSettings, TlsSettings
from protocol.bodies.message_queue import MessageQueue
from protocol.codes import RequestCode, ResponseCode
from protocol.command import RemotingCommand
from protocol.headers.send import SendMessageResponseHeader
from protocol.message import Message, PropertyName, check_group_name
from protocol.message_id import UniqueIds

RETRY_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)


class SendStatus(IntEnum):
    """Stored, in all four cases; but for OK not yet as safely as the broker was told to."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


_STATUS: Final = {int(status): status for status in SendStatus}


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went. `msg_id` names it before, `offset_msg_id` by its place (batches: joined by commas)."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None


class ProducerStatistics(msgspec.Struct, frozen=True):
    """A producer at one moment; totals since its start."""

    group: str
    sent: int
    retried: int
    failed: int


class Producer:
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
    ) -> None:
        check_group_name(group)
        self.group = group
        self.client, self._owns_client = client_of(namesrv, client, tls)
        self._settings = settings or ProducerSettings()
        self._ids = UniqueIds(self.client.ip, os.getpid(), time.time_ns() & 0xFFFF_FFFF)
        self._turn = RoundRobin(start=time.time_ns() & 0xFFFF)
        self._templates: dict[tuple[str, str], SendTemplate] = {}
        self._sends: set[asyncio.Task[SendResult]] = set()
        self._running = False
        self._sent = self._retried = self._failed = 0

    def __repr__(self) -> str:
        return f"<Producer {self.group} sent={self._sent} {'running' if self._running else 'stopped'}>"

    def statistics(self) -> ProducerStatistics:
        """The producer's figures now."""
        return ProducerStatistics(self.group, self._sent, self._retried, self._failed)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Join the group; connections open with the first send."""
        if self._owns_client:
            await self.client.start()
        self.client.join_as_producer(self.group)
        self._running = True

    async def stop(self) -> None:
        """Wait for what `send_nowait` left running, leave the group; close the client if it is this producer's own."""
        self._running = False
        await asyncio.gather(*self._sends, return_exceptions=True)
        await self.client.leave_as_producer(self.group)
        if self._owns_client:
            await self.client.close()

    # --------------------------------------------------------------------------------------------------------- sends

    async def send(
        self,
        message: Message,
        *,
        message_group: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send one message and return where it is stored.

        Messages of one `message_group` go to one queue, in the order in which they are sent. InvalidMessage, NoRoute,
        BrokerError, RequestTimeout, ConnectFailed, ConnectionLost.
        """
        outgoing = self._prepare(message, message_group)
        return await self._deliver(outgoing, message_group, queue, timeout_s or self._settings.send_timeout_s)

    def send_nowait(self, message: Message, *, message_group: str | None = None) -> "asyncio.Future[SendResult]":
        """As `send`, begun at once: the future holds its result. Nothing limits how many are begun."""
        outgoing = self._prepare(message, message_group)
        timeout_s = self._settings.send_timeout_s
        task = asyncio.create_task(
            self._deliver(outgoing, message_group, None, timeout_s), name=f"send/{message.topic}"
        )
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)
        return task

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        message_group: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request, to consecutive places of one queue; errors as of `send`."""
        self._check_running()
        outgoing = prepare_batch(messages, self._ids, now_ms(), self._settings)
        return await self._deliver(outgoing, message_group, queue, timeout_s or self._settings.send_timeout_s)

    async def send_oneway(
        self, message: Message, *, message_group: str | None = None, queue: MessageQueue | None = None
    ) -> None:
        """Send without an answer: done when it was handed to the transport, and lost without notice if it gets lost."""
        outgoing = self._prepare(message, message_group)
        route = await self._route(outgoing.topic)
        queue = queue or self._choose(route, message_group, ())
        connection = await self.client.brokers.get(route.address(queue.broker_name))
        template = self._template(queue)
        await connection.send_oneway(template.command(outgoing, queue.queue_id, oneway=True))
        self._sent += 1

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages to `topic` may go to."""
        return (await self._route(topic)).publish_queues

    # ------------------------------------------------------------------------------------------------------ delivery

    def _prepare(self, message: Message, message_group: str | None) -> Outgoing:
        self._check_running()
        if message_group is not None:
            properties = message.properties | {PropertyName.SHARDING_KEY: message_group}
            message = msgspec.structs.replace(message, properties=properties)
        return prepare(message, self._ids, now_ms(), self._settings)

    async def _deliver(
        self, outgoing: Outgoing, message_group: str | None, queue: MessageQueue | None, timeout_s: float
    ) -> SendResult:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        attempts = 1 if queue is not None or message_group is not None else 1 + self._settings.retries
        failed_brokers: list[str] = []
        while True:
            attempts -= 1
            try:
                route = self.client.routes.known(outgoing.topic) or await self._route(outgoing.topic)
                target = queue or self._choose(route, message_group, failed_brokers)
            except ClientError:
                self._failed += 1
                raise
            try:
                result = await self._attempt(outgoing, route, target, deadline_s - loop.time())
            except ClientError as error:
                if attempts <= 0 or loop.time() >= deadline_s or not await self._may_repeat(error, outgoing.topic):
                    self._failed += 1
                    raise
                self._retried += 1
                failed_brokers.append(target.broker_name)
                continue
            self._sent += 1
            return result

    async def _attempt(
        self, outgoing: Outgoing, route: TopicRoute, queue: MessageQueue, timeout_s: float
    ) -> SendResult:
        address = route.address(queue.broker_name)
        brokers = self.client.brokers
        connection = brokers.current(address)
        if connection is None or connection.busy:
            connection = await self._ready_connection(address, timeout_s)
        opaque = connection.next_opaque()
        frame = self._template(queue).frame(outgoing, queue.queue_id, opaque)
        try:
            answer = await connection.submit(opaque, frame, timeout_s)
        except RequestTimeout as error:
            raise self._timed_out(queue, address) from error
        return self._result(outgoing, queue, address, answer)

    async def _ready_connection(self, address: str, timeout_s: float) -> Connection:
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self.client.brokers.get(address)
                await connection.ready()
                return connection
        except TimeoutError as error:
            raise RequestTimeout(
                f"broker {address} took no more requests for {timeout_s:.1f} s: it is down, or too slow for this load.",
                broker=address,
            ) from error

    def _result(self, outgoing: Outgoing, queue: MessageQueue, address: str, answer: RemotingCommand) -> SendResult:
        status = _STATUS.get(answer.code)
        if status is None:
            code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
            broker = f"broker {queue.broker_name} ({address})"
            raise BrokerError.of(code, answer.code, answer.remark, broker, outgoing.topic)
        header = answer.header(SendMessageResponseHeader)
        if header.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
        return SendResult(status, outgoing.msg_id, header.msg_id, queue, header.queue_offset, header.transaction_id)

    async def _may_repeat(self, error: ClientError, topic: str) -> bool:
        """Whether another attempt may help; after an error of the transport the route is asked for anew."""
        if isinstance(error, TRANSPORT_ERRORS):
            try:
                await self.client.routes.reload(topic)
            except ClientError:
                pass  # the known route stays, and the error that counts is the send's own
            return True
        return error.code in RETRY_CODES and not isinstance(error, NoRoute)

    async def _route(self, topic: str) -> TopicRoute:
        check_topic(topic)
        settings = self._settings
        return await self.client.routes.find_or_template(topic, settings.default_topic, settings.default_topic_queues)

    def _choose(self, route: TopicRoute, message_group: str | None, failed_brokers: Sequence[str]) -> MessageQueue:
        queues = route.publish_queues
        if not queues:
            raise NoRoute(
                f"topic {route.topic} has no queue to write to: check its permission, and that a master is up.",
                topic=route.topic,
            )
        if message_group is not None:
            return queue_of_key(queues, message_group)
        return self._turn.choose(queues, failed_brokers)

    def _template(self, queue: MessageQueue) -> SendTemplate:
        key = (queue.topic, queue.broker_name)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = SendTemplate(self.group, *key, self._settings)
        return template

    def _timed_out(self, queue: MessageQueue, address: str) -> RequestTimeout:
        return RequestTimeout(
            f"broker {queue.broker_name} ({address}) did not answer a send to {queue.topic} in time; the message "
            "may be stored. Check the broker's load, or allow more time.",
            broker=queue.broker_name,
            topic=queue.topic,
        )

    def _check_running(self) -> None:
        if not self._running:
            raise ClientClosed(f"producer {self.group} is not running: use it inside `async with`, or call start()")


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000
