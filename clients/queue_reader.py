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

from clients.consume_rates import ConsumeRates
from clients.errors import BrokerError, ClientError
from clients.inbox import Delivery, Sink
from clients.namespaces import NO_NAMESPACE, Namespace
from clients.progress import Progress
from clients.queue_calls import MASTER, QueueCalls
from clients.routes import TRANSPORT_ERRORS
from clients.settings import ConsumerSettings
from protocol.bodies.heartbeat import SubscriptionData
from protocol.bodies.message_queue import MessageQueue
from protocol.codes import RETRY_PREFIX, RequestCode, ResponseCode, SysFlag
from protocol.command import RemotingCommand
from protocol.errors import ProtocolError, RequestError
from protocol.filters.tag import EVERYTHING, TagFilter, is_tag_type
from protocol.headers.pull import PullMessageResponseHeader
from protocol.message import MessageExt, PayloadError, PropertyName
from protocol.record import decode

NOTHING_YET: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
NOT_KNOWN_YET: Final = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})
PAUSE_S: Final[dict[int, float]] = {ResponseCode.FLOW_CONTROL: 0.02}
ERROR_PAUSE_S: Final = 1.0
MOVED_PAUSE_MAX_S: Final = 10.0
_ANYTHING: Final = TagFilter.parse(EVERYTHING)  # the broker alone judges by properties
_COMPRESSION: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE_MASK)

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
                log.warning("pull failed, trying again queue=%s error=%s", self.queue, error)
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
            and progress.unfinished_bytes * self._shared.reader_count() < settings.max_bytes
        )

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
        self.pulled_s = time.time()
        answer = await self._shared.calls.pull(
            self._pulls, progress.position, commit_offset if commit_offset > 0 else None, self._broker_id
        )
        return await self._react(answer, progress)

    async def _react(self, answer: RemotingCommand, progress: Progress) -> float:
        code = answer.code
        if code == ResponseCode.SUCCESS or code in NOTHING_YET:
            header = answer.header(PullMessageResponseHeader)
            self._broker_id = header.suggest_which_broker_id
            self._moves = 0
            if code == ResponseCode.SUCCESS:
                self._deliver(decode(answer.body), progress)
            progress.position = header.next_begin_offset
            return 0.0
        if code == ResponseCode.PULL_OFFSET_MOVED:
            return await self._moved(progress, answer.header(PullMessageResponseHeader).next_begin_offset)
        if code in NOT_KNOWN_YET:
            await self._shared.beat()
        topic = self.queue.topic
        error = BrokerError.of(RequestCode.PULL_MESSAGE, code, answer.remark, self.queue.broker_name, topic)
        log.warning("pull refused, trying again queue=%s error=%s", self.queue, error)
        return PAUSE_S.get(code, ERROR_PAUSE_S)

    def _deliver(self, messages: list[MessageExt], progress: Progress) -> None:
        deliveries = []
        wanted, namespace = self._filter, self._shared.namespace
        for message in messages:
            if message.queue_offset < progress.position:
                continue
            if not (wanted.everything or wanted.matches_text(message.tags or None)):
                continue
            deliveries.append(Delivery(as_received(message, namespace), progress))
            progress.received(message.queue_offset, message.size)
        self._shared.inbox.put(deliveries)
        totals = self._totals
        totals.pulls += 1
        totals.pulled += len(deliveries)
        totals.pull_s += time.time() - self.pulled_s

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


def as_received(message: MessageExt, namespace: Namespace = NO_NAMESPACE) -> MessageExt:
    """A stored message as its consumer wants it: inflated, a retried one under its first topic, without namespace."""
    if message.sys_flag & _COMPRESSION:
        try:
            message.body = message.payload()
            message.sys_flag &= ~_COMPRESSION
        except PayloadError as error:
            log.warning("body handed over as stored offset_msg_id=%s error=%s", message.offset_msg_id, error)
    if message.topic.startswith(RETRY_PREFIX):
        message.topic = message.properties.get(PropertyName.RETRY_TOPIC, message.topic)
    if namespace.name:
        message.topic = namespace.strip(message.topic)
    return message
