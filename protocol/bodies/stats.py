"""Administrative requests and responses about topics, groups and queues: UPDATE_AND_CREATE_TOPIC_LIST (18),
GET_TOPIC_STATS_INFO (202), GET_CONSUME_STATS (208), QUERY_TOPIC_CONSUME_BY_WHO (300), QUERY_CONSUME_TIME_SPAN (303),
VIEW_BROKER_STATS_DATA (315), GET_BROKER_CONSUME_STATS (317), QUERY_CONSUME_QUEUE (321).

Maps by queue have objects as keys, which no JSON library writes. There may be a thousand queues, so such maps are
joined from parts that msgspec has encoded. For bodies that may be long `pieces` yields these parts, so that a caller
can encode them in slices. Source: docs/reference/wire.md, "JSON bodies".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.topic import TopicConfig

_encode: Final = msgspec.json.Encoder(order="sorted").encode


def encode_by_queue(table: Mapping[MessageQueue, object]) -> bytes:
    """Return the JSON of a map with queues as its keys, each as a JSON object."""
    return b"".join(_pieces_by_queue(table))


def _pieces_by_queue(table: Mapping[MessageQueue, object]) -> Iterator[bytes]:
    comma = b"{"
    for queue, value in table.items():
        yield b"%b%b:%b" % (comma, _encode(queue), _encode(value))
        comma = b","
    yield b"}" if table else b"{}"


class TopicConfigList(Body):
    """UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: list[TopicConfig] = []


class TopicOffset(Body):
    """One queue: its offsets, and the store time (ms) of its last message."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(Body):
    """Response to GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return b'{"offsetTable":%b,"topicPutTps":%b}' % (
            encode_by_queue(self.offset_table),
            _encode(float(self.topic_put_tps)),
        )


class OffsetWrapper(Body):
    """A group's offsets in one queue. `last_timestamp`: store time (ms) of the last consumed message."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(Body):
    """Response to GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0

    def pieces(self) -> Iterator[bytes]:
        """Yield the encoded body in parts."""
        yield b'{"consumeTps":%b,"offsetTable":' % _encode(float(self.consume_tps))
        yield from _pieces_by_queue(self.offset_table)
        yield b"}"

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return b"".join(self.pieces())

    @property
    def diff(self) -> int:
        """Number of messages that are not consumed, over all queues."""
        return sum(row.broker_offset - row.consumer_offset for row in self.offset_table.values())

    @property
    def inflight_diff(self) -> int:
        """Number of messages that are pulled but not consumed, over all queues."""
        return sum(row.pull_offset - row.consumer_offset for row in self.offset_table.values())


class ConsumeStatsList(Body):
    """Response to GET_BROKER_CONSUME_STATS (317): one map per group, with one entry: a ConsumeStats for each topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str = ""

    def pieces(self) -> Iterator[bytes]:
        """Yield the encoded body in parts."""
        yield b'{"brokerAddr":%b,"consumeStatsList":[' % _encode(self.broker_addr)
        diff = inflight_diff = 0
        comma = b""
        for group, topics in [row for entry in self.consume_stats_list for row in entry.items()]:
            yield b"%b{%b:[" % (comma, _encode(group))
            comma = b","
            for at, stats in enumerate(topics):
                if at:
                    yield b","
                yield from stats.pieces()
                diff += stats.diff
                inflight_diff += stats.inflight_diff
            yield b"]}"
        yield b'],"totalDiff":%d,"totalInflightDiff":%d}' % (diff, inflight_diff)

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return b"".join(self.pieces())


class GroupList(Body):
    """Response to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: list[str] = []


class QueueTimeSpan(Body):
    """Store times (ms, -1: unknown) of a queue's first and last message, and of the last message that a group consumed.
    `delay_time`: age (ms) of the first message that is not consumed."""

    message_queue: MessageQueue = msgspec.field(default_factory=MessageQueue)
    min_time_stamp: int = -1
    max_time_stamp: int = -1
    consume_time_stamp: int = -1
    delay_time: int = 0


class ConsumeTimeSpans(Body):
    """Response to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = []

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return _encode(self)


class StatsItem(Body):
    """One window of a counter: the sum, the rate per second, and the average per call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """Response to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: StatsItem
    stats_hour: StatsItem
    stats_day: StatsItem


class ConsumeQueueData(Body):
    """One unit of a queue. `eval`: whether the group's filter matches the message."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False
    msg: str | None = None
    bit_map: str | None = None
    extend_data_json: str | None = None


class ConsumeQueueUnits(Body):
    """Response to QUERY_CONSUME_QUEUE (321)."""

    queue_data: list[ConsumeQueueData] | None = None
    min_queue_index: int = 0
    max_queue_index: int = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


def queues_of(topic: str, broker_name: str, count: int) -> Sequence[MessageQueue]:
    """Return the queues of a topic on one broker."""
    return [MessageQueue(topic, broker_name, queue_id) for queue_id in range(count)]
