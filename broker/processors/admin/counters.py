"""Counters by topic and group, under the names that RocketMQ gives them.

A source iterates over the counts that a part keeps; `broker/counters/stats_windows.py` derives sliding windows from all
sources. A new counter needs a source in `sources_of` and its names in `COUNTERS`. Source: docs/reference/wire.md,
"Statistics of topics and groups".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.counters.stats_windows import SEPARATOR, Sums
from skylarkmq.broker.counters.throughput import Throughput
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.queue.topic_traffic import TopicTraffic
from skylarkmq.protocol.codes import DLQ_PREFIX, RESERVED_TOPICS

Source = Callable[[], Iterable[tuple[str, Sums]]]

TOPIC_PUT: Final = "topic put"
GROUP_GET: Final = "group get"
SENT_BACK: Final = "sent back"
DEAD_LETTERS: Final = "dead letters"
BROKER_PUT: Final = "broker put"
BROKER_GET: Final = "broker get"
USER_PUT: Final = "broker put, user topics"
USER_GET: Final = "broker get, user topics"


class Counter(NamedTuple):
    """Maps a RocketMQ counter to its source and to one of the source's sums."""

    source: str
    is_size: bool = False

    def of(self, sums: Sums) -> int:
        """Return the value of this counter."""
        return sums.bytes if self.is_size else sums.messages


COUNTERS: Final = {
    "TOPIC_PUT_NUMS": Counter(TOPIC_PUT),
    "TOPIC_PUT_SIZE": Counter(TOPIC_PUT, is_size=True),
    "GROUP_GET_NUMS": Counter(GROUP_GET),
    "GROUP_GET_SIZE": Counter(GROUP_GET, is_size=True),
    "SNDBCK_PUT_NUMS": Counter(SENT_BACK),
    "DLQ_PUT_NUMS": Counter(DEAD_LETTERS),
    "BROKER_PUT_NUMS": Counter(BROKER_PUT),
    "BROKER_GET_NUMS": Counter(BROKER_GET),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": Counter(USER_PUT),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": Counter(USER_GET),
}
"""RocketMQ's counters by name."""


def sources_of(
    cluster: str, store: MessageStore, deliveries: DeliveryCounters, sent_back: DeliveryCounters, traffic: Throughput
) -> Mapping[str, Source]:
    """Return every source by name. Sources of the broker as a whole have one row, keyed by the cluster's name."""

    def put() -> list[tuple[str, Sums]]:
        total = traffic.statistics()
        return [(cluster, Sums(total.puts, 0, total.puts))]

    def got() -> list[tuple[str, Sums]]:
        total = traffic.statistics()
        return [(cluster, Sums(total.delivered, 0, total.found))]

    def user_put() -> list[tuple[str, Sums]]:
        total = traffic.statistics()
        return [(cluster, Sums(total.user_puts, 0, total.user_puts))]

    def user_got() -> list[tuple[str, Sums]]:
        total = traffic.statistics()
        tables = [deliveries.table().get(topic, {}) for topic in RESERVED_TOPICS]
        system = [row for table in tables for row in table.values()]
        messages, pulls = sum(row.messages for row in system), sum(row.pulls for row in system)
        return [(cluster, Sums(total.delivered - messages, 0, total.found - pulls))]

    return {
        TOPIC_PUT: lambda: _stored(store),
        GROUP_GET: lambda: _deliveries(deliveries),
        SENT_BACK: lambda: _deliveries(sent_back),
        DEAD_LETTERS: lambda: _dead_letters(store),
        BROKER_PUT: put,
        BROKER_GET: got,
        USER_PUT: user_put,
        USER_GET: user_got,
    }


def system_puts(store: MessageStore) -> int:
    """Return the number of messages stored in RocketMQ's reserved topics."""
    return store.queues.messages_into(RESERVED_TOPICS)


def _stored(store: MessageStore) -> Iterator[tuple[str, Sums]]:
    """Yield the messages stored, by topic; each message counts as a call."""
    for topic, traffic in list(store.traffic().items()):
        yield topic, _sums(traffic)


def _sums(traffic: TopicTraffic) -> Sums:
    count = traffic.sizes.count
    return Sums(count, int(traffic.sizes.total), count)


def _dead_letters(store: MessageStore) -> Iterator[tuple[str, Sums]]:
    """Yield the dead letters by group, of every origin."""
    for topic, traffic in [row for row in store.traffic().items() if row[0].startswith(DLQ_PREFIX)]:
        yield topic.removeprefix(DLQ_PREFIX), _sums(traffic)


def _deliveries(deliveries: DeliveryCounters) -> Iterator[tuple[str, Sums]]:
    """Yield the messages delivered to groups, or sent back by them, by topic and group; each pull that found messages
    is a call."""
    for topic, groups in list(deliveries.table().items()):
        for group, row in list(groups.items()):
            yield topic + SEPARATOR + group, Sums(row.messages, row.bytes, row.pulls)
