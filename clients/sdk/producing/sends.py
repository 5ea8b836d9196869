"""Sends in flight: attempt after attempt, until one succeeds or a repetition is not allowed.

    begin   route known, connection open and not busy -> request sent before `begin` returns
            otherwise a task waits for them           -> request sent
    then    a response                                -> SendResult, or BrokerError
            an error that another attempt may solve   -> a task, and another queue

A send that meets nothing unusual needs neither a task nor a timer: its connection holds the `Sending` itself, where
other requests have a future. While a send waits for its first attempt, later sends to the same topic wait after it.
Requests of one message group, or to one given queue, leave in the order in which their sends began.

Responses with a code of RETRY_CODES and errors of the transport are repeated on another queue, if possible on another
broker, within the time of the send. After a lost connection or a timeout the first attempt may have been stored too, so
consumers must expect duplicates (same `msg_id`). A message with a message group or a given queue is not repeated: later
messages of the group may already be stored.

A topic that does not exist, or that was deleted while its route is known, is created by the broker at the next send, if
autoCreateTopicEnable is on: requests name the template topic, as in RocketMQ's clients.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.errors import (
    BrokerError,
    ClientError,
    ConnectionLost,
    NoRoute,
    RequestTimeout,
    invalid_response,
)
from skylarkmq.clients.sdk.base.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.connection.background_tasks import Background
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.connection.connection import Connection
from skylarkmq.clients.sdk.connection.routes import TRANSPORT_ERRORS
from skylarkmq.clients.sdk.connection.topic_route import TopicRoute
from skylarkmq.clients.sdk.messages.outgoing_message import UNENCODABLE, Outgoing, check_topic, invalid_message
from skylarkmq.clients.sdk.messages.send_result import SendResult, SendStatus
from skylarkmq.clients.sdk.producing.queue_selection import RoundRobin, queue_of_key
from skylarkmq.clients.sdk.producing.send_requests import SendTemplate
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.headers.send import SendMessageResponseHeader

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
_STATUS: Final = {int(status): status for status in SendStatus}


class Sending(msgspec.Struct, eq=False, gc=False):
    """One send. Its connection holds it as the receiver of the response (`Reply` of
    clients/sdk/connection/connection.py).

    It gets the response even if the application has canceled the result: until then the send is in flight.
    """

    sends: "Sends"
    outgoing: Outgoing
    message_group: str | None
    queue: MessageQueue | None  # given by the application
    deadline_s: float
    attempts: int  # attempts left
    result: asyncio.Future[SendResult]
    target: MessageQueue | None = None  # of this attempt
    address: str = ""
    failed_brokers: tuple[str, ...] = ()

    def done(self) -> bool:
        """Return False: a send is in flight as long as a connection holds it."""
        return False

    def set_result(self, response: RemotingCommand) -> None:
        """Take the response to this attempt."""
        self.sends.responded(self, response)

    def set_exception(self, error: ClientError) -> None:
        """Take the error of an attempt without a response."""
        self.sends.attempt_failed(self, error)


class Sends:
    """All sends of one producer; `sent`, `retried` and `failed` are totals. `heard` is called with each response."""

    def __init__(
        self, group: str, client: Client, settings: ProducerSettings, namespace: Namespace = NO_NAMESPACE
    ) -> None:
        self.sent = self.retried = self.failed = 0
        self.heard: Callable[[RemotingCommand], None] | None = None
        self._namespace = namespace
        self._group = group
        self._client = client
        self._settings = settings
        self._round_robin = RoundRobin(start=time.time_ns() & 0xFFFF)
        self._templates: dict[tuple[str, str], SendTemplate] = {}
        self._in_flight: set[Sending] = set()
        self._waiting: Counter[str] = Counter()  # sends before their first attempt, by topic
        self._lines: dict[tuple[str, str | MessageQueue], asyncio.Lock] = {}  # of sends that must keep their order
        self._background = Background(group)
        self._loop: asyncio.AbstractEventLoop

    def __repr__(self) -> str:
        return f"<Sends {len(self._in_flight)} in flight, {self.sent} sent>"

    def start(self) -> None:
        """Use the running loop from now on. Getting it for each send would cost a microsecond."""
        self._loop = asyncio.get_running_loop()

    def begin(
        self, outgoing: Outgoing, message_group: str | None, queue: MessageQueue | None, timeout_s: float
    ) -> asyncio.Future[SendResult]:
        """Begin a send and return a future of its result.

        The future raises NoRoute, BrokerError, RequestTimeout, ConnectFailed or ConnectionLost, and InvalidMessage if
        the message cannot be encoded.
        """
        loop = self._loop
        attempts = 1 if queue is not None or message_group is not None else 1 + self._settings.retries
        sending = Sending(self, outgoing, message_group, queue, loop.time() + timeout_s, attempts, loop.create_future())
        self._in_flight.add(sending)
        topic = outgoing.topic
        try:
            if topic in self._waiting or not self._attempt_now(sending):
                self._waiting[topic] += 1
                self._background.spawn(f"send/{topic}", self._first_attempt(sending))
        except UNENCODABLE as error:
            self._give_up(sending, _unencodable(sending, error))
        return sending.result

    async def oneway(
        self, outgoing: Outgoing, message_group: str | None, queue: MessageQueue | None, timeout_s: float
    ) -> None:
        """Send a message without a response; return when it is passed to the transport. RequestTimeout."""
        try:
            async with asyncio.timeout(timeout_s):
                route = await self.route(outgoing.topic)
                target = self._oneway_target(route, message_group, queue)
                connection = await self._client.brokers.get(route.address(target.broker_name))
                await connection.ready()
        except TimeoutError as error:
            raise RequestTimeout(
                f"no broker accepted a send to {outgoing.topic} within {timeout_s:g} s; nothing was sent.",
                topic=outgoing.topic,
            ) from error
        opaque, template = connection.next_opaque(), self._template(target)
        try:
            frame = template.frame(outgoing, target.queue_id, opaque, connection.dialect, oneway=True)
        except UNENCODABLE as error:
            raise invalid_message(None, error) from error
        connection.write(frame)
        self.sent += 1

    def _oneway_target(self, route: TopicRoute, message_group: str | None, queue: MessageQueue | None) -> MessageQueue:
        try:
            return queue or self._choose(route, message_group, ())
        except UNENCODABLE as error:
            raise invalid_message(None, error) from error

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of `topic`. InvalidMessage, NoRoute, or the errors of the name servers."""
        check_topic(topic)
        settings = self._settings
        return await self._client.routes.find_or_template(topic, settings.default_topic, settings.default_topic_queues)

    async def finish(self) -> None:
        """Wait until no send is in flight."""
        try:
            await asyncio.gather(*(sending.result for sending in self._in_flight), return_exceptions=True)
        finally:
            await self._background.stop()

    # ------------------------------------------------------------------------------------------------------ attempts

    def _attempt_now(self, sending: Sending) -> bool:
        """Send the request if route and connection are ready; return False if they are not."""
        route = self._client.routes.known(sending.outgoing.topic)
        if route is None:
            return False
        try:
            self._aim(sending, route)
        except ClientError as error:
            self._give_up(sending, error)
            return True
        connection = self._client.brokers.current(sending.address)
        if connection is None or connection.busy:
            return False
        self._submit(sending, connection)
        return True

    async def _first_attempt(self, sending: Sending) -> None:
        topic = sending.outgoing.topic
        line = sending.queue if sending.message_group is None else sending.message_group
        try:
            if line is None:
                await self._attempt(sending)
            else:
                async with self._lines.setdefault((topic, line), asyncio.Lock()):
                    await self._attempt(sending)
        finally:
            self._waiting[topic] -= 1
            if not self._waiting[topic]:
                del self._waiting[topic]
            if not self._waiting:
                self._lines.clear()

    async def _attempt(self, sending: Sending) -> None:
        """Wait for route and connection, and send the request."""
        try:
            if sending.target is None:
                self._aim(sending, await self._route_in_time(sending))
        except ClientError as error:
            self._give_up(sending, error)
            return
        except UNENCODABLE as error:
            self._give_up(sending, _unencodable(sending, error))
            return
        try:
            connection = await self._ready_connection(sending)
        except ClientError as error:
            self._failed_attempt(sending, error)
            return
        if sending.result.done():
            self._in_flight.discard(sending)  # the application canceled it before it was sent
            return
        try:
            self._submit(sending, connection)
        except UNENCODABLE as error:
            self._give_up(sending, _unencodable(sending, error))

    async def _next_attempt(self, sending: Sending, error: ClientError) -> None:
        if isinstance(error, TRANSPORT_ERRORS):
            try:
                async with asyncio.timeout_at(sending.deadline_s):
                    await self._client.routes.reload(sending.outgoing.topic)
            except (ClientError, TimeoutError):
                pass  # the known route stays; the error of the send is raised
        await self._attempt(sending)

    async def _route_in_time(self, sending: Sending) -> TopicRoute:
        topic = sending.outgoing.topic
        try:
            async with asyncio.timeout_at(sending.deadline_s):
                return await self.route(topic)
        except TimeoutError as error:
            raise RequestTimeout(
                f"no route of topic {topic} within the timeout of the send; nothing was sent. Check the name servers.",
                topic=topic,
            ) from error

    def _aim(self, sending: Sending, route: TopicRoute) -> None:
        sending.attempts -= 1
        target = sending.queue or self._choose(route, sending.message_group, sending.failed_brokers)
        sending.target = target
        sending.address = route.address(target.broker_name)

    def _submit(self, sending: Sending, connection: Connection) -> None:
        assert sending.target is not None
        opaque = connection.next_opaque()
        template = self._template(sending.target)
        frame = template.frame(sending.outgoing, sending.target.queue_id, opaque, connection.dialect)
        try:
            connection.submit(opaque, frame, sending.deadline_s, sending)
        except ConnectionLost as error:
            self._failed_attempt(sending, error)

    async def _ready_connection(self, sending: Sending) -> Connection:
        address = sending.address
        timeout_s = sending.deadline_s - self._loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._client.brokers.get(address)
                await connection.ready()
                return connection
        except TimeoutError as error:
            raise RequestTimeout(
                f"broker {address} accepted no request for {timeout_s:.1f} s: it is down, or too slow for this load.",
                broker=address,
            ) from error

    def _choose(self, route: TopicRoute, message_group: str | None, failed_brokers: Sequence[str]) -> MessageQueue:
        queues = route.publish_queues
        if not queues:
            raise NoRoute(
                f"topic {route.topic} has no writable queue: check its permission, and that a master runs.",
                topic=route.topic,
            )
        if message_group is not None:
            return queue_of_key(queues, message_group)
        return self._round_robin.choose(queues, failed_brokers)

    def _template(self, queue: MessageQueue) -> SendTemplate:
        key = (queue.topic, queue.broker_name)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = SendTemplate(self._group, *key, self._settings)
        return template

    # ------------------------------------------------------------------------------------------------------- results

    def responded(self, sending: Sending, response: RemotingCommand) -> None:
        """Take the response to an attempt."""
        outgoing, queue = sending.outgoing, sending.target
        assert queue is not None
        status = _STATUS.get(response.code)
        if status is None:
            code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
            broker = f"broker {queue.broker_name} ({sending.address})"
            self._failed_attempt(sending, BrokerError.of(code, response.code, response.remark, broker, outgoing.topic))
            return
        try:
            header = response.header(SendMessageResponseHeader)
        except (RequestError, ProtocolError) as error:
            code, broker = RequestCode.SEND_MESSAGE_V2, f"broker {queue.broker_name} ({sending.address})"
            self._give_up(sending, invalid_response(code, broker, str(error), outgoing.topic))
            return
        if header.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
        self.sent += 1
        self._in_flight.discard(sending)
        if self.heard is not None:
            self.heard(response)
        if self._namespace.name:
            queue = self._namespace.strip_queue(queue)
        if not sending.result.done():
            sending.result.set_result(
                SendResult(
                    status,
                    outgoing.msg_id,
                    header.msg_id,
                    queue,
                    header.queue_offset,
                    header.transaction_id,
                    header.recall_handle,
                )
            )

    def attempt_failed(self, sending: Sending, error: ClientError) -> None:
        """Take the error of an attempt without a response."""
        if isinstance(error, RequestTimeout):
            topic, broker = sending.outgoing.topic, sending.target.broker_name if sending.target else ""
            error = RequestTimeout(
                f"broker {broker} ({sending.address}) did not answer a send to {topic} in time; the message "
                "may be stored. Check the broker's load, or allow more time.",
                broker=broker,
                topic=topic,
            )
        self._failed_attempt(sending, error)

    def _failed_attempt(self, sending: Sending, error: ClientError) -> None:
        late = self._loop.time() >= sending.deadline_s
        if late or sending.attempts <= 0 or sending.result.done() or not _may_repeat(error):
            self._give_up(sending, error)
            return
        self.retried += 1
        if sending.target is not None:
            sending.failed_brokers += (sending.target.broker_name,)
            sending.target = None
        self._background.spawn(f"send/{sending.outgoing.topic}", self._next_attempt(sending, error))

    def _give_up(self, sending: Sending, error: Exception) -> None:
        self.failed += 1
        self._in_flight.discard(sending)
        if not sending.result.done():
            sending.result.set_exception(error)


def _may_repeat(error: ClientError) -> bool:
    """Return whether another attempt may succeed."""
    return isinstance(error, TRANSPORT_ERRORS) or (error.code in RETRY_CODES and not isinstance(error, NoRoute))


def _unencodable(sending: Sending, error: Exception) -> ClientError:
    """Return the error for a send whose message, message group or queue cannot be encoded."""
    if isinstance(error, ClientError):
        return error
    invalid = invalid_message(None, error)
    invalid.topic = sending.outgoing.topic
    return invalid
