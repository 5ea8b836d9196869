"""SendResult: where a broker stored a message, and how safely."""

from enum import IntEnum

import msgspec

from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import ResponseCode


class SendStatus(IntEnum):
    """The message is stored in all four cases. Except for OK, it is not yet flushed or replicated as configured."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message is stored.

    `msg_id` is the id that the producer made, `offset_msg_id` the broker's (address and log offset); those of a batch
    are joined by commas. `recall_handle` is for `Producer.recall`; brokers that support it return one for a message
    with a time of delivery.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
