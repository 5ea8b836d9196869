"""Rows into requests: gathered by where they go, many in flight, each repeated until it is acknowledged.

    add      a row joins the lane of its topic, or of its queue if it has a group
             a lane that is full becomes a request; too many in flight: wait here
    finish   what is left becomes requests; wait for all answers

Rows without a group have one lane for each topic, whose requests go to any queue and do not wait for each other. Rows
with a group go to the queue that the SDK chooses for it, and that queue's lane has one request in flight: a broker may
carry out requests of one connection in another order, and a request that is repeated must not be overtaken. Rows that
cannot share a request (times of delivery) go alone, in their lane's order.

A request that is refused, or not answered, is repeated with growing pauses as long as `retry_timeout` allows, if its
error may pass: brokers restart, and Spark would begin the whole task anew. What was stored without an answer is then
stored twice, with the same marks. The first request that is given up ends everything: `SendFailed`.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from skylarkmq.clients.errors import ClientError, NoRoute, RequestTimeout
from skylarkmq.clients.producing.outgoing_message import BATCH_RECORD_OVERHEAD
from skylarkmq.clients.producing.producer import Producer
from skylarkmq.clients.producing.queue_selection import queue_of_key
from skylarkmq.clients.producing.sends import SendResult, SendStatus
from skylarkmq.clients.spark.request_retry import repeated
from skylarkmq.clients.spark.sink.sink_rows import MARK, Row
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import Message

SAFE: Final = frozenset({SendStatus.OK, SendStatus.SLAVE_NOT_AVAILABLE})
"""What counts as acknowledged: a broker that has lost its slave stores no better the second time."""

Lane = tuple[str, MessageQueue | None]


class SendFailed(Exception):
    """Rows that could not be sent; the text says where to, why, and what to do."""


class Limits(msgspec.Struct, frozen=True):
    """How much goes out at once."""

    batch_rows: int
    batch_bytes: int
    max_in_flight: int
    retry_timeout_s: float


class SendStatistics(msgspec.Struct, frozen=True):
    """What was acknowledged so far; `unreplicated`: rows in answers that a slave is missing."""

    rows: int
    bytes: int
    requests: int
    retries: int
    unreplicated: int


class Gathered(msgspec.Struct):
    """Rows of one lane on their way into a request."""

    messages: list[Message] = []
    size: int = 0


class RowRequests:
    """The requests of one task."""

    def __init__(self, producer: Producer, limits: Limits) -> None:
        self._producer = producer
        self._limits = limits
        self._gathered: dict[Lane, Gathered] = {}
        self._last: dict[Lane, asyncio.Task[None]] = {}  # of lanes that keep an order
        self._in_flight: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(limits.max_in_flight)
        self._failure: Exception | None = None
        self._rows = self._bytes = self._requests = self._retries = self._unreplicated = 0

    def __repr__(self) -> str:
        return f"<RowRequests {self._rows} rows sent, {len(self._in_flight)} requests in flight>"

    def statistics(self) -> SendStatistics:
        """The figures now."""
        return SendStatistics(self._rows, self._bytes, self._requests, self._retries, self._unreplicated)

    async def add(self, rows: Sequence[Row]) -> None:
        """Take rows; returns when there is room for more. SendFailed as soon as any request was given up."""
        queues: dict[str, Sequence[MessageQueue]] = {}
        for message, group, alone in rows:
            if group and message.topic not in queues:
                queues[message.topic] = await self._queues(message.topic)
            lane = (message.topic, queue_of_key(queues[message.topic], group) if group else None)
            gathered = self._gathered.get(lane)
            if gathered is None:
                gathered = self._gathered[lane] = Gathered()
            size = _size(message)
            if gathered.messages and (alone or gathered.size + size > self._limits.batch_bytes):
                await self._leave(lane)
                gathered = self._gathered[lane] = Gathered()
            gathered.messages.append(message)
            gathered.size += size
            if alone or len(gathered.messages) >= self._limits.batch_rows:
                await self._leave(lane)

    async def finish(self) -> None:
        """Wait until everything is acknowledged. SendFailed."""
        for lane in list(self._gathered):
            await self._leave(lane)
        while self._in_flight:
            await asyncio.wait(self._in_flight)
        self._check()

    async def abandon(self) -> None:
        """Stop repeating, and forget what has not left."""
        self._gathered.clear()
        for task in self._in_flight:
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------------ requests

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        """One at least."""

        async def find() -> Sequence[MessageQueue]:
            queues = await self._producer.publish_queues(topic)
            if not queues:
                raise NoRoute(f"topic {topic} has no queue to write to: check its permission", topic=topic)
            return queues

        try:
            return await repeated(find, f"route of {topic}", self._limits.retry_timeout_s, self._count_retry)
        except ClientError as error:
            raise SendFailed(f"rows for topic {topic} could not be sent: {error}") from error

    async def _leave(self, lane: Lane) -> None:
        gathered = self._gathered.pop(lane)
        await self._free.acquire()
        self._check()
        before = self._last.get(lane)
        task = asyncio.get_running_loop().create_task(self._request(lane, gathered, before))
        self._in_flight.add(task)
        task.add_done_callback(self._left)
        if lane[1] is not None:
            self._last[lane] = task

    def _left(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._free.release()
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            assert isinstance(error, Exception)
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _request(self, lane: Lane, gathered: Gathered, before: asyncio.Task[None] | None) -> None:
        """One request, until it is acknowledged."""
        if before is not None:
            await asyncio.wait([before])
        if self._failure is not None:
            return
        topic, queue = lane
        messages = gathered.messages
        try:
            results = await repeated(
                lambda: self._attempt(topic, queue, messages),
                f"{len(messages)} rows for {topic}",
                self._limits.retry_timeout_s,
                self._count_retry,
            )
        except ClientError as error:
            raise SendFailed(_told(topic, messages, error)) from error
        self._rows += len(messages)
        self._bytes += sum(len(message.body) for message in messages)
        self._requests += 1
        if any(result.status is not SendStatus.OK for result in results):
            self._unreplicated += len(messages)

    async def _attempt(self, topic: str, queue: MessageQueue | None, messages: Sequence[Message]) -> list[SendResult]:
        if len(messages) == 1:
            results = [await self._producer.send(messages[0], queue=queue)]
        else:
            results = await self._producer.send_batch(messages, queue=queue)
        for result in results:
            if result.status not in SAFE:
                raise _not_flushed(topic, result)
        return results

    def _count_retry(self) -> None:
        self._retries += 1


def _not_flushed(topic: str, result: SendResult) -> ClientError:
    return RequestTimeout(
        f"broker {result.queue.broker_name} has a message for topic {topic}, but does not know it safe "
        f"({result.status.name}). Check its disk and its slave.",
        code=int(result.status),
        topic=topic,
        broker=result.queue.broker_name,
    )


def _size(message: Message) -> int:
    return (
        BATCH_RECORD_OVERHEAD
        + len(message.body)
        + sum(len(name) + 2 + 3 * len(value) for name, value in message.properties.items())
        + 3 * (len(message.keys) + len(message.tags))
        + 64  # what the SDK adds
    )


def _told(topic: str, messages: Sequence[Message], error: ClientError) -> str:
    rows = f"{len(messages)} rows" if len(messages) > 1 else "a row"
    mark = messages[0].properties.get(MARK)
    return f"{rows} for topic {topic}{f', from {mark} on,' if mark else ''} could not be sent: {error}"
