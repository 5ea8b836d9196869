"""One member of a consumer group: its subscriptions, its share of the queues, and its offsets.

    subscribe / NOTIFY_CONSUMER_IDS_CHANGED (40) / every 20 s
        -> rebalance: members (GET_CONSUMER_LIST_BY_GROUP, 38) and queues -> allocation -> release, adopt
    every 5 s, at each release, at the stop
        -> commit

The members of a group do not communicate. They agree because all apply the same rule to the same lists of the brokers
(clients/sdk/consuming/allocation.py). If the brokers cannot be reached, the member keeps its queues and tries again
after SOON_S. It begins to read a queue at the committed offset of the group, or where `consume_from` points.

A broadcasting member reads all queues, and keeps its offsets in a file (clients/sdk/consuming/local_offsets.py). An
orderly member reads a queue only while the broker has locked it for this member (clients/sdk/consuming/queue_locks.py).

Another member may still have a queue that is new here. An orderly member repeats its lock request after
LOCK_PAUSE_MIN_S, then with growing pauses, until the owner has finished its message and unlocked the queue, or its lock
has expired. Other members wait `handover_pause_s` for the owner to commit: the broker notifies it within 50 ms.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from skylarkmq.clients.sdk.base.arguments import check_group, check_topic, check_type
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import ClientClosed, ClientError, InvalidMessage, NoRoute, checking_argument
from skylarkmq.clients.sdk.base.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.connection.background_tasks import Background, Repeat
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.consuming.allocation import Allocation, averagely, share
from skylarkmq.clients.sdk.consuming.assigned_queues import AssignedQueues
from skylarkmq.clients.sdk.consuming.consume_rates import SAMPLE_S, ConsumeRates
from skylarkmq.clients.sdk.consuming.message_buffer import Sink
from skylarkmq.clients.sdk.consuming.queue_calls import QueueCalls
from skylarkmq.clients.sdk.consuming.queue_locks import QueueLocks
from skylarkmq.clients.sdk.consuming.queue_puller import OffsetStore, PullerContext, QueuePuller
from skylarkmq.clients.sdk.consuming.queue_state import Assignment, QueueState
from skylarkmq.clients.sdk.consuming.rebalance_callbacks import NO_CALLBACKS, RebalanceCallbacks
from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from skylarkmq.protocol.bodies.heartbeat import SQL92, ConsumerData, SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RETRY_PREFIX
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.filters.tag import EVERYTHING, is_tag_type, subscribe
from skylarkmq.protocol.message import check_topic_name

SOON_S: Final = 1.0
LOCK_PAUSE_MIN_S: Final = 0.1  # a broker notifies the owner of a change after 50 ms; doubles up to SOON_S

log = logging.getLogger(__name__)


class ConsumeFrom(Enum):
    """Where a group begins in a queue without a committed offset."""

    LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Role(msgspec.Struct, frozen=True):
    """How a member takes part. `consume_from` as a time selects messages that were stored at or after it."""

    consume_type: ConsumeType
    consume_from: ConsumeFrom | datetime
    model: MessageModel = MessageModel.CLUSTERING
    orderly: bool = False

    @property
    def broadcasts(self) -> bool:
        """Whether every member receives all messages."""
        return self.model is MessageModel.BROADCASTING

    @property
    def retries(self) -> bool:
        """Whether the member also reads the retry topic of the group."""
        return self.consume_type is ConsumeType.CONSUME_PASSIVELY and not self.broadcasts


class Sql92(msgspec.Struct, frozen=True):
    """An expression over properties instead of tags: `a > 5 AND region = 'eu'`. Brokers reject it unless their setting
    `enablePropertyFilter` is on."""

    expression: str


Topics: TypeAlias = str | Iterable[str] | Mapping[str, str | Sql92]
"""Topics to subscribe to: a name, names, or names with their expressions (tags or an `Sql92`)."""


class GroupMember:
    """A member of `group` on `client`. Received messages go to `buffer`. `offsets` None: the brokers keep them."""

    def __init__(
        self,
        client: Client,
        group: str,
        role: Role,
        settings: ConsumerSettings,
        buffer: Sink,
        offsets: OffsetStore | None = None,
        allocation: Allocation = averagely,
        namespace: Namespace = NO_NAMESPACE,
        callbacks: RebalanceCallbacks = NO_CALLBACKS,
    ) -> None:
        check_group(group)
        self.group = group
        self.role = role
        self.calls = QueueCalls(client, group)
        self.rates = ConsumeRates()
        self.namespace = namespace
        self.locks = QueueLocks(client, group, self._overtaken, life_s=settings.lock_life_s) if role.orderly else None
        self.offsets: OffsetStore = offsets or self.calls
        self.assigned = AssignedQueues(group, self.offsets, self._puller, buffer.settle, self.locks)
        self._client = client
        self._settings = settings
        self._allocation = allocation
        self._callbacks = callbacks
        self._auto_commit = True
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._background = Background(group)
        self._handovers = Background(f"{group}/handover")
        self._rebalance: Repeat | None = None
        self._lock_pause_s = LOCK_PAUSE_MIN_S / 2
        self._context = PullerContext(
            calls=self.calls,
            offsets=self.offsets,
            buffer=buffer,
            settings=settings,
            with_subscription=role.consume_type is ConsumeType.CONSUME_ACTIVELY,
            commits_by_pull=self._commits_by_pull,
            start_offset=self._start_offset,
            beat=client.beat,
            reload_route=client.routes.reload,
            puller_count=self.assigned.__len__,
            rates=self.rates,
            namespace=namespace,
        )

    def __repr__(self) -> str:
        return f"<GroupMember {self.group} topics={sorted(self._subscriptions)} {self.assigned}>"

    async def start(self, *, auto_commit: bool = True) -> None:
        """Join the group. `auto_commit` False: only the application commits."""
        self._auto_commit = self.assigned.commits_on_release = auto_commit
        if self.role.retries:
            topic = RETRY_PREFIX + self.group
            self._subscriptions[topic] = _subscription(topic, EVERYTHING)
        self._client.join_as_consumer(self)
        self._rebalance = self._background.repeat("rebalance", self.rebalance, self._settings.rebalance_interval_s)
        self._background.repeat("rates", self.rates.sample, SAMPLE_S)
        if auto_commit:
            self._background.repeat("commit", self._commit_step, self._settings.commit_interval_s)
        if self.locks is not None:
            renewal = self._background.repeat("locks", self._renew_locks, self._settings.lock_renewal_s)
            self.locks.on_stale = renewal.soon

    async def stop_reading(self) -> None:
        """Stop rebalancing and pulling. Received messages can still be acknowledged."""
        await self._background.stop()
        await self.assigned.stop_reading()

    async def revoke_all(self) -> None:
        """Call the application's `on_revoked` for all queues, before the last commit."""
        for topic in sorted({queue.topic for queue in self.assigned.queues()}):
            await self._callbacks.revoked(self._assigned_of(topic))

    async def leave(self, *, commit: bool = True) -> None:
        """Commit, and unregister at the brokers: other members take over. Handlers have ended before."""
        await self._handovers.finish()
        if commit:
            await self.assigned.commit()
        if self.locks is not None:
            await self.locks.release_all()
        await self._client.leave_as_consumer(self)

    # ------------------------------------------------------------------------------------------------- subscriptions

    async def subscribe(self, topic: str, expression: str | Sql92) -> None:
        """Read `topic` from now on, or with another expression. Returns after the heartbeat to the brokers.

        Raises InvalidMessage for a bad name, ClientClosed before the start, BrokerError if a broker rejects the
        expression.
        """
        if self._rebalance is None:
            raise ClientClosed(f"consumer {self.group} is not running: use it inside `async with`, or call start()")
        try:
            check_topic_name(topic)
        except RequestError as error:
            raise InvalidMessage(f"topic {topic!r}: {error.remark}", code=error.code, topic=topic) from error
        check_type("expression", expression, str, Sql92)
        subscription = _subscription(topic, expression)
        try:
            await self._client.routes.find(topic)
        except NoRoute as error:
            log.warning("subscribed to a topic without a route, waiting for a route topic=%s error=%s", topic, error)
        else:
            if not is_tag_type(subscription.expression_type):
                await self.calls.check(subscription)
        self._subscriptions[topic] = subscription
        await self._client.beat()
        await self._release(topic)  # its queues are read with the old expression
        self._rebalance.soon()

    async def unsubscribe(self, topic: str) -> None:
        """Give up a topic and its queues."""
        self._subscriptions.pop(topic, None)
        await self._release(topic)
        await self._client.beat()

    async def subscribe_all(self, topics: Mapping[str, str | Sql92]) -> None:
        """Subscribe to the topics that the consumer was made with. Raises the errors of `subscribe`."""
        for topic, expression in topics.items():
            await self.subscribe(self.namespace.wrap(topic), expression)

    def subscription(self, topic: str) -> SubscriptionData:
        """Return the subscription to a topic; to all its messages if the group has not subscribed."""
        return self._subscriptions.get(topic) or subscribe(topic, EVERYTHING, 0)

    @property
    def name_servers(self) -> Sequence[str]:
        """The addresses of the name servers."""
        return self._client.name_servers

    @property
    def subscriptions(self) -> list[SubscriptionData]:
        """All subscriptions, including the retry topic."""
        return list(self._subscriptions.values())

    def consumer_data(self) -> ConsumerData:
        """Return this member's entry of a heartbeat."""
        where = self.role.consume_from
        return ConsumerData(
            group_name=self.group,
            consume_type=self.role.consume_type,
            message_model=self.role.model,
            consume_from_where=(
                where.value if isinstance(where, ConsumeFrom) else ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
            ),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def _assigned_of(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self.assigned.queues() if queue.topic == topic]

    # ----------------------------------------------------------------------------------------------------- rebalance

    def group_changed(self) -> None:
        """Rebalance now: a member joined or left."""
        if self._rebalance is not None:
            self._rebalance.soon()

    async def rebalance(self) -> float | None:
        """Adopt and release queues until they are this member's share. Return the seconds until the next attempt, if
        some are missing; None if the share is complete."""
        pause_s, waits_for_locks = None, False
        for topic, subscription in list(self._subscriptions.items()):
            try:
                if not await self._rebalance_topic(topic, subscription):
                    waits_for_locks = True
            except NoRoute as error:
                log.debug("topic without a route topic=%s error=%s", topic, error)
                pause_s = SOON_S
            except ClientError as error:
                log.warning("not rebalanced, trying again topic=%s error=%s", topic, error)
                await self._client.beat()
                pause_s = SOON_S
        self._lock_pause_s = min(self._lock_pause_s * 2, SOON_S) if waits_for_locks else LOCK_PAUSE_MIN_S / 2
        return self._lock_pause_s if waits_for_locks else pause_s

    async def _rebalance_topic(self, topic: str, subscription: SubscriptionData) -> bool:
        """Return False if other members still have queues of this member's share."""
        route = await self._client.routes.find(topic)
        members = [] if self.role.broadcasts else await self.calls.members(topic)
        queues = route.subscribe_queues
        own_id = self._client.client_id
        try:
            mine = set(queues if self.role.broadcasts else share(self._allocation, queues, members, own_id))
        except Exception:
            log.exception("allocation rule failed, keeping the queues topic=%s", topic)
            return True
        if self._subscriptions.get(topic) is not subscription:
            return True  # the subscription has changed meanwhile: another rebalance follows
        await self._revoke([queue for queue in self._assigned_of(topic) if queue not in mine])
        wanted = sorted(mine.difference(self.assigned.queues()))
        free = [queue for queue in wanted if queue not in self.assigned]
        if self.locks is not None and free:
            free = await self.locks.acquire(free)
        pause_s = self._settings.handover_pause_s if len(members) > 1 and self.locks is None else 0.0
        for queue in free:
            self.assigned.adopt(queue, subscription, pause_s=pause_s, state=QueueState.ASSIGNED)
        try:
            await self._callbacks.assigned(free)
        finally:
            self.assigned.let_pull(free)
        return len(free) == len(wanted)

    async def _release(self, topic: str) -> None:
        queues = self._assigned_of(topic)
        await self._callbacks.revoked(queues)
        await self.assigned.release(queues)

    async def _revoke(self, queues: list[MessageQueue]) -> None:
        """Release queues. An orderly queue is released in the background, once its running handler has ended."""
        await self._callbacks.revoked(queues)
        if self.locks is None:
            await self.assigned.release(queues)
        elif queues:
            self._handovers.spawn("release", self.assigned.release(queues))

    async def _renew_locks(self) -> None:
        assert self.locks is not None
        lost = await self.locks.renew()
        if lost:
            log.warning("locks lost, giving up their queues queues=%s", [str(queue) for queue in lost])
            self._handovers.spawn("forget", self._forget(lost))

    async def _overtaken(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Return the queues in which another member has committed more than this member has acknowledged."""
        committed = await asyncio.gather(*map(self.offsets.committed_offset, queues))
        return {
            queue
            for queue, offset in zip(queues, committed, strict=True)
            if self.assigned.is_behind(queue, offset or 0)
        }

    async def _forget(self, queues: list[MessageQueue]) -> None:
        await self.assigned.forget(queues)
        await self._callbacks.revoked(queues)
        self.group_changed()

    # ------------------------------------------------------------------------------------------------------- offsets

    def puller(self, queue: MessageQueue) -> QueuePuller:
        """Return the puller of a queue. Raises ClientClosed if this member does not read the queue."""
        puller = self.assigned.puller(queue)
        if puller is None:
            raise ClientClosed(f"{queue} is not read by this consumer: assign it first", topic=queue.topic)
        return puller

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that the application receives. Raises the errors of `puller`."""
        return await self.puller(queue).next_offset()

    def _commits_by_pull(self, queue: MessageQueue) -> bool:
        if not self._auto_commit or self.offsets is not self.calls:
            return False
        return self.locks is None or self.locks.holds(queue)

    async def _commit_step(self) -> None:
        await self.assigned.commit()

    async def _start_offset(self, queue: MessageQueue) -> int:
        committed = await self.offsets.committed_offset(queue)
        if committed is not None:
            return committed
        if self.role.consume_from is ConsumeFrom.FIRST or queue.topic.startswith(RETRY_PREFIX):
            return await self.calls.min_offset(queue)
        if isinstance(self.role.consume_from, datetime):
            return await self.calls.offset_at(queue, int(self.role.consume_from.timestamp() * 1000))
        return await self.calls.max_offset(queue)

    def _puller(self, assignment: Assignment, subscription: SubscriptionData, start_at: int | None) -> QueuePuller:
        return QueuePuller(assignment, subscription, self._context, start_at)


def expressions_of(topics: Topics | None) -> Mapping[str, str | Sql92]:
    """Return each topic with its expression; without one, all messages. Raises InvalidArgument for anything else."""
    if topics is None:
        return {}
    with checking_argument("topics"):
        expressions = (
            dict(topics)
            if isinstance(topics, Mapping)
            else dict.fromkeys([topics] if isinstance(topics, str) else topics, EVERYTHING)
        )
    for topic, expression in expressions.items():
        check_topic(topic)
        check_type("expression", expression, str, Sql92)
    return expressions


def _subscription(topic: str, expression: str | Sql92) -> SubscriptionData:
    version = now_ms()
    if isinstance(expression, Sql92):
        return SubscriptionData(topic, expression.expression, sub_version=version, expression_type=SQL92)
    return subscribe(topic, expression, version)
