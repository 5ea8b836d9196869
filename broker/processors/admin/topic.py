"""Topics: UPDATE_AND_CREATE_TOPIC (17), UPDATE_AND_CREATE_TOPIC_LIST (18), DELETE_TOPIC_IN_BROKER (215),
GET_ALL_TOPIC_CONFIG (21), GET_TOPIC_CONFIG (351), GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305).

Before a change is confirmed, it is on disk, and registered with every name server that can be reached: the client may
use the topic at once. Deletion removes the topic's configuration, queues and committed offsets. Its records stay in the
log until they expire, and the client that deletes a topic also deletes it from the name servers.

Source: docs/reference/wire.md, "Topics".
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Final

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.processors.send.retention import ATTRIBUTE as RETENTION_BYTES
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.cluster import TopicList
from skylarkmq.protocol.bodies.enums import TopicFilterType
from skylarkmq.protocol.bodies.stats import TopicConfigList
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RESERVED_TOPICS, RequestCode, ResponseCode
from skylarkmq.protocol.command import NO_RESPONSE_REMARK, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.topic import CreateTopicHeader, TopicHeader
from skylarkmq.protocol.message import check_client_topic

MESSAGE_TYPE: Final = "message.type"
MESSAGE_TYPES: Final = frozenset(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"))
MIXED: Final = "MIXED"
SIGNS: Final = ("+", "-")
TIME_BOUNDS_MS: Final = (10, 100, 1_000, 3_000, 5_000)

Wait = Callable[[], Awaitable[None]]
"""Waits until a change is saved, or registered."""

log = logging.getLogger(__name__)


class TopicProcessor:
    """Creates, changes, lists and deletes topics.

    `saved` waits until topics are on disk, `announced` until the name servers have them.
    """

    def __init__(
        self,
        topics: TopicTable,
        offsets: ConsumerOffsetTable,
        store: MessageStore,
        saved: Wait,
        announced: Wait,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._saved = saved
        self._announced = announced
        self.times: dict[tuple[bool, bool], Histogram] = {}
        """Durations in ms of requests that set a topic, by (success, system topic)."""

    def __repr__(self) -> str:
        return f"<TopicProcessor {self._topics!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_all,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.list_all,
            RequestCode.GET_TOPIC_CONFIG: self.get,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.list_system,
        }

    def update(
        self, source: RequestSource, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Serve UPDATE_AND_CREATE_TOPIC (17)."""
        began_s = monotonic()
        header = command.header(CreateTopicHeader)
        is_system = self._topics.is_system(header.topic)
        try:
            is_changed = self._set(source, self._wanted(header))
        except RequestError:
            self._note_duration(began_s, is_system=is_system, is_success=False)
            raise
        if is_changed:
            return self._respond_when_announced(began_s, is_system=is_system)
        self._note_duration(began_s, is_system=is_system, is_success=True)
        return RemotingCommand.response(remark=NO_RESPONSE_REMARK)

    def update_all(
        self, source: RequestSource, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Serve UPDATE_AND_CREATE_TOPIC_LIST (18): set all topics, or none if one is invalid."""
        began_s = monotonic()
        listed = TopicConfigList.decode_request(command.body).topic_config_list
        wanted = [self._wanted(_as_header(topic)) for topic in listed]
        changed = self._topics.update_all(wanted)
        for topic in changed:
            log.info("topic created or changed by request topic=%s peer=%s", topic.topic_name, source.peer)
        if changed:
            return self._respond_when_announced(began_s, is_system=False)
        return RemotingCommand.response(remark=NO_RESPONSE_REMARK)

    def _wanted(self, header: CreateTopicHeader) -> TopicConfig:
        """Return the topic that the request describes. Raises RequestError if it is invalid."""
        filter_type = _filter_type(header.topic_filter_type)
        check_client_topic(header.topic)
        self._check_is_no_system_topic(header.topic)
        known = self._topics.find(header.topic)
        return TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=is_true(header.order),
            attributes=changed_attributes({} if known is None else known.attributes, header.attributes),
        )

    def _set(self, source: RequestSource, topic: TopicConfig) -> bool:
        """Create or change a topic, and return whether that changed anything."""
        is_changed = self._topics.update(topic)
        if is_changed:
            log.info("topic created or changed by request topic=%s peer=%s", topic.topic_name, source.peer)
        return is_changed

    async def _respond_when_announced(self, began_s: float, *, is_system: bool) -> RemotingCommand:
        await self._saved()
        await self._announced()
        self._note_duration(began_s, is_system=is_system, is_success=True)
        return RemotingCommand.response(remark=NO_RESPONSE_REMARK)

    def _note_duration(self, began_s: float, *, is_system: bool, is_success: bool) -> None:
        took = self.times.get((is_success, is_system))
        if took is None:
            took = self.times[is_success, is_system] = Histogram(TIME_BOUNDS_MS)
        took.note((monotonic() - began_s) * 1000)

    def delete(
        self, source: RequestSource, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Serve DELETE_TOPIC_IN_BROKER (215)."""
        name = command.header(TopicHeader).topic
        if not name.strip():
            raise RequestError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._check_is_no_system_topic(name)
        log.info("topic deleted by request topic=%s peer=%s", name, source.peer)
        was_there = self._topics.delete(name)
        self._offsets.remove_topic(name)
        return self._delete_queues(name, was_there=was_there)

    async def _delete_queues(self, name: str, *, was_there: bool) -> RemotingCommand:
        await self._store.delete_topic(name, may_have_delayed=was_there)
        if was_there:
            await self._saved()
        return RemotingCommand.response()

    def list_all(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_ALL_TOPIC_CONFIG (21)."""
        return RemotingCommand.response(body=self._topics.encode())

    def get(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve GET_TOPIC_CONFIG (351)."""
        name = command.header(TopicHeader).topic
        topic = self._topics.find(name)
        if topic is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return RemotingCommand.response(body=topic.encode())

    def list_system(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305): the reserved topics, and this broker's own ones that exist."""
        own = (topic.topic_name for topic in self._topics if self._topics.is_system(topic.topic_name))
        return RemotingCommand.response(body=TopicList(sorted({*RESERVED_TOPICS, *own})).encode())

    def _check_is_no_system_topic(self, name: str) -> None:
        if self._topics.is_system(name):
            remark = f"The topic[{name}] is conflict with system topic."
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)


def _as_header(topic: TopicConfig) -> CreateTopicHeader:
    """Return a topic of a list as a request for it alone; attributes without a sign are set."""
    changes = (f"{name if name[:1] in SIGNS else f'+{name}'}={value}" for name, value in topic.attributes.items())
    return CreateTopicHeader(
        topic=topic.topic_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm,
        topic_filter_type=topic.topic_filter_type.value,
        topic_sys_flag=topic.topic_sys_flag,
        order=topic.order,
        attributes=",".join(changes),
    )


def changed_attributes(current: Mapping[str, str], changes: str | None) -> dict[str, str]:
    """Return `current` after changes such as `+message.type=FIFO` and `-message.type`, separated by commas."""
    attributes = dict(current)
    for change in filter(None, (part.strip() for part in (changes or "").split(","))):
        name, _, value = change[1:].partition("=")
        name = name.strip()
        parse = ATTRIBUTES.get(name)
        if parse is None or change[0] not in SIGNS:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"unsupported key: {change.lstrip('+-').partition('=')[0]}")
        if change[0] == "-":
            attributes.pop(name, None)
        else:
            attributes[name] = parse(value.strip())
    return attributes


def _message_type(value: str) -> str:
    if value == MIXED:
        raise RequestError(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
    if value not in MESSAGE_TYPES:
        remark = f"value of {MESSAGE_TYPE} is not one of {', '.join(sorted(MESSAGE_TYPES))}: {value}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
    return value


def _retained_bytes(value: str) -> str:
    if not re.fullmatch("[0-9]{1,19}", value) or not 0 < int(value) < 2**63:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"value of {RETENTION_BYTES} is not in range(1, {2**63 - 1})")
    return str(int(value))


ATTRIBUTES: Final = {MESSAGE_TYPE: _message_type, RETENTION_BYTES: _retained_bytes}
"""The attributes of topics, and the functions that check a value. `retention.bytes` is ours."""


def _filter_type(text: str | None) -> TopicFilterType:
    try:
        return TopicFilterType(text or "")
    except ValueError:
        remark = f"topicFilterType = [{'null' if text is None else text}] value invalid"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from None
