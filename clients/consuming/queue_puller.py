"""One queue that this consumer owns: pulls it, hands over what matches, knows how far it got.

    start offset -> [ wait for room -> pull -> react ] ...

The start is the group's committed offset, else where `consume_from` points. A pull that finds nothing is held by the
broker until something comes or `suspend_s` is over, and then repeated. What an answer means:

    0        messages         decode, drop those whose tags only share a hash, hand over, go on at nextBeginOffset
    19, 20   nothing yet      go on at nextBeginOffset, at once
    21       offset moved     forget what was received, commit nextBeginOffset and go on there; with a growing pause if
                              that does not help
    24, 25   not known yet    the broker lost or has not seen our heartbeat: send one, try again
    others   refused          log, pause, try again; so do errors of transport, after asking for the route again

What was received and is given up (21, or the queue goes to another member) is dropped together with its `Progress`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from skylarkmq.clients.connection.routes import TRANSPORT_ERRORS
from skylarkmq.clients.consuming.consume_rates import ConsumeRates
from skylarkmq.clients.consuming.message_buffer import Delivery, Sink
from skylarkmq.clients.consuming.offset_tracker import Progress
from skylarkmq.clients.consuming.queue_calls import MASTER, QueueCalls
from skylarkmq.clients.consuming.received_message import inflate_message, is_compressed, readdressed
from skylarkmq.clients.errors import BrokerError, ClientError, invalid_response, printable
from skylarkmq.clients.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.clients.settings import ConsumerSettings
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.filters.tag import EVERYTHING, TagFilter, is_tag_type
from skylarkmq.protocol.headers.pull import PullMessageResponseHeader
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.record import decode

NOTHING_YET: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
NOT_KNOWN_YET: Final = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})
PAUSE_S: Final[dict[int, float]] = {ResponseCode.FLOW_CONTROL: 0.02}
ERROR_PAUSE_S: Final = 1.0
MOVED_PAUSE_MAX_S: Final = 10.0
_ANYTHING: Final = TagFilter.parse(EVERYTHING)  # the broker alone judges by properties
HURRIED_S: Final = 0.01
HURRIED_PULLS: Final = 10
"""So many pulls in a row that brought nothing within HURRIED_S: the broker does not hold pulls, so they are paced."""

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Where a group's offsets are: at the brokers, or in a file of this member."""

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """None: there is none."""

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Keep it. ClientError."""


class Surroundings(msgspec.Struct, frozen=True):
    """What the readers of one consumer share."""

    calls: QueueCalls
    offsets: OffsetStore
    inbox: Sink
    settings: ConsumerSettings
    with_subscription: bool
    commits_by_pull: Callable[[MessageQueue], bool]
    start_offset: Callable[[MessageQueue], Awaitable[int]]
    beat: Callable[[], Awaitable[None]]
    reload_route: Callable[[str], Awaitable[object]]
    reader_count: Callable[[], int]
    rates: ConsumeRates
    namespace: Namespace = NO_NAMESPACE


class QueueReader:
    """Reads one queue until its task is cancelled. `start_at` None: at the committed offset."""

    def __init__(
        self, queue: MessageQueue, subscription: SubscriptionData, shared: Surroundings, start_at: int | None = None
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self.committed: int | None = None
        self.paused = False
        self.pulled_s = 0.0
        self.progress: Progress | None = None
        self._pulls = shared.calls.pulls_of(
            queue, subscription, shared.settings, with_subscription=shared.with_subscription
        )
        self._filter = TagFilter.of(subscription) if is_tag_type(subscription.expression_type) else _ANYTHING
        self._shared = shared
        self._totals = shared.rates.totals[queue.topic]
        self._start_at = start_at
        self._broker_id = MASTER
        self._moves = 0
        self._hurried = 0  # pulls in a row that brought nothing, at once
        self._asked_s = 0.0
        self._room = asyncio.Event()

    def __repr__(self) -> str:
        return f"<QueueReader {self.queue} {self.progress}>"

    async def run(self, pause_s: float = 0.0) -> None:
        """Forever, after a pause in which a former owner may commit."""
        await asyncio.sleep(pause_s)
        while True:
            pause_s = ERROR_PAUSE_S
            try:
                progress = self.progress or await self._start()
                await self._wait_room()
                pause_s = await self._pull_once(progress)
            except TRANSPORT_ERRORS as error:  # whose connection is warned about once, not for each of its queues
                log.info("pull failed, trying again queue=%s error=%s", self.queue, error)
                await self._look_for_route()
            except (ClientError, ProtocolError, RequestError) as error:
                log.warning("pull failed, trying again queue=%s error=%s", self.queue, printable(str(error)))
            except Exception:
                log.exception("pull failed, trying again queue=%s", self.queue)
            if pause_s:
                await asyncio.sleep(pause_s)

    def drop(self) -> None:
        """Give up the queue: what was received and not finished is somebody else's now."""
        if self.progress is not None:
            self.progress.dropped = True

    def commit_offset(self) -> int | None:
        """What should be committed and is not; None if there is nothing new."""
        if self.progress is None or self.progress.dropped:
            return None
        offset = self.progress.commit_offset()
        return None if offset == self.committed else offset

    @property
    def has_room(self) -> bool:
        """Whether the limits allow another pull."""
        progress, settings = self.progress, self._shared.settings
        if self.paused:
            return False
        if progress is None or not progress.unfinished:
            return True
        return (
            progress.unfinished < settings.max_queue_messages
            and len(self._shared.inbox) < settings.max_messages
            and progress.span < settings.max_queue_span
            and self._has_bytes(progress)
        )

    def _has_bytes(self, progress: Progress) -> bool:
        """Whether this queue's share of the memory is not used up; bodies count as they are held, inflated."""
        return progress.unfinished_bytes * self._shared.reader_count() < self._shared.settings.max_bytes

    def pause(self, *, paused: bool) -> None:
        """Pull no more, or go on; a pull that is under way still delivers."""
        self.paused = paused
        self._room.set()

    async def _start(self) -> Progress:
        start = self._start_at
        if start is None:
            start = await self._shared.start_offset(self.queue)
        log.info("reading queue=%s offset=%d", self.queue, start)
        return self._begin(start)

    def _begin(self, offset: int) -> Progress:
        self.drop()
        self.progress = Progress(offset, self._room.set, self.queue)
        return self.progress

    async def _wait_room(self) -> None:
        while not self.has_room:
            self._room.clear()
            await self._room.wait()

    async def _pull_once(self, progress: Progress) -> float:
        """One pull; returns how long to pause after it, in seconds."""
        commit_offset = progress.commit_offset() if self._shared.commits_by_pull(self.queue) else 0
        self.pulled_s, self._asked_s = time.time(), time.monotonic()
        answer = await self._shared.calls.pull(
            self._pulls, progress.position, commit_offset if commit_offset > 0 else None, self._broker_id
        )
        return await self._react(answer, progress)

    async def _react(self, answer: RemotingCommand, progress: Progress) -> float:
        code = answer.code
        if code == ResponseCode.SUCCESS or code in NOTHING_YET:
            header = self._header(answer)
            self._broker_id = header.suggest_which_broker_id
            self._moves = 0
            before = progress.position
            if code == ResponseCode.SUCCESS:
                progress.position = await self._deliver(decode(answer.body), progress, header.next_begin_offset)
            else:
                progress.position = header.next_begin_offset
            return self._pause_of(moved=progress.position != before)
        if code == ResponseCode.PULL_OFFSET_MOVED:
            return await self._moved(progress, self._header(answer).next_begin_offset)
        if code in NOT_KNOWN_YET:
            await self._shared.beat()
        topic = self.queue.topic
        error = BrokerError.of(RequestCode.PULL_MESSAGE, code, answer.remark, self.queue.broker_name, topic)
        log.warning("pull refused, trying again queue=%s error=%s", self.queue, error)
        return PAUSE_S.get(code, ERROR_PAUSE_S)

    def _header(self, answer: RemotingCommand) -> PullMessageResponseHeader:
        """Return the header of a response; InvalidResponse, RequestError, ProtocolError."""
        header = answer.header(PullMessageResponseHeader)
        if header.next_begin_offset < 0:
            reason = f"nextBeginOffset {header.next_begin_offset} of queue {self.queue.queue_id}"
            raise invalid_response(RequestCode.PULL_MESSAGE, self.queue.broker_name, reason, self.queue.topic)
        return header

    def _pause_of(self, *, moved: bool) -> float:
        """Return how long to pause, in seconds, if the broker answers again and again at once that there is nothing."""
        if moved or time.monotonic() - self._asked_s > HURRIED_S:
            self._hurried = 0
            return 0.0
        self._hurried += 1
        beyond = min(self._hurried - HURRIED_PULLS, 16)
        return 0.0 if beyond < 0 else min(HURRIED_S * (1 << beyond), ERROR_PAUSE_S)

    async def _deliver(self, messages: list[MessageExt], progress: Progress, following: int) -> int:
        """Hand over what is wanted; returns the offset to go on at, which is `following` unless memory ran out.

        Compressed messages that do not fit once inflated are left for a later pull; one of a queue always fits.
        """
        deliveries = []
        wanted, namespace, settings = self._filter, self._shared.namespace, self._shared.settings
        position = progress.position
        for message in messages:
            if message.queue_offset < position:
                continue
            if not (wanted.everything or wanted.matches_text(message.tags or None)):
                continue
            size = message.size
            if is_compressed(message):
                if progress.unfinished and not self._has_bytes(progress):
                    following = message.queue_offset
                    break
                stored_bytes = len(message.body)
                await inflate_message(message, settings.max_inflated_bytes)
                size += len(message.body) - stored_bytes
            deliveries.append(Delivery(readdressed(message, namespace), progress))
            progress.received(message.queue_offset, size)
            position = message.queue_offset + 1
        self._shared.inbox.put(deliveries)
        totals = self._totals
        totals.pulls += 1
        totals.pulled += len(deliveries)
        totals.pull_s += time.time() - self.pulled_s
        return max(following, position)

    async def _moved(self, progress: Progress, offset: int) -> float:
        """Begin anew at `offset`; returns a pause that grows if the broker keeps moving us."""
        log.warning("offset moved by the broker queue=%s from=%d to=%d", self.queue, progress.position, offset)
        self.drop()
        await self._shared.inbox.settle(progress)
        self._begin(offset)
        await self._shared.offsets.commit(self.queue, offset)
        self.committed = offset
        pause_s = min(self._moves * ERROR_PAUSE_S, MOVED_PAUSE_MAX_S)
        self._moves += 1
        return pause_s

    async def _look_for_route(self) -> None:
        try:
            await self._shared.reload_route(self.queue.topic)
        except ClientError as error:
            log.info("route not found anew, keeping the old one topic=%s error=%s", self.queue.topic, error)
