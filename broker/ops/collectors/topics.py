"""Metrics of messages stored in topics and delivered from them, as totals and as rates over the last minute.

System topics are included, and marked as such. Retry and dead letter topics are exported by their groups.
"""

from collections.abc import Callable

from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.ops.rates import Rates
from skylarkmq.broker.ops.steps import Steps, Value
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.queue.topic_traffic import TopicTraffic
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX


class TopicCollector:
    """Metrics of topics, and of groups within them. `now_s` is a steady clock."""

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroups,
        store: MessageStore,
        deliveries: DeliveryCounters,
        now_s: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._store = store
        self._deliveries = deliveries
        self._now_s = now_s
        self._rates = Rates(now_s())

    def __repr__(self) -> str:
        return f"<TopicCollector {self._topics!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        self._rates.begin(self._now_s())
        traffic = self._store.traffic()
        for topic in list(self._topics):
            name = topic.topic_name
            stored = traffic.get(name)
            if name.startswith(RETRY_PREFIX):
                yield from self._retries(name, topic.write_queue_nums, stored)
            elif name.startswith(DLQ_PREFIX):
                yield from self._dead_letters(name, topic.write_queue_nums, stored)
            elif stored is not None:
                yield from self._stored(name, topic.write_queue_nums, stored)
        yield from self._delivered()

    def _stored(self, name: str, queues: int, stored: TopicTraffic) -> Steps:
        is_system = bool_label(self._topics.is_system(name))
        for kind, sizes in stored.by_message_type().items():
            labels = (name, kind, is_system)
            yield Value("rocketmq_messages_in_total", labels, sizes.count)
            yield Value("rocketmq_throughput_in_total", labels, sizes.total)
            yield Value("rocketmq_message_size", labels, sizes)
        rate = self._rates.per_second
        yield Value("rocketmq_producer_tps", (name,), rate(("in", name), stored.sizes.count))
        yield Value("rocketmq_producer_message_size", (name,), rate(("bytes in", name), stored.sizes.total))
        yield Value("rocketmq_producer_offset", (name,), self._end_of(name, queues))

    def _retries(self, name: str, queues: int, stored: TopicTraffic | None) -> Steps:
        yield Value("rocketmq_topic_retry_offset", (name,), self._end_of(name, queues))
        group = name.removeprefix(RETRY_PREFIX)
        count = stored.sizes.count if stored is not None else 0
        yield Value("rocketmq_send_back_nums", (name, group), self._rates.growth(("in", name), count))

    def _dead_letters(self, name: str, queues: int, stored: TopicTraffic | None) -> Steps:
        group = name.removeprefix(DLQ_PREFIX)
        yield Value("rocketmq_topic_dlq_offset", (group,), self._end_of(name, queues))
        if stored is not None:
            labels = (group, RETRY_PREFIX + group, is_system_group(group))
            yield Value("rocketmq_send_to_dlq_messages_total", labels, stored.sizes.count)

    def _end_of(self, topic: str, queues: int) -> int:
        """Return the sum of the max offsets of its queues."""
        max_offset = self._store.max_offset
        return sum(max_offset(topic, queue_id) or 0 for queue_id in range(queues))

    def _delivered(self) -> Steps:
        rate = self._rates.per_second
        for topic, rows in list(self._deliveries.table().items()):
            is_system = self._topics.is_system(topic)
            for group, row in list(rows.items()):
                if self._groups.find(group) is None:
                    continue
                labels = (topic, group, bool_label(is_system) if is_system else is_system_group(group))
                if not topic.startswith(RETRY_PREFIX):
                    yield Value("rocketmq_messages_out_total", labels, row.messages)
                    yield Value("rocketmq_throughput_out_total", labels, row.bytes)
                yield Value("rocketmq_consumer_tps", (topic, group), rate(("out", topic, group), row.messages))
                size = rate(("bytes out", topic, group), row.bytes)
                yield Value("rocketmq_consumer_message_size", (topic, group), size)


def is_system_group(group: str) -> str:
    """Return the value of the label `is_system` for a group."""
    return bool_label(group.startswith(SYSTEM_GROUP_PREFIX))


def bool_label(value: object) -> str:
    """Return the label value of a boolean."""
    return "true" if value else "false"
