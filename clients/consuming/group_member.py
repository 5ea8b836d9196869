"""One member of a consumer group: what it subscribes to, which queues are its share, how far it got with them.

    subscribe / code 40 / every 20 s -> rebalance: members (38) and queues -> allocation -> release, adopt
    every 5 s, at each release, at the stop                                              -> commit

The members of the group agree without talking to each other, because all apply the same rule to what the brokers tell
them (clients/consuming/allocation.py). If the brokers cannot be asked, everything stays as it is and is tried again
soon. A queue that is new here is read from the group's committed offset, or from where `consume_from` points.

A broadcasting member reads all queues whoever else does, and keeps its offsets in a file
(clients/consuming/local_offsets.py). An orderly one reads a queue only while its broker has locked it for this member
(clients/consuming/queue_locks.py).

A queue that another member may still have: an orderly newcomer asks for its lock again after LOCK_PAUSE_MIN_S, and then
less and less often, until the owner has finished its message and given it back, or its lock has run out with it. Others
wait `handover_pause_s` for the owner to commit: it hears of the change from its broker within 50 ms.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from enum import Enum
from typing import Final

import msgspec

from skylarkmq.clients.arguments import check_group
from skylarkmq.clients.connection.background_tasks import Background, Repeat
from skylarkmq.clients.connection.client import Client
from skylarkmq.clients.consuming.allocation import Allocation, averagely, share
from skylarkmq.clients.consuming.assigned_queues import OwnedQueues
from skylarkmq.clients.consuming.consume_rates import SAMPLE_S, ConsumeRates
from skylarkmq.clients.consuming.message_buffer import Sink
from skylarkmq.clients.consuming.queue_calls import QueueCalls
from skylarkmq.clients.consuming.queue_locks import QueueLocks
from skylarkmq.clients.consuming.queue_puller import OffsetStore, QueueReader, Surroundings
from skylarkmq.clients.errors import ClientClosed, ClientError, InvalidMessage, NoRoute
from skylarkmq.clients.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.clients.settings import ConsumerSettings
from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from skylarkmq.protocol.bodies.heartbeat import SQL92, ConsumerData, SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RETRY_PREFIX
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.filters.tag import EVERYTHING, is_tag_type, subscribe
from skylarkmq.protocol.message import check_topic_name

SOON_S: Final = 1.0
LOCK_PAUSE_MIN_S: Final = 0.1  # a broker tells the owner of a change after 50 ms; doubles up to SOON_S

log = logging.getLogger(__name__)


class ConsumeFrom(Enum):
    """Where a group begins in a queue of which it has no committed offset."""

    LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Role(msgspec.Struct, frozen=True):
    """How a member takes part. `consume_from` may be a time: then what was stored at or after it."""

    consume_type: ConsumeType
    consume_from: ConsumeFrom | datetime
    model: MessageModel = MessageModel.CLUSTERING
    orderly: bool = False

    @property
    def broadcasts(self) -> bool:
        """Every member gets everything."""
        return self.model is MessageModel.BROADCASTING

    @property
    def retries(self) -> bool:
        """Reads the group's retry topic too."""
        return self.consume_type is ConsumeType.CONSUME_PASSIVELY and not self.broadcasts


class Sql92(msgspec.Struct, frozen=True):
    """An expression over properties instead of tags: `a > 5 AND region = 'eu'`. The broker must have been told to
    allow it (`enablePropertyFilter`)."""

    expression: str


