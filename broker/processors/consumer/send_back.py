"""Negative acknowledgements: CONSUMER_SEND_MSG_BACK (36).

    checks -> the original, with cold-read retry -> retry or dead letter -> Deferral -> InternalPuts -> response

The request names the physical offset of the message. The broker redelivers it through the group's retry topic, after a
delay that grows with every attempt (starting at level 3), or stores it as a dead letter if it has reached the retry
limit or the request asks for that. The stored message is a new record with the original's body and properties. It names
the original topic (RETRY_TOPIC), the first record (ORIGIN_MESSAGE_ID), and the number of attempts. A message whose
topic the caller may not read counts as absent.

The response does not wait for the flush of that record: the consumer commits its offset after the response anyway.
Source: docs/reference/wire.md, "Retries and dead letters".
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from skylarkmq.broker.access.message_rights import MessageRights
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.delivery.cold_read_retry import looked_up
from skylarkmq.broker.delivery.deferral import Defer
from skylarkmq.broker.delivery.internal_puts import InternalPuts
from skylarkmq.broker.delivery.message_type import DELAY
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import UNIT_SUB, TopicTable
from skylarkmq.broker.processors.send.checks import SendConfig, retry_limit
from skylarkmq.broker.processors.send.messages import any_queue
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.files.record_rules import has_unit
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import (
    DLQ_PREFIX,
    FAQ,
    RETRY_PREFIX,
    Permission,
    RequestCode,
    ResponseCode,
    is_internal_topic,
)
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.decimals import INT32_MAX
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.send_back import SendBackHeader
from skylarkmq.protocol.message import PropertyName, decode_properties, encode_properties, tags_code
from skylarkmq.protocol.message_id import encode_offset_id
from skylarkmq.protocol.record import Record, parse

FIRST_LEVEL: Final = 3
"""Delay level of the first retry: 10 s by default."""
AT_ONCE: Final = "0"


class SendBackStatistics(msgspec.Struct, frozen=True):
    """Messages sent back since the start, by outcome."""

    retries: int
    dead_letters: int


class SendBackProcessor:
    """Stores the messages that consumers send back. `now_ms` gives Unix time."""

    def __init__(
        self,
        config: SendConfig,
        topics: TopicTable,
        groups: SubscriptionGroups,
        store: MessageStore,
        puts: InternalPuts,
        defer: Defer,
        rights: MessageRights,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._store = store
        self._puts = puts
        self._defer = defer
        self._rights = rights
        self._now_ms = now_ms
        self._retries = 0
        self._dead_letters = 0
        self.sent_back = DeliveryCounters()
        """Messages sent back, by topic and group."""

    def __repr__(self) -> str:
        return f"<SendBackProcessor retries={self._retries} dead_letters={self._dead_letters}>"

    def statistics(self) -> SendBackStatistics:
        """Return the current totals."""
        return SendBackStatistics(self._retries, self._dead_letters)

    def configure(self, config: SendConfig) -> None:
        """Apply new settings to the requests that follow."""
        self._config = config

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(
        self, source: RequestSource, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Serve CONSUMER_SEND_MSG_BACK (36)."""
        header = command.header(SendBackHeader)
        group = self._groups.find_or_create(header.group)
        if group is None:
            remark = f"subscription group not exist, {header.group} {FAQ}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._config.broker_permission & Permission.WRITE:
            remark = f"the broker[{self._config.broker_ip}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        if group.retry_queue_nums <= 0:
            return RemotingCommand.response()  # retries are off for this group
        limit = retry_limit(group, header.max_reconsume_times, command.version)
        may_read = partial(self._may_read, source, command)
        return self._send_back(header, group, self._retry_topic(header, group), limit, may_read)

    def _may_read(self, source: RequestSource, command: RemotingCommand, topic: str) -> bool:
        return self._rights.rights_of(source, command)(topic, Action.SUB)

    def _retry_topic(self, header: SendBackHeader, group: SubscriptionGroupConfig) -> TopicConfig:
        sys_flag = UNIT_SUB if is_true(header.unit_mode) else 0
        topic = self._topics.create_for_group(RETRY_PREFIX + header.group, group.retry_queue_nums, sys_flag=sys_flag)
        if not topic.perm & Permission.WRITE:
            remark = f"the topic[{topic.topic_name}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        return topic

    async def _send_back(
        self,
        header: SendBackHeader,
        group: SubscriptionGroupConfig,
        retry_topic: TopicConfig,
        limit: int,
        may_read: Callable[[str], bool],
    ) -> RemotingCommand:
        original = await self._original(header.offset, may_read)
        properties = retry_properties(original)
        topic = properties[PropertyName.RETRY_TOPIC]
        tried = original.reconsume_times
        is_dead = tried >= limit or header.delay_level < 0
        if is_dead:
            append = self._dead_letter(original, properties, group)
        else:
            level = header.delay_level or FIRST_LEVEL + tried
            append = self._retry(original, properties, retry_topic, level)
        status = await self._puts.put(append)
        if status is not PutStatus.PUT_OK:
            raise RequestError(ResponseCode.SYSTEM_ERROR, status.name)
        self._note(append, topic, header.group, is_dead=is_dead)
        return RemotingCommand.response()

    async def _original(self, offset: int, may_read: Callable[[str], bool]) -> Record:
        data = await looked_up(self._store, lambda: self._store.record_at(offset))
        record = None if data is None else parse(memoryview(data), check_body=False)
        if not isinstance(record, Record) or not (may_be_consumed(record) and may_read(record.topic)):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        return record

    def _retry(self, original: Record, properties: dict[str, str], topic: TopicConfig, level: int) -> Append:
        properties[PropertyName.DELAY] = str(level)
        append = copy_for_retry(original, properties, topic.topic_name, any_queue(topic))
        refusal = self._defer(append, properties, self._now_ms())
        if refusal is not None:
            append.status = refusal
        return append

    def _dead_letter(self, original: Record, properties: dict[str, str], group: SubscriptionGroupConfig) -> Append:
        """Return the append of a dead letter. Its properties do not defer it again."""
        properties[PropertyName.DELAY] = AT_ONCE
        topic = self._topics.create_for_group(DLQ_PREFIX + group.group_name)
        return copy_for_retry(original, properties, topic.topic_name, 0)

    def _note(self, append: Append, topic: str, group: str, *, is_dead: bool) -> None:
        self.sent_back.note(topic, group, 1, append.size)
        if is_dead:
            self._dead_letters += 1
        else:
            self._retries += 1
            self._store.queues.note_message_type(append.topic, DELAY, append.size)


