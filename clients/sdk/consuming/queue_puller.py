"""The puller of one queue: it pulls messages, puts those that match into the buffer, and tracks the offsets.

    start offset -> [ wait for capacity -> pull -> react ] ...

The start offset is the committed offset of the group, else the one that `consume_from` selects. The broker holds a pull
that finds no message until one arrives or `suspend_s` is over; then the pull is repeated. Response codes:

    SUCCESS (0)                   decode the messages, drop those whose tag only shares a hash, put the others into the
                                  buffer, continue at nextBeginOffset
    PULL_NOT_FOUND (19),          continue at nextBeginOffset, at once
    PULL_RETRY_IMMEDIATELY (20)
    PULL_OFFSET_MOVED (21)        drop the received messages, commit nextBeginOffset and continue there; with a growing
                                  pause if the broker repeats this code
    SUBSCRIPTION_NOT_EXIST (24),  the broker has no heartbeat of this consumer: send one, pull again
    SUBSCRIPTION_NOT_LATEST (25)
    others                        log, pause for `pull_retry_pause_s`, pull again; the same after transport errors,
                                  with a new route

Received messages are dropped together with their OffsetTracker, after code 21 or when the queue is revoked.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, InvalidBody, invalid_response, printable
from skylarkmq.clients.sdk.base.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.connection.routes import TRANSPORT_ERRORS
from skylarkmq.clients.sdk.consuming.consume_rates import ConsumeRates
from skylarkmq.clients.sdk.consuming.message_buffer import Sink
from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.queue_calls import MASTER, QueueCalls
from skylarkmq.clients.sdk.consuming.queue_state import Assignment
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage
from skylarkmq.clients.sdk.messages.stored_messages import inflate_message, is_compressed, restore_topic
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.filters.tag import EVERYTHING, TagFilter, is_tag_type
from skylarkmq.protocol.headers.pull import PullMessageResponseHeader
from skylarkmq.protocol.record import decoder_of

NOTHING_YET: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
NOT_KNOWN_YET: Final = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})
PAUSE_S: Final[dict[int, float]] = {ResponseCode.FLOW_CONTROL: 0.02}
MOVED_PAUSE_S: Final = 1.0
MOVED_PAUSE_MAX_S: Final = 10.0
_decode: Final = decoder_of(ReceivedMessage)
_ANYTHING: Final = TagFilter.parse(EVERYTHING)  # only the broker evaluates properties
EMPTY_PULL_S: Final = 0.01
EMPTY_PULL_PAUSE_MAX_S: Final = 1.0
MAX_EMPTY_PULLS: Final = 10
"""After so many consecutive pulls that returned no message within EMPTY_PULL_S, pulls are paced: this broker does not
hold them."""

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Where the offsets of a group are kept: at the brokers, or in a file of this member."""

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return the committed offset, or None."""

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit an offset. Raises ClientError."""


class PullerContext(msgspec.Struct, frozen=True):
    """The collaborators that the pullers of one consumer share."""

    calls: QueueCalls
    offsets: OffsetStore
    buffer: Sink
    settings: ConsumerSettings
    with_subscription: bool
    commits_by_pull: Callable[[MessageQueue], bool]
    start_offset: Callable[[MessageQueue], Awaitable[int]]
    beat: Callable[[], Awaitable[None]]
    reload_route: Callable[[str], Awaitable[object]]
    puller_count: Callable[[], int]
    rates: ConsumeRates
    namespace: Namespace = NO_NAMESPACE


