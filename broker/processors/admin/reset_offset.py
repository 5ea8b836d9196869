"""INVOKE_BROKER_TO_RESET_OFFSET (222): moves the offsets of a group to a time, to the end, or to a given offset.

On the broker (the default): the broker commits the new offsets, and ignores the group's own commits until it has been
notified. The next pull of each queue gets PULL_OFFSET_MOVED (21); parked pulls are resumed at once. The group needs no
members. The response is written when the offsets are on disk.

At the clients (useServerSideResetOffset=false, as in RocketMQ 4.9): the broker pushes the offsets to every member
(RESET_CONSUMER_CLIENT_OFFSET, 220), which drops its queues, commits the offsets and starts from there. Without members
the request fails with CONSUMER_NOT_ONLINE (206). C++ clients read another form of the body than the others; the broker
chooses the form by the language of each member.

Both look up the offsets of every queue before they change anything. Source: docs/reference/wire.md, "Resetting
offsets".
"""

import logging
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from typing import Final

from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.metadata.client_sessions import ClientMember, ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.processors.admin.client_relays import refuse_older
from skylarkmq.broker.processors.admin.queue_walk import QueueWalk
from skylarkmq.broker.processors.admin.topic import Wait
from skylarkmq.broker.processors.consumer.offsets import refuse_own_group
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.client_state import ListedOffsets, ResetOffsets
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from skylarkmq.protocol.command import NO_RESPONSE_REMARK, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.client_calls import ResetOffsetHeader
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.versions import V3_0_7_SNAPSHOT

ALL_QUEUES: Final = -1
NO_OFFSET: Final = -1
END_TIMESTAMP: Final = -1
"""The timestamp that clients send for the end of a queue; the broker itself accepts any value below 0."""

log = logging.getLogger(__name__)


class ResetOffsetProcessor:
    """Resets the offsets of groups. `saved` waits until offsets are on disk; `by_broker`: useServerSideResetOffset."""

    def __init__(
        self,
        broker_name: str,
        topics: TopicTable,
        groups: SubscriptionGroups,
        sessions: ClientSessions,
        offsets: ConsumerOffsetTable,
        store: MessageStore,
        arrivals: Arrivals,
        saved: Wait,
        *,
        by_broker: bool,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._groups = groups
        self._sessions = sessions
        self._offsets = offsets
        self._store = store
        self._arrivals = arrivals
        self._saved = saved
        self._by_broker = by_broker

    def __repr__(self) -> str:
        return f"<ResetOffsetProcessor by_broker={self._by_broker}>"

    def configure(self, *, by_broker: bool) -> None:
        """Set where later requests reset offsets; earlier resets are unaffected."""
        self._by_broker = by_broker

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset}

    def reset(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve INVOKE_BROKER_TO_RESET_OFFSET (222)."""
        header = command.header(ResetOffsetHeader)
        refuse_own_group(header.group, header.topic)
        return self._reset_on_broker(header) if self._by_broker else self._reset_at_clients(header)

    # -------------------------------------------------------------------------------------------------- on the broker

    async def _reset_on_broker(self, header: ResetOffsetHeader) -> RemotingCommand:
        group, topic = header.group, header.topic
        walk = QueueWalk(self._store)
        offsets = {queue_id: await walk.read(partial(self._target, header, queue_id)) for queue_id in self._ids(header)}
        if not offsets:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        log.info("offsets reset group=%s topic=%s queues=%d to_ms=%d", group, topic, len(offsets), header.timestamp)
        for queue_id, offset in offsets.items():
            self._offsets.reset(group, topic, queue_id, offset)
        for queue_id in offsets:
            await walk.read(partial(self._arrivals.wake, topic, queue_id, group))
        await self._saved()
        return RemotingCommand.response(body=ResetOffsets(self._by_queue(topic, offsets)).encode())

    def _ids(self, header: ResetOffsetHeader) -> Iterable[int]:
        """Return the ids of the queues to reset. Raises RequestError if topic or group does not exist."""
        topic = self._topics.find(header.topic)
        if topic is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if self._groups.find(header.group) is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        wanted = header.queue_id
        if wanted is None or wanted < 0:
            return range(topic.read_queue_nums)
        return [wanted] if wanted < topic.read_queue_nums else []

    def _target(self, header: ResetOffsetHeader, queue_id: int) -> int:
        """Return the new offset of a queue. Raises RequestError if the requested offset is out of range."""
        is_one = header.queue_id is not None and header.queue_id >= 0
        if not is_one or header.offset is None or header.offset == NO_OFFSET:
            return self._offset_at(header.topic, queue_id, header.timestamp)
        first = self._store.min_offset(header.topic, queue_id) or 0
        end = self._end(header.topic, queue_id)
        if not first <= header.offset <= end + 1:
            remark = f"Target offset {header.offset} not in consume queue range [{first}-{end}]"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        return header.offset

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self._end(topic, queue_id)
        return self._store.offset_by_time(topic, queue_id, timestamp)

    def _end(self, topic: str, queue_id: int) -> int:
        return self._store.max_offset(topic, queue_id) or 0

    def _by_queue(self, topic: str, offsets: Mapping[int, int]) -> dict[MessageQueue, int]:
        return {MessageQueue(topic, self._broker_name, queue_id): offset for queue_id, offset in offsets.items()}

    # ------------------------------------------------------------------------------------------------ at the clients

    async def _reset_at_clients(self, header: ResetOffsetHeader) -> RemotingCommand:
        topic = self._topics.find(header.topic)
        if topic is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        walk = QueueWalk(self._store)
        ids = range(topic.write_queue_nums)
        offsets = {queue_id: await walk.read(partial(self._target_of_client, header, queue_id)) for queue_id in ids}
        body = ResetOffsets(self._by_queue(header.topic, offsets))
        group = self._sessions.consumer_group(header.group)
        if group is None:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
            raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        members = list(group.members.values())
        refuse_older(members, V3_0_7_SNAPSHOT)
        log.info("new offsets pushed to members group=%s topic=%s members=%d", header.group, header.topic, len(members))
        forms = {is_cpp: form.encode() for is_cpp, form in ((False, body), (True, ListedOffsets.of(body)))}
        for member in members:
            await walk.read(partial(_push_offsets, member, header, forms[member.language == LanguageCode.CPP.name]))
        return RemotingCommand.response(remark=NO_RESPONSE_REMARK, body=body.encode())

    def _target_of_client(self, header: ResetOffsetHeader, queue_id: int) -> int:
        committed = self._offsets.committed(header.group, header.topic, queue_id)
        if committed is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
        if header.timestamp == END_TIMESTAMP:
            target = self._end(header.topic, queue_id)
        else:
            target = self._store.offset_by_time(header.topic, queue_id, header.timestamp)
        return target if is_true(header.is_force) else min(target, committed)


def _push_offsets(member: ClientMember, header: ResetOffsetHeader, offsets: bytes) -> None:
    """Push RESET_CONSUMER_CLIENT_OFFSET (220) to a member, with the offsets in the form that it reads."""
    header_to_client = ResetOffsetHeader(
        header.group, header.topic, header.timestamp, is_force=False, queue_id=ALL_QUEUES
    )
    request = RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header_to_client, offsets, oneway=True)
    member.channel.push(request)
