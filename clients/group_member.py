"""One member of a consumer group: what it subscribes to, which queues are its share, how far it got with them.

    subscribe / code 40 / every 20 s -> rebalance: members (38) and queues -> allocate_averagely -> release, adopt
    every 5 s, at each release, at the stop                                                     -> commit

The members of the group agree without talking to each other, because all apply the same rule to what the brokers tell
them (clients/rebalance.py). If the brokers cannot be asked, everything stays as it is and is tried again soon.
A queue that is new here is read from the group's committed offset, or from where `consume_from` points.
"""

import logging
import time
from datetime import datetime
from enum import Enum

import msgspec

from clients.background import Background, Repeat
from clients.client import Client
from clients.errors import ClientClosed, ClientError, InvalidMessage, NoRoute
from clients.inbox import Inbox
from clients.owned_queues import OwnedQueues
from clients.queue_calls import QueueCalls
from clients.queue_reader import QueueReader, Surroundings
from clients.rebalance import allocate_averagely
from clients.settings import ConsumerSettings
from protocol.bodies.enums import ConsumeFromWhere, ConsumeType
from protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from protocol.bodies.message_queue import MessageQueue
from protocol.codes import RETRY_PREFIX
from protocol.errors import RequestError
from protocol.filters.tag import EVERYTHING, subscribe
from protocol.message import check_group_name, check_topic_name

SOON_S = 1.0

log = logging.getLogger(__name__)


class ConsumeFrom(Enum):
    """Where a group begins in a queue of which it has no committed offset."""

    LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Role(msgspec.Struct, frozen=True):
    """How a member takes part. `consume_from` may be a time: then what was stored at or after it."""

    consume_type: ConsumeType
    consume_from: ConsumeFrom | datetime
    retries: bool  # reads the group's retry topic too


class GroupMember:
    """A member of `group` on `client`; received messages go to `inbox`."""

    def __init__(self, client: Client, group: str, role: Role, settings: ConsumerSettings, inbox: Inbox) -> None:
        check_group_name(group)
        self.group = group
        self.calls = QueueCalls(client, group)
        self.owned = OwnedQueues(group, self.calls, self._reader)
        self._client = client
        self._role = role
        self._settings = settings
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._background = Background(group)
        self._rebalance: Repeat | None = None
        self._surroundings = Surroundings(
            calls=self.calls,
            inbox=inbox,
            settings=settings,
            with_subscription=role.consume_type is ConsumeType.CONSUME_ACTIVELY,
            start_offset=self._start_offset,
            beat=client.beat,
            reload_route=client.routes.reload,
            reader_count=self.owned.__len__,
        )

    def __repr__(self) -> str:
        return f"<GroupMember {self.group} topics={sorted(self._subscriptions)} {self.owned}>"

    async def start(self, *, auto_commit: bool = True) -> None:
        """Join the group."""
        if self._role.retries:
            self._subscribe(RETRY_PREFIX + self.group, EVERYTHING)
        self._client.join_as_consumer(self)
        self._rebalance = self._background.repeat("rebalance", self.rebalance, self._settings.rebalance_interval_s)
        if auto_commit:
            self._background.repeat("commit", self._commit_step, self._settings.commit_interval_s)

    async def stop_reading(self) -> None:
        """No more rebalancing and no more pulls; what was received can still be finished."""
        await self._background.stop()
        await self.owned.stop_reading()

    async def leave(self, *, commit: bool = True) -> None:
        """Commit, and tell the brokers: the others take over."""
        if commit:
            await self.owned.commit()
        await self._client.leave_as_consumer(self)

    # ------------------------------------------------------------------------------------------------- subscriptions

    async def subscribe(self, topic: str, expression: str) -> None:
        """Read `topic` from now on, or with another expression; done when the brokers were told."""
        if self._rebalance is None:
            raise ClientClosed(f"consumer {self.group} is not running: use it inside `async with`, or call start()")
        try:
            check_topic_name(topic)
        except RequestError as error:
            raise InvalidMessage(f"topic {topic!r}: {error.remark}", code=error.code, topic=topic) from error
        self._subscribe(topic, expression)
        try:
            await self._client.routes.find(topic)
        except NoRoute as error:
            log.warning("subscribed to a topic without a route, waiting for it topic=%s error=%s", topic, error)
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

    def consumer_data(self) -> ConsumerData:
        """The member in a heartbeat."""
        where = self._role.consume_from
        return ConsumerData(
            group_name=self.group,
            consume_type=self._role.consume_type,
            consume_from_where=(
                where.value if isinstance(where, ConsumeFrom) else ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
            ),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def _owned_of(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self.owned.queues() if queue.topic == topic]

    def _subscribe(self, topic: str, expression: str) -> None:
        self._subscriptions[topic] = subscribe(topic, expression, time.time_ns() // 1_000_000)

    # ----------------------------------------------------------------------------------------------------- rebalance

    def group_changed(self) -> None:
        """Somebody joined or left: look again, now."""
        if self._rebalance is not None:
            self._rebalance.soon()

    async def rebalance(self) -> float | None:
        """Take and give up queues until they are this member's share; returns a pause in s if that did not work."""
        pause_s = None
        for topic, subscription in list(self._subscriptions.items()):
            try:
                await self._rebalance_topic(topic, subscription)
            except NoRoute as error:
                log.debug("topic without a route topic=%s error=%s", topic, error)
                pause_s = SOON_S
            except ClientError as error:
                log.warning("not rebalanced, trying again topic=%s error=%s", topic, error)
                await self._client.beat()
                pause_s = SOON_S
        return pause_s

    async def _rebalance_topic(self, topic: str, subscription: SubscriptionData) -> None:
        route = await self._client.routes.find(topic)
        members = await self.calls.members(topic)
        share = set(allocate_averagely(route.subscribe_queues, members, self._client.client_id))
        if self._subscriptions.get(topic) is not subscription:
            return  # changed meanwhile: another round follows
        await self.owned.release(queue for queue in self._owned_of(topic) if queue not in share)
        pause_s = self._settings.handover_pause_s if len(members) > 1 else 0.0
        for queue in sorted(share):
            if queue not in self.owned:
                self.owned.adopt(queue, subscription, pause_s=pause_s)

    # ------------------------------------------------------------------------------------------------------- offsets

    async def _commit_step(self) -> None:
        await self.owned.commit()

    async def _start_offset(self, queue: MessageQueue) -> int:
        committed = await self.calls.committed_offset(queue)
        if committed is not None:
            return committed
        if self._role.consume_from is ConsumeFrom.FIRST or queue.topic.startswith(RETRY_PREFIX):
            return await self.calls.min_offset(queue)
        if isinstance(self._role.consume_from, datetime):
            return await self.calls.offset_at(queue, int(self._role.consume_from.timestamp() * 1000))
        return await self.calls.max_offset(queue)

    def _reader(self, queue: MessageQueue, subscription: SubscriptionData, start_at: int | None) -> QueueReader:
        return QueueReader(queue, subscription, self._surroundings, start_at)