class QueuePuller:
    """Reads one queue until its task is canceled, while the state of its assignment allows it. `start_at` None: at the
    committed offset."""

    def __init__(
        self,
        assignment: Assignment,
        subscription: SubscriptionData,
        shared: PullerContext,
        start_at: int | None = None,
    ) -> None:
        self.assignment = assignment
        self.queue = queue = assignment.queue
        self.subscription = subscription
        self.committed: int | None = None
        self.pulled_s = 0.0
        self.tracker: OffsetTracker | None = None
        self._pulls = shared.calls.pulls_of(
            queue, subscription, shared.settings, with_subscription=shared.with_subscription
        )
        self._filter = TagFilter.of(subscription) if is_tag_type(subscription.expression_type) else _ANYTHING
        self._shared = shared
        self._totals = shared.rates.totals[queue.topic]
        self._start_at = start_at
        self._broker_id = MASTER
        self._moves = 0
        self._empty_pulls = 0  # consecutive pulls that returned no message, at once
        self._requested_s = 0.0
        self._retry_pause_s = shared.settings.pull_retry_pause_s
        self._capacity = asyncio.Event()
        assignment.on_change = self._capacity.set

    def __repr__(self) -> str:
        return f"<QueuePuller {self.queue} {self.assignment.state.value} {self.tracker}>"

    async def run(self, pause_s: float = 0.0) -> None:
        """Pull until the task is canceled, after a pause in which the former owner may commit."""
        await asyncio.sleep(pause_s)
        while True:
            pause_s = self._retry_pause_s
            try:
                tracker = self.tracker or await self._start()
                await self._wait_capacity()
                pause_s = await self._pull_once(tracker)
            except TRANSPORT_ERRORS as error:  # the connection has logged a warning, once for all its queues
                log.info("pull failed, trying again queue=%s error=%s", self.queue, error)
                await self._reload_route()
            except (ClientError, ProtocolError, RequestError) as error:
                log.warning("pull failed, trying again queue=%s error=%s", self.queue, printable(str(error)))
            except Exception:
                log.exception("pull failed, trying again queue=%s", self.queue)
            if pause_s:
                await asyncio.sleep(pause_s)

    def drop(self) -> None:
        """Give up the queue: unacknowledged messages belong to its next owner."""
        if self.tracker is not None:
            self.tracker.dropped = True

    def commit_offset(self) -> int | None:
        """Return the offset to commit; None if it is committed already."""
        if self.tracker is None or self.tracker.dropped:
            return None
        offset = self.tracker.commit_offset()
        return None if offset == self.committed else offset

    @property
    def has_capacity(self) -> bool:
        """Whether state and limits allow another pull. One message of a queue is always allowed."""
        tracker, settings = self.tracker, self._shared.settings
        if not self.assignment.may_pull:
            return False
        if tracker is None or not tracker.unfinished:
            return True
        return (
            tracker.unfinished < settings.max_queue_messages
            and len(self._shared.buffer) < settings.max_messages
            and tracker.span < settings.max_queue_span
            and self._has_bytes(tracker)
        )

    def _has_bytes(self, tracker: OffsetTracker) -> bool:
        """Return whether this queue has not used up its share of the memory. Bodies count inflated."""
        return tracker.unfinished_bytes * self._shared.puller_count() < self._shared.settings.max_bytes

    async def next_offset(self) -> int:
        """Return the offset of the next message that the application receives."""
        if self.tracker is None:
            return await self._shared.start_offset(self.queue) if self._start_at is None else self._start_at
        waiting = self._shared.buffer.next_offset(self.tracker)
        return self.tracker.position if waiting is None else waiting

    async def _start(self) -> OffsetTracker:
        start = self._start_at
        if start is None:
            start = await self._shared.start_offset(self.queue)
        log.info("reading queue=%s offset=%d", self.queue, start)
        return self._begin(start)

    def _begin(self, offset: int) -> OffsetTracker:
        self.drop()
        self.tracker = OffsetTracker(offset, self._capacity.set, self.queue)
        return self.tracker

    async def _wait_capacity(self) -> None:
        while not self.has_capacity:
            self._capacity.clear()
            await self._capacity.wait()

    async def _pull_once(self, tracker: OffsetTracker) -> float:
        """Pull once. Return how long to pause afterwards, in seconds."""
        commit_offset = tracker.commit_offset() if self._shared.commits_by_pull(self.queue) else 0
        self.pulled_s, self._requested_s = time.time(), time.monotonic()
        response = await self._shared.calls.pull(
            self._pulls, tracker.position, commit_offset if commit_offset > 0 else None, self._broker_id
        )
        return await self._react(response, tracker)

    async def _react(self, response: RemotingCommand, tracker: OffsetTracker) -> float:
        code = response.code
        if code == ResponseCode.SUCCESS or code in NOTHING_YET:
            header = self._header(response)
            self._broker_id = header.suggest_which_broker_id
            self._moves = 0
            before = tracker.position
            if code == ResponseCode.SUCCESS:
                tracker.position = await self._deliver(_decode(response.body), tracker, header.next_begin_offset)
            else:
                tracker.position = header.next_begin_offset
            return self._pause_of(moved=tracker.position != before)
        if code == ResponseCode.PULL_OFFSET_MOVED:
            return await self._moved(tracker, self._header(response).next_begin_offset)
        if code in NOT_KNOWN_YET:
            await self._shared.beat()
        topic = self.queue.topic
        error = BrokerError.of(RequestCode.PULL_MESSAGE, code, response.remark, self.queue.broker_name, topic)
        log.warning("pull refused, trying again queue=%s error=%s", self.queue, error)
        return PAUSE_S.get(code, self._retry_pause_s)

    def _header(self, response: RemotingCommand) -> PullMessageResponseHeader:
        """Return the header of a response. Raises InvalidResponse, RequestError, ProtocolError."""
        header = response.header(PullMessageResponseHeader)
        if header.next_begin_offset < 0:
            reason = f"nextBeginOffset {header.next_begin_offset} of queue {self.queue.queue_id}"
            raise invalid_response(RequestCode.PULL_MESSAGE, self.queue.broker_name, reason, self.queue.topic)
        return header

    def _pause_of(self, *, moved: bool) -> float:
        """Return how long to pause, in seconds: more than 0 if the broker repeatedly returns no message, at once."""
        if moved or time.monotonic() - self._requested_s > EMPTY_PULL_S:
            self._empty_pulls = 0
            return 0.0
        self._empty_pulls += 1
        beyond = min(self._empty_pulls - MAX_EMPTY_PULLS, 16)
        return 0.0 if beyond < 0 else min(EMPTY_PULL_S * (1 << beyond), EMPTY_PULL_PAUSE_MAX_S)

    async def _deliver(self, pulled: list[ReceivedMessage], tracker: OffsetTracker, following: int) -> int:
        """Put the messages that match into the buffer. Return the offset to continue at: `following`, unless the queue
        has used up its memory.

        A compressed message that would exceed the memory is left for a later pull, unless the queue has no other. A
        body that cannot be inflated is delivered as an error: no handler gets it.
        """
        messages: list[ReceivedMessage] = []
        wanted, namespace, settings = self._filter, self._shared.namespace, self._shared.settings
        position = tracker.position
        for message in pulled:
            if message.queue_offset < position:
                continue
            if not (wanted.everything or wanted.matches_text(message.tags or None)):
                continue
            size = message.size
            if is_compressed(message):
                if tracker.unfinished and not self._has_bytes(tracker):
                    following = message.queue_offset
                    break
                stored_bytes = len(message.body)
                try:
                    await inflate_message(message, settings.max_inflated_bytes)
                except InvalidBody as error:
                    message.error = error
                size += len(message.body) - stored_bytes
            restore_topic(message, namespace)
            message.tracker = tracker
            messages.append(message)
            tracker.received(message.queue_offset, size)
            position = message.queue_offset + 1
        self._shared.buffer.put(messages)
        totals = self._totals
        totals.pulls += 1
        totals.pulled += len(messages)
        totals.pull_s += time.time() - self.pulled_s
        return max(following, position)

    async def _moved(self, tracker: OffsetTracker, offset: int) -> float:
        """Restart at `offset`. Return a pause in seconds, which grows if the broker repeats this."""
        log.warning("offset moved by the broker queue=%s from=%d to=%d", self.queue, tracker.position, offset)
        self.drop()
        await self._shared.buffer.settle(tracker)
        self._begin(offset)
        await self._shared.offsets.commit(self.queue, offset)
        self.committed = offset
        pause_s = min(self._moves * MOVED_PAUSE_S, MOVED_PAUSE_MAX_S)
        self._moves += 1
        return pause_s

    async def _reload_route(self) -> None:
        try:
            await self._shared.reload_route(self.queue.topic)
        except ClientError as error:
            log.info("route not reloaded, keeping the old one topic=%s error=%s", self.queue.topic, error)
