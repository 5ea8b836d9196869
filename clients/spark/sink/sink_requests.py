"""From rows to requests: rows are collected per destination, and each request is retried until it is acknowledged.

    add      append each row to the pending rows of its topic, or of its queue if the row has a group
             full pending rows become a request; too many requests in flight: wait here
    finish   send all pending rows; wait for all responses

Rows without a group have one destination per topic; their requests go to any queue and are independent. Rows with a
group go to the queue that the SDK selects for the group, and such a queue has one request in flight: a broker may
reorder requests of one connection, and a later request must not overtake a retried one. Rows that cannot share a
request (those with a delivery time) are sent alone, in their destination's order.

A request that is rejected or gets no response is retried with growing pauses, if its error may be temporary: brokers
restart, and otherwise Spark would repeat the whole task. A topic's limit is shorter until its first message is
acknowledged (clients/spark/base/request_retry.py). Messages that were stored without a response are then stored
twice, with the same marks. The first request that fails for good ends the task: `SendFailed`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.errors import ClientError, NoRoute, RequestTimeout
from skylarkmq.clients.sdk.messages.outgoing_message import BATCH_RECORD_OVERHEAD
from skylarkmq.clients.sdk.messages.send_result import SendResult, SendStatus
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.clients.sdk.producing.queue_selection import queue_of_key
from skylarkmq.clients.spark.base.request_retry import RetryLimit, with_retries
from skylarkmq.clients.spark.sink.sink_rows import MARK, Row
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import Message

SAFE: Final = frozenset({SendStatus.OK, SendStatus.SLAVE_NOT_AVAILABLE})
"""Statuses that count as acknowledged: a broker without its slave stores a repeated send no better."""

Destination = tuple[str, MessageQueue | None]


class SendFailed(Exception):
    """Rows that could not be sent; the text contains the destination, the reason and the remedy."""


class Limits(msgspec.Struct, frozen=True):
    """Limits of a request, and of the requests in flight."""

    batch_rows: int
    batch_bytes: int
    max_in_flight: int


class SendStatistics(msgspec.Struct, frozen=True):
    """Totals of acknowledged requests; `unreplicated`: rows that may be missing on a slave."""

    rows: int
    bytes: int
    requests: int
    retries: int
    unreplicated: int


class PendingRows(msgspec.Struct):
    """Rows of one destination that wait for their request."""

    messages: list[Message] = []
    size: int = 0


class RowRequests:
    """The requests of one task. `retry_limit`: the limit of retries of a topic."""

    def __init__(self, producer: Producer, limits: Limits, retry_limit: Callable[[str], RetryLimit]) -> None:
        self._producer = producer
        self._limits = limits
        self._retry_limit = retry_limit
        self._pending: dict[Destination, PendingRows] = {}
        self._last: dict[Destination, asyncio.Task[None]] = {}  # of destinations that keep an order
        self._in_flight: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(limits.max_in_flight)
        self._failure: Exception | None = None
        self._rows = self._bytes = self._requests = self._retries = self._unreplicated = 0

    def __repr__(self) -> str:
        return f"<RowRequests {self._rows} rows sent, {len(self._in_flight)} requests in flight>"

    def statistics(self) -> SendStatistics:
        """Return the figures now."""
        return SendStatistics(self._rows, self._bytes, self._requests, self._retries, self._unreplicated)

    async def add(self, rows: Sequence[Row]) -> None:
        """Add rows; waits while too many requests are in flight.

        Raises SendFailed once any request has failed for good.
        """
        queues: dict[str, Sequence[MessageQueue]] = {}
        for message, group, alone in rows:
            if group and message.topic not in queues:
                queues[message.topic] = await self._queues(message.topic)
            destination = (message.topic, queue_of_key(queues[message.topic], group) if group else None)
            pending = self._pending.get(destination)
            if pending is None:
                pending = self._pending[destination] = PendingRows()
            size = _size(message)
            if pending.messages and (alone or pending.size + size > self._limits.batch_bytes):
                await self._send_pending(destination)
                pending = self._pending[destination] = PendingRows()
            pending.messages.append(message)
            pending.size += size
            if alone or len(pending.messages) >= self._limits.batch_rows:
                await self._send_pending(destination)

    async def finish(self) -> None:
        """Wait until everything is acknowledged. Raises SendFailed."""
        for destination in list(self._pending):
            await self._send_pending(destination)
        while self._in_flight:
            await asyncio.wait(self._in_flight)
        self._check()

    async def abandon(self) -> None:
        """Cancel all retries, and discard pending rows."""
        self._pending.clear()
        for task in self._in_flight:
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------------ requests

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the writable queues, at least one."""
        return await writable_queues(self._producer, topic, self._retry_limit(topic), self._count_retry)

    async def _send_pending(self, destination: Destination) -> None:
        pending = self._pending.pop(destination)
        await self._free.acquire()
        self._check()
        before = self._last.get(destination)
        task = asyncio.get_running_loop().create_task(self._request(destination, pending, before))
        self._in_flight.add(task)
        task.add_done_callback(self._request_done)
        if destination[1] is not None:
            self._last[destination] = task

    def _request_done(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._free.release()
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            assert isinstance(error, Exception)
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _request(self, destination: Destination, pending: PendingRows, before: asyncio.Task[None] | None) -> None:
        """Send one request until it is acknowledged."""
        if before is not None:
            await asyncio.wait([before])
        if self._failure is not None:
            return
        topic, queue = destination
        messages = pending.messages
        limit = self._retry_limit(topic)
        try:
            results = await with_retries(
                lambda: self._attempt(topic, queue, messages),
                f"{len(messages)} rows for {topic}",
                limit,
                self._count_retry,
            )
        except ClientError as error:
            raise SendFailed(_error_message(topic, messages, error)) from error
        limit.succeeded()
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


async def writable_queues(
    producer: Producer, topic: str, limit: RetryLimit, on_repeat: Callable[[], None] = lambda: None
) -> Sequence[MessageQueue]:
    """Return the writable queues of a topic, or the queues for its first message if it can be created; at least one.

    Raises SendFailed.
    """

    async def find() -> Sequence[MessageQueue]:
        queues = await producer.publish_queues(topic)
        if not queues:
            raise NoRoute(f"topic {topic} has no queue to write to: check its permission", topic=topic)
        return queues

    try:
        return await with_retries(find, f"route of {topic}", limit, on_repeat)
    except ClientError as error:
        raise SendFailed(f"rows for topic {topic} could not be sent: {error}") from error


def _not_flushed(topic: str, result: SendResult) -> ClientError:
    return RequestTimeout(
        f"broker {result.queue.broker_name} received a message for topic {topic}, but did not store it safely "
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
        + 64  # properties that the SDK adds
    )


def _error_message(topic: str, messages: Sequence[Message], error: ClientError) -> str:
    rows = f"{len(messages)} rows" if len(messages) > 1 else "a row"
    mark = messages[0].properties.get(MARK)
    return f"{rows} for topic {topic}{f', from {mark} on,' if mark else ''} could not be sent: {error}"
