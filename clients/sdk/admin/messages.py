"""Requests about stored messages: by id, key, queue and offset; their traces and consumption.

    message = await admin.messages.find("Orders", msg_id)
    for track in await admin.messages.tracks(message): ...

Messages are under the topic in which they are stored: `%RETRY%billing` for a redelivered one. Only `of_key`, `of_id`
and `between` restore the original topic. Bodies are inflated, up to MAX_FOUND_BYTES in one result; a body that cannot
be inflated stays as it is stored. Times are Unix times in ms.
Source: docs/reference/wire.md, "Queries", "Pull", "Message traces".
"""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from skylarkmq.clients.sdk.admin.message_tracks import MessageTrack, Tracks
from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.base.arguments import check_offset, check_queue, check_type, time_ms
from skylarkmq.clients.sdk.base.errors import (
    BrokerError,
    ClientError,
    checking_argument,
    invalid_response,
    reading_response,
)
from skylarkmq.clients.sdk.connection.topic_route import address_text
from skylarkmq.clients.sdk.consuming.queue_calls import Pulled, QueueCalls
from skylarkmq.clients.sdk.messages.stored_messages import inflate_or_keep, is_compressed, restore_topic
from skylarkmq.clients.sdk.telemetry.trace_events import TraceEvent, events
from skylarkmq.protocol.bodies.client_state import ConsumeDirectlyResult
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeQueueUnits
from skylarkmq.protocol.codes import RequestCode, ResponseCode, SysFlag, SystemTopic
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES
from skylarkmq.protocol.decimals import INT64_MAX
from skylarkmq.protocol.headers.client_calls import ConsumeDirectlyHeader
from skylarkmq.protocol.headers.queue import QueryMessageHeader, ViewMessageHeader
from skylarkmq.protocol.headers.stats import ConsumeQueueHeader
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.message_id import decode_offset_id
from skylarkmq.protocol.record import decode

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
MAX_FOUND_BYTES: Final = 100 * 1024 * 1024
"""Limit of the inflated bodies of one result; further bodies stay as stored."""
LIGHT_TOPIC_PREFIX: Final = "%LMQ%"
_MAX_PORT: Final = 65_535
_READ_MESSAGES: Final = 32


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages of a key to return: stored from `since_ms` to `until_ms`, at most `limit` from each broker.

    `cluster`: brokers of this cluster only; for a light topic (LMQ) its parent topic.
    """

    limit: int = 64
    since_ms: int = 0
    until_ms: int = INT64_MAX
    cluster: str | None = None


class Messages:
    """The section `Admin.messages`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._tracks = Tracks(requests)
        self._queues = QueueCalls(requests.client, TOOLS_GROUP)

    def __repr__(self) -> str:
        return f"<Messages {self._requests.client}>"

    # ------------------------------------------------------------------------------------------------- by id and key

    async def find(
        self, topic: str, msg_id: str, cluster: str | None = None, *, timeout_s: float | None = None
    ) -> MessageExt | None:
        """Return the message with this offset id or unique id; None if no broker of the topic has it.

        Both kinds of id have the same form. An id that can be an offset id is tried as one first. If its broker returns
        no message, and no message has the unique id, the error of the first attempt is raised.
        """
        failure: ClientError | None = None
        if is_offset_id(msg_id):
            try:
                return await self.at(msg_id, timeout_s=timeout_s)
            except ClientError as error:
                failure = error
        found = await self.with_unique_key(topic, msg_id, KeyQuery(limit=32, cluster=cluster), timeout_s=timeout_s)
        if not found and failure is not None:
            raise failure
        return found[0] if found else None

    async def at(self, offset_msg_id: str, *, timeout_s: float | None = None) -> MessageExt:
        """Return the message with this offset id, from the broker whose address is part of the id."""
        check_type("offset_msg_id", offset_msg_id, str)
        with checking_argument("offset_msg_id"):
            ip, port, offset = decode_offset_id(offset_msg_id)
        address = address_text((ip, port))
        code = RequestCode.VIEW_MESSAGE_BY_ID
        async with self._requests.within(timeout_s, "at"):
            response = await self._requests.send(address, code, ViewMessageHeader(offset=offset))
            with reading_response(code, f"broker {address}"):
                messages = decode(response.body)
            if not messages:
                raise invalid_response(code, f"broker {address}", "no message")
            await _inflate(messages[:1])
        return messages[0]

    async def with_key(
        self, topic: str, key: str, query: KeyQuery | None = None, *, timeout_s: float | None = None
    ) -> list[MessageExt]:
        """Return the messages that have `key` among their KEYS, broker by broker."""
        found = await self._query(topic, key, query or KeyQuery(), False, timeout_s)
        is_light = topic.startswith(LIGHT_TOPIC_PREFIX)
        return [message for message in found if key in message.keys and (is_light or message.topic == topic)]

    async def with_unique_key(
        self, topic: str, key: str, query: KeyQuery | None = None, *, timeout_s: float | None = None
    ) -> list[MessageExt]:
        """Return the messages with this unique id, broker by broker: several if it was sent again or redelivered."""
        found = await self._query(topic, key, query or KeyQuery(limit=32), True, timeout_s)
        return [message for message in found if message.msg_id == key]

    async def with_key_or_id(
        self, topic: str, key: str, query: KeyQuery | None = None, *, timeout_s: float | None = None
    ) -> list[MessageExt]:
        """Return the messages that have `key` among their KEYS or as message id, broker by broker."""
        found = await self._query(topic, key, query or KeyQuery(), False, timeout_s)
        return [message for message in found if key in message.keys or key == message.uniq_key]

    async def of_key(
        self,
        topic: str,
        key: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 64,
        timeout_s: float | None = None,
    ) -> list[MessageExt]:
        """Return the messages that have `key` among their KEYS or as message id, in the order of their store times.

        At most `limit` from each broker. Each is under its original topic.
        """
        check_type("limit", limit, int)
        since_ms = 0 if since is None else time_ms("since", since)
        until_ms = INT64_MAX if until is None else time_ms("until", until)
        query = KeyQuery(limit=limit, since_ms=since_ms, until_ms=until_ms)
        found = await self.with_key_or_id(topic, key, query, timeout_s=timeout_s)
        return [restore_topic(message) for message in sorted(found, key=lambda message: message.store_timestamp)]

    async def of_id(self, offset_msg_id: str, *, timeout_s: float | None = None) -> MessageExt:
        """Return the message with this offset id (`SendResult.offset_msg_id`), under its original topic."""
        return restore_topic(await self.at(offset_msg_id, timeout_s=timeout_s))

    async def _query(
        self, topic: str, key: str, query: KeyQuery, is_unique: bool, timeout_s: float | None
    ) -> list[MessageExt]:
        """Return the messages of this key; brokers compare only hashes of keys."""
        check_type("topic", topic, str)
        check_type("key", key, str)
        header = QueryMessageHeader(
            topic=query.cluster if query.cluster and topic.startswith(LIGHT_TOPIC_PREFIX) else topic,
            key=key,
            max_num=query.limit,
            begin_timestamp=query.since_ms,
            end_timestamp=query.until_ms,
            is_unique_key="true" if is_unique else None,
        )
        found: list[MessageExt] = []
        async with self._requests.within(timeout_s, "with_unique_key" if is_unique else "with_key"):
            for address in await self._addresses(topic, query.cluster):
                found += await self._query_at(address, header)
            await _inflate(found)
        return found

    async def _query_at(self, address: str, header: QueryMessageHeader) -> list[MessageExt]:
        code = RequestCode.QUERY_MESSAGE
        try:
            response = await self._requests.send(address, code, header)
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return []
        with reading_response(code, f"broker {address}", header.topic):
            return decode(response.body)

    async def _addresses(self, topic: str, cluster: str | None) -> list[str]:
        """Return the brokers of a topic's messages; light topics and timers have no route of their own."""
        if cluster and (topic.startswith(LIGHT_TOPIC_PREFIX) or topic == SystemTopic.TIMER):
            return await self._requests.addresses_of(cluster)
        addresses = await self._requests.addresses_of(topic)
        if cluster is None:
            return addresses
        brokers = await self._requests.broker_addresses(cluster)
        members = {address for by_id in brokers.values() for address in by_id.values()}
        return [address for address in addresses if address in members]

    # ------------------------------------------------------------------------------------------------------ by queue

    async def between(
        self, topic: str, since: datetime, until: datetime, *, timeout_s: float | None = None
    ) -> AsyncIterator[MessageExt]:
        """Yield the messages that were stored in [since, until), queue by queue, each under its original topic.
        `timeout_s` limits each request."""
        check_type("topic", topic, str)
        since_ms, until_ms = time_ms("since", since), time_ms("until", until)
        async with self._requests.within(timeout_s, "between"):
            queues = (await self._requests.client.routes.reload(topic)).subscribe_queues
        for queue in queues:
            async with self._requests.within(timeout_s, "between"):
                offset: int | None = await self._queues.offset_at(queue, since_ms)
            while offset is not None:
                async with self._requests.within(timeout_s, "between"):
                    messages, offset = await self._queues.read(queue, offset, _READ_MESSAGES)
                for message in messages:
                    if message.store_timestamp >= until_ms:
                        offset = None
                        break
                    await inflate_or_keep(message)
                    yield restore_topic(message)

    async def earliest(self, queue: MessageQueue, *, timeout_s: float | None = None) -> datetime | None:
        """Return the store time of the first message of a queue; None if the queue is empty."""
        check_queue(queue)
        async with self._requests.within(timeout_s, "earliest"):
            messages, _ = await self._queues.read(queue, await self._queues.min_offset(queue), 1)
        if not messages:
            return None
        try:
            return datetime.fromtimestamp(messages[0].store_timestamp / 1000, UTC)
        except (ValueError, OverflowError, OSError) as error:
            reason = f"a store time of {messages[0].store_timestamp} ms"
            raise invalid_response(RequestCode.PULL_MESSAGE, queue.broker_name, reason, queue.topic) from error

    async def bounds(
        self,
        queue: MessageQueue,
        since_ms: int | None = None,
        until_ms: int | None = None,
        *,
        route_topic: str | None = None,
        timeout_s: float | None = None,
    ) -> tuple[int, int]:
        """Return the offset of a queue's first message, and the offset after its last one.

        With `since_ms` and `until_ms`: the offsets of the first messages stored at or after these times.
        `route_topic`: the parent of a light topic.
        """
        check_queue(queue)
        calls = QueueCalls(self._requests.client, TOOLS_GROUP, route_topic)
        async with self._requests.within(timeout_s, "bounds"):
            first = await (calls.min_offset(queue) if since_ms is None else calls.offset_at(queue, since_ms))
            end = await (calls.max_offset(queue) if until_ms is None else calls.offset_at(queue, until_ms))
        return first, end

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int = 32,
        *,
        tags: str = "*",
        group: str = TOOLS_GROUP,
        route_topic: str | None = None,
        timeout_s: float | None = None,
    ) -> Pulled:
        """Return messages of a queue from `offset` on, at most `count`, without waiting and without a commit.

        `tags`: `A || B`, or `*` for all messages; `group`: the name under which the broker counts the pull.
        """
        check_queue(queue)
        check_offset(offset)
        calls = QueueCalls(self._requests.client, group, route_topic)
        async with self._requests.within(timeout_s, "pull"):
            pulled = await calls.pull_now(queue, offset, count, tags)
            wanted = {tag.strip() for tag in tags.split("||")} - {""}
            messages = pulled.messages
            if wanted and wanted != {"*"}:  # a broker compares only hashes of tags
                messages = [message for message in messages if message.tags in wanted]
            await _inflate(messages)
        return msgspec.structs.replace(pulled, messages=messages)

    async def queue_units(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        count: int = 10,
        group: str | None = None,
        *,
        timeout_s: float | None = None,
    ) -> ConsumeQueueUnits:
        """Return the units of a queue from `offset` on, and with `group` whether its filter matches them.

        `address`: a broker, `host:port`; the queue's broker name is not used.
        """
        check_queue(queue)
        header = ConsumeQueueHeader(
            topic=queue.topic, queue_id=queue.queue_id, index=offset, count=count, consumer_group=group
        )
        async with self._requests.within(timeout_s, "queue_units"):
            return await self._requests.read(ConsumeQueueUnits, address, RequestCode.QUERY_CONSUME_QUEUE, header)

    # ----------------------------------------------------------------------------------------------------- consumption

    async def tracks(self, message: MessageExt, *, timeout_s: float | None = None) -> list[MessageTrack]:
        """Return for each consumer group of the message's topic whether it has consumed the message."""
        check_type("message", message, MessageExt)
        async with self._requests.within(timeout_s, "tracks"):
            return await self._tracks.of(message)

    async def trace(
        self,
        msg_id: str,
        trace_topic: str = SystemTopic.TRACE,
        query: KeyQuery | None = None,
        *,
        timeout_s: float | None = None,
    ) -> list[TraceEvent]:
        """Return the traced events of the message with this unique id, in the order in which they were stored."""
        found = await self.with_key(trace_topic, msg_id, query, timeout_s=timeout_s)
        traced = [event for message in found for event in events(message.body, message.born_host[0])]
        return [event for event in traced if event.msg_id == msg_id]

    async def consume_directly(
        self, group: str, client_id: str, message: MessageExt, *, timeout_s: float | None = None
    ) -> ConsumeDirectlyResult:
        """Have a member of a group handle a message now, and return the result of its handler.

        The broker that stores the message sends it to the client. Offsets do not change.
        """
        check_type("message", message, MessageExt)
        header = ConsumeDirectlyHeader(
            consumer_group=group, client_id=client_id, msg_id=message.offset_msg_id, topic=message.topic
        )
        address = address_text(message.store_host)
        async with self._requests.within(timeout_s, "consume_directly"):
            return await self._requests.read(
                ConsumeDirectlyResult, address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header
            )


def is_offset_id(msg_id: str) -> bool:
    """Return whether an id can be an offset id: the port inside a unique id is rarely below 65,536."""
    try:
        _, port, _ = decode_offset_id(msg_id)
    except ValueError:
        return False
    return 0 < port <= _MAX_PORT


async def _inflate(messages: Iterable[MessageExt]) -> None:
    """Inflate bodies in place, up to MAX_FOUND_BYTES in all. The flags keep the codec, as in RocketMQ's clients."""
    total = 0
    for message in messages:
        flags = message.sys_flag
        await inflate_or_keep(message, min(MAX_PAYLOAD_BYTES, max(MAX_FOUND_BYTES - total, 0)))
        if not is_compressed(message):
            message.sys_flag = flags & ~SysFlag.COMPRESSED
        total += len(message.body)
