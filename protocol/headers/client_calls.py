"""Headers of requests from the broker to clients, and of the requests that cause the broker to send some of them.

To clients: RESET_CONSUMER_CLIENT_OFFSET (220), GET_CONSUMER_STATUS_FROM_CLIENT (221), GET_CONSUMER_RUNNING_INFO (307),
CONSUME_MESSAGE_DIRECTLY (309), PUSH_REPLY_MESSAGE_TO_CLIENT (326). To brokers: INVOKE_BROKER_TO_RESET_OFFSET (222),
INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223).

Source: docs/reference/wire.md, "Calls to clients".
"""

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class ResetOffsetHeader(Header, gc=False, rename="camel"):
    """RESET_CONSUMER_CLIENT_OFFSET (220) and INVOKE_BROKER_TO_RESET_OFFSET (222). `timestamp` in ms, -1: the queue's
    end; `queue_id` -1: all queues."""

    group: str
    topic: str
    timestamp: Int64
    is_force: BoolText
    queue_id: Int32 | None = None
    offset: Int64 | None = None


class ConsumerStatusHeader(Header, gc=False, rename="camel"):
    """GET_CONSUMER_STATUS_FROM_CLIENT (221) and INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223)."""

    topic: str
    group: str
    client_addr: str | None = None


class ConsumerRunningInfoHeader(Header, gc=False, rename="camel"):
    """GET_CONSUMER_RUNNING_INFO (307)."""

    consumer_group: str
    client_id: str
    jstack_enable: BoolText | None = None


class ConsumeDirectlyHeader(Header, gc=False, rename="camel"):
    """CONSUME_MESSAGE_DIRECTLY (309). In a request to a client the body is the message, as a record."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class PushReplyHeader(Header, gc=False, rename="camel"):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326). Fields and body are the same as in the reply as it was sent. Hosts are
    `ip:port`."""

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
