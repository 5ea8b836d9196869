"""Headers of administrative requests about topics, groups and counters: GET_TOPIC_STATS_INFO (202),
GET_PRODUCER_CONNECTION_LIST (204), WIPE_WRITE_PERM_OF_BROKER (205), GET_CONSUME_STATS (208),
QUERY_TOPIC_CONSUME_BY_WHO (300), QUERY_CONSUME_TIME_SPAN (303), VIEW_BROKER_STATS_DATA (315),
GET_BROKER_CONSUME_STATS (317), QUERY_CONSUME_QUEUE (321), ADD_WRITE_PERM_OF_BROKER (327), GET_TOPIC_CONFIG (351).

Source: docs/reference/wire.md, "Statistics of topics and groups".
"""

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class ConsumeStatsHeader(Header, gc=False, rename="camel"):
    """GET_CONSUME_STATS (208): for one topic, for several separated by `;`, or for all in which the group has
    offsets."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class ProducerGroupHeader(Header, gc=False, rename="camel"):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class ConsumeTimeSpanHeader(Header, gc=False, rename="camel"):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class BrokerStatsHeader(Header, gc=False, rename="camel"):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class BrokerConsumeStatsHeader(Header, gc=False, rename="camel"):
    """GET_BROKER_CONSUME_STATS (317): for ordered topics, or for all."""

    is_order: BoolText


class ConsumeQueueHeader(Header, gc=False, rename="camel"):
    """QUERY_CONSUME_QUEUE (321): `count` units from queue offset `index` on, and whether the group's filter matches
    them."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class BrokerNameHeader(Header, gc=False, rename="camel"):
    """WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class WipedTopicsHeader(Header, gc=False, rename="camel"):
    """Response to WIPE_WRITE_PERM_OF_BROKER (205)."""

    wipe_topic_count: Int32


class AddedTopicsHeader(Header, gc=False, rename="camel"):
    """Response to ADD_WRITE_PERM_OF_BROKER (327)."""

    add_topic_count: Int32
