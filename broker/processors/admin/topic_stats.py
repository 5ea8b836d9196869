"""Statistics of topics: GET_TOPIC_STATS_INFO (202), VIEW_BROKER_STATS_DATA (315), QUERY_CONSUME_QUEUE (321).

Source: docs/reference/wire.md, "Statistics of topics and groups".
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from skylarkmq.broker.counters.stats_windows import NO_GROWTH, WINDOWS, Growth, StatsWindows
from skylarkmq.broker.delivery.cold_read_retry import serve_cold_reads
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.processors.admin.counters import COUNTERS, TOPIC_PUT, Counter
from skylarkmq.broker.processors.admin.queue_walk import QueueWalk
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import (
    BrokerStatsData,
    ConsumeQueueData,
    ConsumeQueueUnits,
    StatsItem,
    TopicOffset,
    TopicStatsTable,
    queues_of,
)
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import NO_RESPONSE_REMARK, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.stats import BrokerStatsHeader, ConsumeQueueHeader
from skylarkmq.protocol.headers.topic import TopicHeader

UNKNOWN_TIME: Final = -1
NO_FILTER: Final = "null"
"""The filter data that RocketMQ reports for a group that filters by tags only."""
MAX_UNITS: Final = 200
"""Maximum number of units in a response to QUERY_CONSUME_QUEUE (321): more would block the event loop for over 1 ms."""

Matches = Callable[[int], bool]


class TopicStatsProcessor:
    """Reports the statistics of topics."""

    def __init__(
        self,
        broker_name: str,
        topics: TopicTable,
        sessions: ClientSessions,
        store: MessageStore,
        windows: StatsWindows,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._sessions = sessions
        self._store = store
        self._windows = windows

    def __repr__(self) -> str:
        return f"<TopicStatsProcessor {self._windows!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats_data,
            RequestCode.QUERY_CONSUME_QUEUE: serve_cold_reads(self._store, self.queue_units),
        }

    def topic_stats(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve GET_TOPIC_STATS_INFO (202)."""
        name = command.header(TopicHeader).topic
        topic = self._topics.find(name)
        if topic is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return self._topic_stats(topic)

    async def _topic_stats(self, topic: TopicConfig) -> RemotingCommand:
        name, walk = topic.topic_name, QueueWalk(self._store)
        response = TopicStatsTable(offset_table={})
        for queue in queues_of(name, self._broker_name, max(topic.read_queue_nums, topic.write_queue_nums)):
            response.offset_table[queue] = await walk.read(partial(self._offsets_of, queue))
        growth = self._windows.growth(TOPIC_PUT, name)
        if growth is not None:
            response.topic_put_tps = growth.per_second(growth.sums.messages)
        return RemotingCommand.response(body=response.encode())

    def _offsets_of(self, queue: MessageQueue) -> TopicOffset:
        topic, queue_id = queue.topic, queue.queue_id
        end = self._store.max_offset(topic, queue_id) or 0
        time = self._store.store_time_at(topic, queue_id, end - 1) if end else 0
        return TopicOffset(
            min_offset=self._store.min_offset(topic, queue_id) or 0,
            max_offset=end,
            last_update_timestamp=UNKNOWN_TIME if time is None else time,
        )

    def stats_data(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve VIEW_BROKER_STATS_DATA (315)."""
        header = command.header(BrokerStatsHeader)
        name, key = header.stats_name, header.stats_key
        counter = COUNTERS.get(name)
        if counter is None or self._windows.growth(counter.source, key) is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        growths = [self._windows.growth(counter.source, key, window) or NO_GROWTH for window in WINDOWS]
        body = BrokerStatsData(*[stats_item(counter, growth) for growth in growths])
        return RemotingCommand.response(body=body.encode())

    def queue_units(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve QUERY_CONSUME_QUEUE (321). Raises ColdRead to be run again."""
        header = command.header(ConsumeQueueHeader)
        topic, queue_id, index = header.topic, header.queue_id, header.index
        end = self._store.max_offset(topic, queue_id)
        if end is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        first = self._store.min_offset(topic, queue_id) or 0
        units = self._store.units(topic, queue_id, index, min(max(header.count, 0), MAX_UNITS))
        if not units:
            return RemotingCommand.response(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        response = ConsumeQueueUnits(min_queue_index=first, max_queue_index=end)
        matches = self._describe_group(response, topic, header.consumer_group)
        response.queue_data = [ConsumeQueueData(*unit, matches is None or matches(unit[2])) for unit in units]
        return RemotingCommand.response(remark=NO_RESPONSE_REMARK, body=response.encode())

    def _describe_group(self, response: ConsumeQueueUnits, topic: str, name: str | None) -> Matches | None:
        """Add the group's subscription to `response`, and return its test of tags codes.

        None stands for all messages. A group without a known subscription receives none.
        """
        if not name:
            return match_nothing
        group = self._sessions.consumer_group(name)
        subscription = None if group is None else group.subscriptions.get(topic)
        if subscription is None:
            response.filter_data = f"{name}@{topic} is not online!"
            return match_nothing
        response.subscription_data = subscription.data
        response.filter_data = NO_FILTER
        return subscription.matches


def match_nothing(_tags_code: int) -> bool:
    """Match no message."""
    return False


def stats_item(counter: Counter, growth: Growth) -> StatsItem:
    """Return a counter's value and rates in one time window."""
    amount = counter.of(growth.sums)
    return StatsItem(sum=amount, tps=growth.per_second(amount), avgpt=growth.per_call(amount))
