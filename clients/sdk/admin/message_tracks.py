"""Tracks: whether the consumer groups of a topic have consumed one message.

The groups come from the first broker of the topic (QUERY_TOPIC_CONSUME_BY_WHO, 300). A group's members, and its
committed offset in the message's queue, determine the state. Rules and texts are the same as in RocketMQ's admin
client. Source: docs/reference/wire.md, "Statistics of topics and groups".
"""

import asyncio
import socket
from enum import StrEnum
from typing import Final

import msgspec

from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.protocol.bodies.connections import ConsumerConnection
from skylarkmq.protocol.bodies.enums import ConsumeType, MessageModel
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeStats, GroupList, OffsetWrapper
from skylarkmq.protocol.codes import RETRY_PREFIX, RequestCode, ResponseCode
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader
from skylarkmq.protocol.headers.stats import ConsumeStatsHeader
from skylarkmq.protocol.headers.topic import TopicHeader
from skylarkmq.protocol.message import MessageExt

STATS_TIMEOUT_S: Final = 15.0


class TrackType(StrEnum):
    """The state of a message in a group."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


class MessageTrack(msgspec.Struct, frozen=True):
    """The state of a message in one group. `reason`: why it is NOT_ONLINE or UNKNOWN."""

    group: str
    track_type: TrackType
    reason: str | None = None


class Tracks:
    """Determines the tracks of messages."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    def __repr__(self) -> str:
        return f"<Tracks {self._requests.client}>"

    async def of(self, message: MessageExt) -> list[MessageTrack]:
        """Return the track of a message for each consumer group of its topic."""
        addresses = await self._requests.addresses_of(message.topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        groups = await self._requests.read(GroupList, addresses[0], code, TopicHeader(topic=message.topic))
        return [await self._track(group, message) for group in groups.group_list]

    async def _track(self, group: str, message: MessageExt) -> MessageTrack:
        try:
            members = await self._members(group)
        except ClientError as error:
            return _failed(group, error)
        if members.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return MessageTrack(group, TrackType.PULL)
        if members.consume_type is not ConsumeType.CONSUME_PASSIVELY:
            return MessageTrack(group, TrackType.UNKNOWN)
        try:
            offsets = await self._offsets(group)
            is_consumed = await self._is_consumed(message, offsets)
        except ClientError as error:
            return _failed(group, error)
        if not offsets and members.message_model is MessageModel.BROADCASTING:
            return MessageTrack(group, TrackType.CONSUME_BROADCASTING)
        if not is_consumed:
            return MessageTrack(group, TrackType.NOT_CONSUME_YET)
        subscription = members.subscription_table.get(message.topic)
        tags = set(subscription.tags_set) if subscription else set()
        is_subscribed = not tags or message.tags in tags or "*" in tags
        return MessageTrack(group, TrackType.CONSUMED if is_subscribed else TrackType.CONSUMED_BUT_FILTERED)

    async def _members(self, group: str) -> ConsumerConnection:
        """Return the members of a group, from a broker that has its retry topic, as consumers connect to all."""
        address = (await self._requests.addresses_of(RETRY_PREFIX + group))[0]
        header = ConsumerGroupHeader(consumer_group=group)
        return await self._requests.read(ConsumerConnection, address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)

    async def _offsets(self, group: str) -> dict[MessageQueue, OffsetWrapper]:
        table: dict[MessageQueue, OffsetWrapper] = {}
        header = ConsumeStatsHeader(consumer_group=group)
        for address in await self._requests.addresses_of(RETRY_PREFIX + group):
            stats = await self._requests.read(
                ConsumeStats, address, RequestCode.GET_CONSUME_STATS, header, timeout_s=STATS_TIMEOUT_S
            )
            table |= stats.offset_table
        return table

    async def _is_consumed(self, message: MessageExt, offsets: dict[MessageQueue, OffsetWrapper]) -> bool:
        """Return whether the committed offset of the message's queue, at the broker that stores it, is after it."""
        brokers = (await self._requests.cluster()).broker_addr_table
        for queue, offset in offsets.items():
            if (queue.topic, queue.queue_id) != (message.topic, message.queue_id):
                continue
            broker = brokers.get(queue.broker_name)
            master = broker.broker_addrs.get(MASTER) if broker else None
            if master is not None and message.store_host in await _hosts(master):
                return offset.consumer_offset > message.queue_offset
        return False


async def _hosts(address: str) -> set[tuple[str, int]]:
    """Return the (ip, port) of a `host:port`, for each IP address of the host; none if it cannot be resolved."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {(str(where[0]), int(where[1])) for *_, where in found}


def _failed(group: str, error: ClientError) -> MessageTrack:
    is_broker_error = isinstance(error, BrokerError)
    kind = TrackType.NOT_ONLINE if error.code == ResponseCode.CONSUMER_NOT_ONLINE else TrackType.UNKNOWN
    reason = f"CODE:{error.code} DESC:{error.remark}" if is_broker_error else str(error)
    return MessageTrack(group, kind, reason)
