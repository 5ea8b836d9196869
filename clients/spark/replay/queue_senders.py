"""Sending to one queue: one request at a time, and no copy twice.

    put    the main loop adds requests; a sender that has enough of them makes it wait
    run    pace -> send -> acknowledged: record
                        -> error that may be temporary: pause, find the copies that arrived, send the rest

A request without a response may have been stored, or may be stored soon. So after such an error the sender reads the
queue from the last known copy on, until no copy of this replay has appeared for `settle_s`; a resumed replay does the
same first. A broker that stores a request later than `settle_s` after its connection has ended would cause a double;
RocketMQ's brokers drop requests that wait for longer than 200 ms (`waitTimeMillsInSendQueue`).

With a delay level, a sender's queue is the queue of the level (SCHEDULE_TOPIC_XXXX), where the broker holds copies for
all queues; otherwise it is the new queue itself.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

import msgspec

from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, InvalidResponse
from skylarkmq.clients.sdk.messages.send_result import SendResult, SendStatus
from skylarkmq.clients.spark.base.request_retry import PAUSE_MAX_S, PAUSE_S, is_temporary
from skylarkmq.clients.spark.replay.copies import MARK, Origin, origin_of
from skylarkmq.clients.spark.replay.errors import ReplayFailed
from skylarkmq.clients.spark.replay.journal import Journal, Recorded, Stream
from skylarkmq.clients.spark.replay.pace import Pace
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.message import MessageExt, PropertyName

REQUESTS_WAITING: Final = 2
POLLS: Final = 6
"""How often the end of a queue is read while it settles."""
_NOTHING_STORED: Final = frozenset({
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
})  # fmt: skip
"""Codes of responses that prove that the broker did not store the request."""

log = logging.getLogger(__name__)


class Copy(msgspec.Struct, frozen=True, gc=False):
    """A message to be sent. `compression`: the bits of the sysFlag that describe how the body is compressed."""

    stream: Stream
    offset: int
    msg_id: str | None
    compression: int
    flag: int
    body: bytes
    properties: bytes


class Found(NamedTuple):
    """A copy that was read from the queue, and the place of its old message."""

    message: MessageExt
    origin: Origin


class Cluster(Protocol):
    """The requests that a sender needs. All raise ClientError."""

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the writable queues of a topic, sorted."""

    async def send(self, queue: MessageQueue, copies: Sequence[Copy]) -> SendResult:
        """Store copies with equal `compression` in one request."""

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first offset of a queue and its end."""

    async def read(self, queue: MessageQueue, offset: int) -> tuple[list[MessageExt], int | None]:
        """Return messages from an offset on and the offset to continue at; None: the end of the queue."""


class Limits(msgspec.Struct, frozen=True):
    """Limits of the requests. A batch also ends where the compression changes."""

    batch_rows: int = 256
    batch_bytes: int = 512 * 1024
    retry_timeout_s: float = 60.0
    settle_s: float = 3.0


class QueueSender:
    """Sends to the queue `held`: `run` must be running. The counters are of this run.

    `found`: copies of earlier runs that `recover` recorded; `doubles`: copies that were stored twice. `stored` is
    called with the size of each request that is acknowledged.
    """

    def __init__(
        self,
        held: MessageQueue,
        cluster: Cluster,
        journal: Journal,
        pace: Pace,
        limits: Limits,
        stored: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.held = held
        self.found = 0
        self.retries = 0
        self.doubles = 0
        self.unreplicated = 0
        self._cluster = cluster
        self._journal = journal
        self._pace = pace
        self._limits = limits
        self._stored = stored
        self._requests: asyncio.Queue[tuple[MessageQueue, list[Copy], int] | None] = asyncio.Queue(REQUESTS_WAITING)

    def __repr__(self) -> str:
        return f"<QueueSender {self.held} {self._requests.qsize()} requests wait>"

    async def put(self, queue: MessageQueue, copies: list[Copy], size: int) -> None:
        """Add a request of `size` bytes for a new queue; waits while enough requests wait."""
        await self._requests.put((queue, copies, size))

    async def finish(self) -> None:
        """Let `run` end once all requests are acknowledged."""
        await self._requests.put(None)

    async def run(self) -> None:
        """Send the requests. Raises ReplayFailed."""
        while (request := await self._requests.get()) is not None:
            queue, copies, size = request
            await self._pace.take(len(copies))
            await self._send(queue, copies)
            self._stored(size)

    async def recover(self) -> None:
        """Record the copies that an earlier run sent and did not record. Raises ReplayFailed."""

        async def attempt() -> None:
            self.found += await self._arrived()

        await self._patiently(attempt, f"the end of {self.held} could not be read")

    # ---------------------------------------------------------------------------------------------------------- send

    async def _send(self, queue: MessageQueue, copies: list[Copy]) -> None:
        is_unknown = False
        rest = copies

        async def attempt() -> None:
            nonlocal is_unknown, rest
            if is_unknown:
                await self._arrived()
                is_unknown = False
                rest = [copy for copy in copies if copy.offset > self._journal.sent.get(copy.stream, -1)]
            if not rest:
                return
            is_unknown = True
            try:
                result = await self._cluster.send(queue, rest)
            except BrokerError as error:
                is_unknown = error.code not in _NOTHING_STORED
                raise
            self._acknowledged(queue, rest, result)

        first = copies[0].stream.source
        await self._patiently(attempt, f"{len(copies)} messages from {first}, offset {copies[0].offset}, were not sent")

    async def _patiently(self, attempt: Callable[[], Awaitable[None]], what: str) -> None:
        """Repeat an attempt after errors that may be temporary. Raises ReplayFailed."""
        deadline = time.monotonic() + self._limits.retry_timeout_s
        pause_s = PAUSE_S
        while True:
            try:
                await attempt()
                return
            except ClientError as error:
                may_pass = is_temporary(error) or isinstance(error, InvalidResponse)
                if not (may_pass or error.code == ResponseCode.FLOW_CONTROL) or time.monotonic() >= deadline:
                    raise ReplayFailed(f"{what}: {error}") from error
                if pause_s == PAUSE_S:
                    log.warning("retrying queue=%s error=%s", self.held, error)
            self.retries += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _acknowledged(self, queue: MessageQueue, copies: Sequence[Copy], result: SendResult) -> None:
        if result.status is not SendStatus.OK:
            self.unreplicated += len(copies)
        ids = result.offset_msg_id.split(",")
        sent_ms = time.time_ns() // 1_000_000
        at = 0
        for stream, group in groupby(copies, key=attrgetter("stream")):
            part = list(group)
            self._journal.record(
                Recorded(
                    stream=stream,
                    queue=queue,
                    held=self.held,
                    offsets=[copy.offset for copy in part],
                    msg_ids=[copy.msg_id for copy in part],
                    first_offset=result.queue_offset + at,
                    new_msg_ids=ids[at : at + len(part)],
                    sent_ms=sent_ms,
                )
            )
            at += len(part)

    # ------------------------------------------------------------------------------------------------- what arrived

    async def _arrived(self) -> int:
        """Record the copies after the last known one, until no other has appeared for `settle_s`; return their number.

        Copies that were recorded before an error are not counted.
        """
        at = self._journal.ends[self.held]
        first, _ = await self._cluster.bounds(self.held)
        if first > at:
            raise ReplayFailed(
                f"messages {at} to {first - 1} of {self.held} were deleted before the replay could read them, so it is "
                "unknown which messages arrived: start a new replay, and select by time what to send again"
            )
        quiet_since = time.monotonic()
        count = 0
        while True:
            began = time.monotonic()
            messages, following = await self._cluster.read(self.held, at)
            if found := self._record_found(messages):
                quiet_since = time.monotonic()
                count += found
            if following is not None:
                at = following
            elif began - quiet_since >= self._limits.settle_s:
                break
            else:
                await asyncio.sleep(self._limits.settle_s / POLLS)
        _, end = await self._cluster.bounds(self.held)
        if end < self._journal.ends[self.held]:
            raise ReplayFailed(
                f"{self.held} ends at {end}, but the broker acknowledged messages up to {self._journal.ends[self.held]}"
                ": it lost them, or the topic was created again. Start a new replay"
            )
        return count

    def _record_found(self, messages: Sequence[MessageExt]) -> int:
        """Record the messages that this replay sent; return their number."""
        found = [
            Found(message, origin)
            for message in messages
            if (origin := origin_of(message.properties.get(MARK), self._journal.saved.id)) is not None
        ]
        for _, group in groupby(enumerate(found), key=lambda numbered: self._consecutive(*numbered)):
            part = [one for _, one in group]
            stream, queue = self._stream_of(part[0])
            last = self._journal.sent.get(stream, -1)
            for one in part:
                if one.origin.offset <= last:
                    self.doubles += 1
                    log.warning("a message is stored twice queue=%s offset=%d", self.held, one.message.queue_offset)
                last = max(last, one.origin.offset)
            self._journal.record(
                Recorded(
                    stream=stream,
                    queue=queue,
                    held=self.held,
                    offsets=[one.origin.offset for one in part],
                    msg_ids=[one.message.msg_id for one in part],
                    first_offset=part[0].message.queue_offset,
                    new_msg_ids=[one.message.offset_msg_id for one in part],
                    sent_ms=part[0].message.born_timestamp,
                )
            )
        return len(found)

    def _consecutive(self, number: int, one: "Found") -> tuple[object, ...]:
        """Return what is equal for copies of one stream with consecutive offsets, which are recorded together."""
        return (*self._stream_of(one), one.message.queue_offset - number, one.message.born_timestamp)

    def _stream_of(self, found: "Found") -> tuple[Stream, MessageQueue]:
        origin, queue = found.origin, self._new_queue(found.message)
        return Stream(MessageQueue(origin.topic, origin.broker_name, origin.queue_id), queue.topic), queue

    def _new_queue(self, message: MessageExt) -> MessageQueue:
        """Return the queue for which the broker stored a copy."""
        properties = message.properties
        topic = properties.get(PropertyName.REAL_TOPIC) or message.topic
        queue_id = int(properties.get(PropertyName.REAL_QUEUE_ID) or message.queue_id)
        return MessageQueue(topic, self.held.broker_name, queue_id)