def may_be_consumed(record: Record) -> bool:
    """Return whether a consumer can have received this message.

    Half messages, deferred messages, and other records in the broker's own topics would reach a group too early or
    uncommitted.
    """
    return has_unit(record.sys_flag) and not is_internal_topic(record.topic)


def retry_properties(original: Record) -> dict[str, str]:
    """Return the properties of a message for its next attempt, without the delay."""
    properties = decode_properties(original.properties.decode("utf-8", "replace"))
    properties.setdefault(PropertyName.RETRY_TOPIC, original.topic)
    properties[PropertyName.WAIT] = "false"
    first = encode_offset_id(original.store_host, original.physical_offset)
    properties.setdefault(PropertyName.ORIGIN_MESSAGE_ID, first)
    return properties


def copy_for_retry(original: Record, properties: dict[str, str], topic: str, queue_id: int) -> Append:
    """Return the original as a new message with one more attempt. The count is capped at INT32_MAX, since producers may
    set any value."""
    return Append(
        topic,
        queue_id,
        original.body,
        encode_properties(properties).encode("utf-8", "replace"),
        tags_code(properties.get(PropertyName.TAGS)),
        original.flag,
        original.sys_flag,
        original.born_timestamp,
        original.born_host,
        min(original.reconsume_times + 1, INT32_MAX),
        0,
        False,
    )