class GroupMember:
    """A member of `group` on `client`; received messages go to `inbox`. `offsets` None: the brokers keep them."""

    def __init__(
        self,
        client: Client,
        group: str,
        role: Role,
        settings: ConsumerSettings,
        inbox: Sink,
        offsets: OffsetStore | None = None,
        allocation: Allocation = averagely,
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        check_group(group)
        self.group = group
        self.role = role
        self.calls = QueueCalls(client, group)
        self.rates = ConsumeRates()
        self.namespace = namespace
        self.locks = QueueLocks(client, group, self._overtaken, life_s=settings.lock_life_s) if role.orderly else None
        self.offsets: OffsetStore = offsets or self.calls
        self.owned = OwnedQueues(group, self.offsets, self._reader, inbox.settle, self.locks)
        self._client = client
        self._settings = settings
        self._allocation = allocation
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._background = Background(group)
        self._handovers = Background(f"{group}/handover")
        self._rebalance: Repeat | None = None
        self._lock_pause_s = LOCK_PAUSE_MIN_S / 2
        self._surroundings = Surroundings(
            calls=self.calls,
            offsets=self.offsets,
            inbox=inbox,
            settings=settings,
            with_subscription=role.consume_type is ConsumeType.CONSUME_ACTIVELY,
            commits_by_pull=self._commits_by_pull,
            start_offset=self._start_offset,
            beat=client.beat,
            reload_route=client.routes.reload,
            reader_count=self.owned.__len__,
            rates=self.rates,
            namespace=namespace,
        )

    def __repr__(self) -> str:
        return f"<GroupMember {self.group} topics={sorted(self._subscriptions)} {self.owned}>"

    async def start(self, *, auto_commit: bool = True) -> None:
        """Join the group."""
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
        """No more rebalancing and no more pulls; what was received can still be finished."""
        await self._background.stop()
        await self.owned.stop_reading()

    async def leave(self, *, commit: bool = True) -> None:
        """Commit, and tell the brokers: the others take over. Handlers have ended by now."""
        await self._handovers.finish()
        if commit:
            await self.owned.commit()
        if self.locks is not None:
            await self.locks.release_all()
        await self._client.leave_as_consumer(self)

    # ------------------------------------------------------------------------------------------------- subscriptions

    async def subscribe(self, topic: str, expression: str | Sql92) -> None:
        """Read `topic` from now on, or with another expression; done when the brokers were told.

        BrokerError if one of them does not understand the expression, or does not allow it.
        """
        if self._rebalance is None:
            raise ClientClosed(f"consumer {self.group} is not running: use it inside `async with`, or call start()")
        try:
            check_topic_name(topic)
        except RequestError as error:
            raise InvalidMessage(f"topic {topic!r}: {error.remark}", code=error.code, topic=topic) from error
        subscription = _subscription(topic, expression)
        try:
            await self._client.routes.find(topic)
        except NoRoute as error:
            log.warning("subscribed to a topic without a route, waiting for it topic=%s error=%s", topic, error)
        else:
            if not is_tag_type(subscription.expression_type):
                await self.calls.check(subscription)
        self._subscriptions[topic] = subscription
        await self._client.beat()
        await self.owned.release(self._owned_of(topic))  # they are read with the old expression
        self._rebalance.soon()

    async def unsubscribe(self, topic: str) -> None:
        """Give up a topic and its queues."""
        self._subscriptions.pop(topic, None)
        await self.owned.release(self._owned_of(topic))
        await self._client.beat()

    def subscription(self, topic: str) -> SubscriptionData:
        """What the member wants of a topic; everything, if it never said."""
        return self._subscriptions.get(topic) or subscribe(topic, EVERYTHING, 0)

    @property
    def name_servers(self) -> Sequence[str]:
        """Their addresses."""
        return self._client.name_servers

    @property
    def subscriptions(self) -> list[SubscriptionData]:
        """What the member wants, the retry topic included."""
        return list(self._subscriptions.values())

    def consumer_data(self) -> ConsumerData:
        """The member in a heartbeat."""
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

    def _owned_of(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self.owned.queues() if queue.topic == topic]

    # ----------------------------------------------------------------------------------------------------- rebalance

    def group_changed(self) -> None:
        """Somebody joined or left: look again, now."""
        if self._rebalance is not None:
            self._rebalance.soon()

    async def rebalance(self) -> float | None:
        """Take and give up queues until they are this member's share; returns a pause in s if that did not work."""
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
        """False if this member's share is not yet its own."""
        route = await self._client.routes.find(topic)
        members = [] if self.role.broadcasts else await self.calls.members(topic)
        queues = route.subscribe_queues
        own_id = self._client.client_id
        try:
            mine = set(queues if self.role.broadcasts else share(self._allocation, queues, members, own_id))
        except Exception:
            log.exception("the rule of allocation failed, everything stays as it is topic=%s", topic)
            return True
        if self._subscriptions.get(topic) is not subscription:
            return True  # changed meanwhile: another round follows
        await self._give_up([queue for queue in self._owned_of(topic) if queue not in mine])
        wanted = sorted(mine.difference(self.owned.queues()))
        free = [queue for queue in wanted if queue not in self.owned]
        if self.locks is not None and free:
            free = await self.locks.acquire(free)
        pause_s = self._settings.handover_pause_s if len(members) > 1 and self.locks is None else 0.0
        for queue in free:
            self.owned.adopt(queue, subscription, pause_s=pause_s)
        return len(free) == len(wanted)

    async def _give_up(self, queues: list[MessageQueue]) -> None:
        """An orderly queue goes when its running handler is through, which nobody else waits for."""
        if self.locks is None:
            await self.owned.release(queues)
        elif queues:
            self._handovers.spawn("release", self.owned.release(queues))

    async def _renew_locks(self) -> None:
        assert self.locks is not None
        lost = await self.locks.renew()
        if lost:
            log.warning("locks lost, giving up their queues queues=%s", [str(queue) for queue in lost])
            self._handovers.spawn("forget", self._forget(lost))

    async def _overtaken(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Those in which another member of the group has committed more than is finished here."""
        committed = await asyncio.gather(*map(self.offsets.committed_offset, queues))
        return {
            queue for queue, offset in zip(queues, committed, strict=True) if self.owned.is_behind(queue, offset or 0)
        }

    async def _forget(self, queues: list[MessageQueue]) -> None:
        await self.owned.forget(queues)
        self.group_changed()

    # ------------------------------------------------------------------------------------------------------- offsets

    def _commits_by_pull(self, queue: MessageQueue) -> bool:
        return self.offsets is self.calls and (self.locks is None or self.locks.holds(queue))

    async def _commit_step(self) -> None:
        await self.owned.commit()

    async def _start_offset(self, queue: MessageQueue) -> int:
        committed = await self.offsets.committed_offset(queue)
        if committed is not None:
            return committed
        if self.role.consume_from is ConsumeFrom.FIRST or queue.topic.startswith(RETRY_PREFIX):
            return await self.calls.min_offset(queue)
        if isinstance(self.role.consume_from, datetime):
            return await self.calls.offset_at(queue, int(self.role.consume_from.timestamp() * 1000))
        return await self.calls.max_offset(queue)

    def _reader(self, queue: MessageQueue, subscription: SubscriptionData, start_at: int | None) -> QueueReader:
        return QueueReader(queue, subscription, self._surroundings, start_at)


def _subscription(topic: str, expression: str | Sql92) -> SubscriptionData:
    now_ms = time.time_ns() // 1_000_000
    if isinstance(expression, Sql92):
        return SubscriptionData(topic, expression.expression, sub_version=now_ms, expression_type=SQL92)
    return subscribe(topic, expression, now_ms)
