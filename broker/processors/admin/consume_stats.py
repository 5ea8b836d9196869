"""Consumption progress of groups: GET_CONSUME_STATS (208), QUERY_TOPIC_CONSUME_BY_WHO (300), QUERY_CONSUME_TIME_SPAN
(303), GET_BROKER_CONSUME_STATS (317), GET_ALL_CONSUMER_OFFSET (43).

A topic belongs to a group if the group has committed offsets of it, or members that subscribe to it. While a group has
members, only the topics that they subscribe to count: old offsets of other topics are no lag. A queue without a
committed offset counts from 0. All times are store times; rates cover the last minute.

Source: docs/reference/wire.md, "Statistics of topics and groups".
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from skylarkmq.broker.counters.stats_windows import StatsWindows
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import SEPARATOR, ConsumerOffsetTable
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.processors.admin.counters import GROUP_GET
from skylarkmq.broker.processors.admin.queue_walk import QueueWalk, in_slices
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    GroupList,
    OffsetWrapper,
    QueueTimeSpan,
    queues_of,
)
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.stats import BrokerConsumeStatsHeader, ConsumeStatsHeader, ConsumeTimeSpanHeader
from skylarkmq.protocol.headers.topic import TopicHeader

UNKNOWN_TIME: Final = -1


class Identity(NamedTuple):
    """Name and address of this broker in responses."""

    name: str
    address: str  # host:port


class ConsumeStatsProcessor:
    """Reports the progress of groups. `now_ms` gives Unix time."""

    def __init__(
        self,
        identity: Identity,
        topics: TopicTable,
        groups: SubscriptionGroups,
        sessions: ClientSessions,
        offsets: ConsumerOffsetTable,
        store: MessageStore,
        windows: StatsWindows,
        now_ms: Callable[[], int],
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._groups = groups
        self._sessions = sessions
        self._offsets = offsets
        self._store = store
        self._windows = windows
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<ConsumeStatsProcessor {self._offsets!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_spans,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_consume_stats,
        }

    def all_offsets(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_ALL_CONSUMER_OFFSET (43)."""
        if not self._offsets.table():
            raise RequestError(ResponseCode.SYSTEM_ERROR, "No consumer offset in this broker")
        return RemotingCommand.response(body=self._offsets.encode_with_groups())

    def groups_of_topic(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve QUERY_TOPIC_CONSUME_BY_WHO (300)."""
        topic = command.header(TopicHeader).topic
        online = [group.name for group in self._sessions.consumer_groups() if topic in group.subscriptions]
        return RemotingCommand.response(body=GroupList(sorted({*online, *self._offsets.groups_of(topic)})).encode())

    # ------------------------------------------------------------------------------------------------------- 208, 317

    def consume_stats(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve GET_CONSUME_STATS (208)."""
        return self._consume_stats(command.header(ConsumeStatsHeader))

    async def _consume_stats(self, header: ConsumeStatsHeader) -> RemotingCommand:
        group = header.consumer_group
        if header.topic_list:
            names = [name for name in header.topic_list.split(";") if name]
        else:
            names = [header.topic] if header.topic and header.topic.strip() else self._offsets.topics_of(group)
            names = [name for name in names if self._consumes(group, name)]
        walk, response = QueueWalk(self._store), ConsumeStats(offset_table={})
        for topic in filter(None, map(self._topics.find, names)):
            await self._add(response, walk, topic, group, topic.read_queue_nums)
        return RemotingCommand.response(body=b"".join(await in_slices(response.pieces())))

    def all_consume_stats(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve GET_BROKER_CONSUME_STATS (317)."""
        return self._all_consume_stats(only_ordered=is_true(command.header(BrokerConsumeStatsHeader).is_order))

    async def _all_consume_stats(self, *, only_ordered: bool) -> RemotingCommand:
        walk = QueueWalk(self._store)
        response = ConsumeStatsList(consume_stats_list=[], broker_addr=self._identity.address)
        for group in [group.group_name for group in self._groups]:
            stats = []
            for name in self._offsets.topics_of(group):
                topic = self._topics.find(name)
                if topic is None or (only_ordered and not topic.order) or not self._consumes(group, name):
                    continue
                stats.append(ConsumeStats(offset_table={}))
                await self._add(stats[-1], walk, topic, group, topic.write_queue_nums)
            response.consume_stats_list.append({group: stats})
        return RemotingCommand.response(body=b"".join(await in_slices(response.pieces())))

    def _consumes(self, group: str, topic: str) -> bool:
        """Return whether the group consumes the topic: it has no members or no subscriptions, or it subscribes to the
        topic."""
        members = self._sessions.consumer_group(group)
        return members is None or not members.subscriptions or topic in members.subscriptions

    async def _add(self, stats: ConsumeStats, walk: QueueWalk, topic: TopicConfig, group: str, queues: int) -> None:
        name = topic.topic_name
        for queue in queues_of(name, self._identity.name, queues):
            stats.offset_table[queue] = await walk.read(partial(self._progress, queue, group))
        growth = self._windows.growth(GROUP_GET, name + SEPARATOR + group)
        if growth is not None:
            stats.consume_tps += growth.per_second(growth.sums.messages)

    def _progress(self, queue: MessageQueue, group: str) -> OffsetWrapper:
        topic, queue_id = queue.topic, queue.queue_id
        consumed = self._offsets.committed(group, topic, queue_id) or 0
        pulled = self._offsets.pulled(group, topic, queue_id) or 0
        return OffsetWrapper(
            broker_offset=self._store.max_offset(topic, queue_id) or 0,
            consumer_offset=consumed,
            pull_offset=max(consumed, pulled),
            last_timestamp=max(self._time_at(queue, consumed - 1), 0),
        )

    def _time_at(self, queue: MessageQueue, offset: int) -> int:
        """Return the store time in ms of a queue's message; -1 if there is no message."""
        time = self._store.store_time_at(queue.topic, queue.queue_id, offset) if offset >= 0 else None
        return UNKNOWN_TIME if time is None else time

    # ------------------------------------------------------------------------------------------------------------ 303

    def time_spans(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve QUERY_CONSUME_TIME_SPAN (303)."""
        header = command.header(ConsumeTimeSpanHeader)
        topic = self._topics.find(header.topic)
        if topic is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        return self._time_spans(topic, header.group)

    async def _time_spans(self, topic: TopicConfig, group: str) -> RemotingCommand:
        walk = QueueWalk(self._store)
        queues = queues_of(topic.topic_name, self._identity.name, topic.write_queue_nums)
        spans = [await walk.read(partial(self._time_span, queue, group)) for queue in queues]
        return RemotingCommand.response(body=ConsumeTimeSpans(spans).encode())

    def _time_span(self, queue: MessageQueue, group: str) -> QueueTimeSpan:
        topic, queue_id = queue.topic, queue.queue_id
        first = self._store.earliest_store_time(topic, queue_id)
        end = self._store.max_offset(topic, queue_id) or 0
        committed = self._offsets.committed(group, topic, queue_id)
        consumed = -1 if committed is None else committed
        first_ms = UNKNOWN_TIME if first is None else first
        return QueueTimeSpan(
            message_queue=queue,
            min_time_stamp=first_ms,
            max_time_stamp=self._time_at(queue, end - 1),
            consume_time_stamp=self._time_at(queue, consumed - 1) if consumed > 0 else first_ms,
            delay_time=self._now_ms() - self._time_at(queue, consumed) if consumed < end else 0,
        )
