"""Headers of what is asked of clients: 220, 221, 307, 309, 326; and of brokers about clients: 222, 223.

Source: docs/formats.md, "Calls to clients".
"""

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class ResetOffsetHeader(Header, gc=False, rename="camel"):
    """Requests 220 and 222: `timestamp` in ms, -1 for the end; `queue_id` -1: all queues."""

    group: str
    topic: str
    timestamp: Int64
    is_force: BoolText
    queue_id: Int32 | None = None
    offset: Int64 | None = None


class ConsumerStatusHeader(Header, gc=False, rename="camel"):
    """Requests 221 and 223."""

    topic: str
    group: str
    client_addr: str | None = None


class ConsumerRunningInfoHeader(Header, gc=False, rename="camel"):
    """Request 307."""

    consumer_group: str
    client_id: str
    jstack_enable: BoolText | None = None


class ConsumeDirectlyHeader(Header, gc=False, rename="camel"):
    """Request 309; a client gets the message with it, as a record."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class PushReplyHeader(Header, gc=False, rename="camel"):
    """Request 326: what a replier's send said of the reply; the body is the reply's. Hosts are `ip:port`."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: BoolText | None = None
