"""What clients report of their state: bodies of RESET_CONSUMER_CLIENT_OFFSET (220), GET_CONSUMER_STATUS_FROM_CLIENT
(221), INVOKE_BROKER_TO_RESET_OFFSET (222), INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), GET_CONSUMER_RUNNING_INFO (307)
and CONSUME_MESSAGE_DIRECTLY (309).

Source: docs/reference/wire.md, "JSON bodies".
"""

from enum import StrEnum
from typing import Final, Self

import msgspec

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import encode_by_queue

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class ResetOffsets(Body):
    """RESET_CONSUMER_CLIENT_OFFSET (220), and response to INVOKE_BROKER_TO_RESET_OFFSET (222): the new offset per
    queue."""

    offset_table: dict[MessageQueue, int] = {}

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return b'{"offsetTable":%b}' % encode_by_queue(self.offset_table)


class ListedOffset(Body):
    """One queue, and its new offset."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0
    offset: int = 0


class ListedOffsets(Body):
    """RESET_CONSUMER_CLIENT_OFFSET (220) in the form that C++ clients read: a list."""

    offset_table: list[ListedOffset] = []

    @classmethod
    def of(cls, offsets: ResetOffsets) -> Self:
        """Return the same offsets in this form."""
        table = offsets.offset_table.items()
        return cls([ListedOffset(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in table])

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return _encode(self)


class ConsumerStatus(Body):
    """Responses to GET_CONSUMER_STATUS_FROM_CLIENT (221), which sets `message_queue_table` (the client's offsets), and
    to INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), which sets `consumer_table` (these offsets by client id)."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        clients = [b"%b:%b" % (_encode(name), encode_by_queue(table)) for name, table in self.consumer_table.items()]
        return b'{"consumerTable":{%b},"messageQueueTable":%b}' % (
            b",".join(clients),
            encode_by_queue(self.message_queue_table),
        )


class ProcessQueueInfo(Body):
    """One queue at a consumer. Times in ms, 0: never. `droped` (RocketMQ's spelling): the consumer has lost the
    queue."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mi_b: int = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopProcessQueueInfo(Body):
    """One queue of a consumer that pops: its messages that are not acknowledged. Time in ms."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


class ConsumeStatus(Body):
    """One topic at a consumer: times in ms, rates per second, number of failures in the last hour."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(Body):
    """Response to GET_CONSUMER_RUNNING_INFO (307)."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        jstack = b"" if self.jstack is None else b'"jstack":%b,' % _encode(self.jstack)
        pops = b'"mqPopTable":%b,' % encode_by_queue(self.mq_pop_table) if self.mq_pop_table else b""
        return b'{%b%b"mqTable":%b,"properties":%b,"statusTable":%b,"subscriptionSet":%b,"userConsumerInfo":%b}' % (
            jstack,
            pops,
            encode_by_queue(self.mq_table),
            _encode(self.properties),
            _encode(self.status_table),
            _encode(self.subscription_set),
            _encode(self.user_consumer_info),
        )


class ConsumeResultName(StrEnum):
    """Result of a handler, in the response to CONSUME_MESSAGE_DIRECTLY (309); Go clients send the ordinal."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    ROLLBACK = "CR_ROLLBACK"
    COMMIT = "CR_COMMIT"
    THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    RETURN_NULL = "CR_RETURN_NULL"


class ConsumeDirectlyResult(Body):
    """Response to CONSUME_MESSAGE_DIRECTLY (309)."""

    consume_result: str | int = ConsumeResultName.SUCCESS.value
    auto_commit: bool = True
    order: bool = False
    remark: str | None = None
    spent_time_mills: int = 0
