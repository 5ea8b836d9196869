"""Lag of each group in the topics that it consumes.

A pair of topic and group has RocketMQ's native metrics while the group has members that subscribe to the topic, and the
exporter's metrics while it has committed offsets. One iteration over the queues serves both: lag is counted from the
queue's end, and the age of a message is read from the record at an offset. Such reads may be cold, and their results
are cached until the next scrape: an offset that has not moved needs no read.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final

import msgspec

from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import SEPARATOR, ConsumerOffsetTable
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.ops.collectors.topics import bool_label, is_system_group
from skylarkmq.broker.ops.steps import Step, Steps, Value, retry_cold_reads
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX

BROADCASTING: Final = "0"
CLUSTERING: Final = "1"

MessagePosition = tuple[str, int, int]
"""Topic, queue id and queue offset of a message."""


class Progress(msgspec.Struct):
    """Progress of a group in a topic: messages over all queues, and store times in Unix ms (None: no such message)."""

    committed: int = 0
    lag: int = 0
    inflight: int = 0
    ready: int = 0
    oldest_ms: int | None = None
    oldest_ready_ms: int | None = None


class GroupCollector:
    """Metrics of groups within topics. `now_ms` gives Unix time."""

    def __init__(
        self,
        topics: TopicTable,
        sessions: ClientSessions,
        offsets: ConsumerOffsetTable,
        store: MessageStore,
        now_ms: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._sessions = sessions
        self._offsets = offsets
        self._store = store
        self._now_ms = now_ms
        self._times: dict[MessagePosition, int] = {}
        self._next_times: dict[MessagePosition, int] = {}

    def __repr__(self) -> str:
        return f"<GroupCollector times={len(self._times)}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        self._next_times = {}
        for name, group, is_subscribed, has_offsets in self._pairs():
            topic = self._topics.find(name)
            if topic is None:
                continue
            progress = Progress()
            yield from self._add_up(progress, topic, group)
            if is_subscribed and not name.startswith(RETRY_PREFIX):
                yield from self._native(progress, topic, group)
            if has_offsets and not name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                yield from self._exported(progress, name, group)
        yield from self._of_own_topics()
        self._times = self._next_times

    def _pairs(self) -> Iterator[tuple[str, str, bool, bool]]:
        """Yield topic, group, whether members of the group subscribe to it, and whether the group has committed
        offsets."""
        committed = self._offsets.table()
        keys = list(committed)
        for group in list(self._sessions.consumer_groups()):
            for topic in list(group.subscriptions):
                yield topic, group.name, True, topic + SEPARATOR + group.name in committed
        for key in keys:
            topic, _, name = key.rpartition(SEPARATOR)
            members = self._sessions.consumer_group(name)
            if members is None or topic not in members.subscriptions:
                yield topic, name, False, True

    # -------------------------------------------------------------------------------------------------------- progress

    def _add_up(self, progress: Progress, topic: TopicConfig, group: str) -> Steps:
        """Add up a group's queues of a topic. A queue without a committed offset has no lag."""
        name, offsets = topic.topic_name, self._offsets
        for queue_id in range(topic.read_queue_nums):
            committed = offsets.committed(group, name, queue_id)
            end = self._store.max_offset(name, queue_id)
            if committed is None or end is None:
                continue
            pulled = max(offsets.pulled(group, name, queue_id) or 0, committed)
            progress.committed += committed
            progress.lag += max(end - committed, 0)
            progress.inflight += pulled - committed
            progress.ready += max(end - pulled, 0)
            time_ms = None
            if committed < end:
                time_ms = yield from self._time_of((name, queue_id, committed))
                progress.oldest_ms = earlier(progress.oldest_ms, time_ms)
            if pulled < end:
                if pulled > committed:
                    time_ms = yield from self._time_of((name, queue_id, pulled))
                progress.oldest_ready_ms = earlier(progress.oldest_ready_ms, time_ms)
            yield None

    def _time_of(self, position: MessagePosition) -> Generator[Step, None, int | None]:
        """Return the store time of the message at that offset, or of the first one after it that still exists; None:
        unknown."""
        known = self._times.get(position)
        if known is None:
            known = yield from retry_cold_reads(lambda: self._read_time(*position))
        if known is not None:
            self._next_times[position] = known
        return known

    def _read_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        first = self._store.min_offset(topic, queue_id) or 0
        return self._store.store_time_at(topic, queue_id, max(offset, first))

    # ---------------------------------------------------------------------------------------------------------- values

    def _native(self, progress: Progress, topic: TopicConfig, group: str) -> Steps:
        name = topic.topic_name
        is_system = self._topics.is_system(name)
        labels = (group, name, "false", bool_label(is_system) if is_system else is_system_group(group))
        yield Value("rocketmq_consumer_lag_messages", labels, progress.lag)
        yield Value("rocketmq_consumer_inflight_messages", labels, progress.inflight)
        yield Value("rocketmq_consumer_ready_messages", labels, progress.ready)
        yield Value("rocketmq_consumer_lag_latency_milliseconds", labels, self._age_ms(progress.oldest_ms))
        yield Value("rocketmq_consumer_queueing_latency_milliseconds", labels, self._age_ms(progress.oldest_ready_ms))

    def _exported(self, progress: Progress, topic: str, group: str) -> Steps:
        online, model = self._members(group)
        yield Value("rocketmq_consumer_offset", (topic, group), progress.committed)
        yield Value("rocketmq_group_diff", (group, topic, online, model), progress.lag)
        if model == CLUSTERING:
            age_ms = self._age_ms(progress.oldest_ms)
            yield Value("rocketmq_group_get_latency_by_storetime", (topic, group), age_ms)

    def _of_own_topics(self) -> Steps:
        """Yield the lag in groups' retry and dead letter topics. Without a committed offset all messages count."""
        for topic in list(self._topics):
            name = topic.topic_name
            for prefix, metric in (
                (RETRY_PREFIX, "rocketmq_group_retrydiff"),
                (DLQ_PREFIX, "rocketmq_group_dlqdiff"),
            ):
                if name.startswith(prefix):
                    group = name.removeprefix(prefix)
                    lag = sum(self._lag(name, group, queue_id) for queue_id in range(topic.read_queue_nums))
                    yield Value(metric, (group, name, *self._members(group)), lag)

    def _lag(self, topic: str, group: str, queue_id: int) -> int:
        end = self._store.max_offset(topic, queue_id) or 0
        return max(end - (self._offsets.committed(group, topic, queue_id) or 0), 0)

    def _members(self, group: str) -> tuple[str, str]:
        """Return the number of members, and the model's ordinal; a group without members counts as clustering."""
        members = self._sessions.consumer_group(group)
        if members is None:
            return "0", CLUSTERING
        return str(len(members.members)), BROADCASTING if members.is_broadcast else CLUSTERING

    def _age_ms(self, stored_ms: int | None) -> int:
        return max(self._now_ms() - stored_ms, 0) if stored_ms is not None else 0


def earlier(known_ms: int | None, time_ms: int | None) -> int | None:
    """Return the earlier of two times, either of which may be unknown."""
    if known_ms is None or time_ms is None:
        return time_ms if known_ms is None else known_ms
    return min(known_ms, time_ms)
