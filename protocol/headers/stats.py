"""Headers of what operators ask about topics, groups and counters: 202, 204, 205, 208, 300, 303, 315, 317, 321, 327,
351.

Source: docs/formats.md, "Statistics of topics and groups".
"""

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class ConsumeStatsHeader(Header, gc=False, rename="camel"):
    """Request 208: of one topic, of several with `;` between them, or of all that the group has offsets of."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class ProducerGroupHeader(Header, gc=False, rename="camel"):
    """Request 204."""

    producer_group: str


class ConsumeTimeSpanHeader(Header, gc=False, rename="camel"):
    """Request 303."""

    topic: str
    group: str


class BrokerStatsHeader(Header, gc=False, rename="camel"):
    """Request 315."""

    stats_name: str
    stats_key: str


class BrokerConsumeStatsHeader(Header, gc=False, rename="camel"):
    """Request 317: of ordered topics, or of all."""

    is_order: BoolText


class ConsumeQueueHeader(Header, gc=False, rename="camel"):
    """Request 321: `count` units from `index` on, and what they are to a group."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class BrokerNameHeader(Header, gc=False, rename="camel"):
    """Requests 205 and 327."""

    broker_name: str


class WipedTopicsHeader(Header, gc=False, rename="camel"):
    """Answer to 205."""

    wipe_topic_count: Int32


class AddedTopicsHeader(Header, gc=False, rename="camel"):
    """Answer to 327."""

    add_topic_count: Int32
