"""Headers of SEND_MESSAGE (10), of its form with one-letter names SEND_MESSAGE_V2 (310), and of SEND_BATCH_MESSAGE
(320).

Both forms are one struct here; only the names on the wire differ. Source: docs/reference/wire.md, "Send".
"""

from typing import Any, Final

import msgspec

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64, renamed


class SendMessageHeader(Header, gc=False, rename="camel"):
    """The attributes of a message; the message's own bytes are the body of the request.

    With `queue_id` below 0 the broker chooses the queue. `properties` is the encoded property string. `bname` is the
    name of the broker.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str = ""
    reconsume_times: Int32 | None = None
    unit_mode: BoolText | None = None
    max_reconsume_times: Int32 | None = None
    batch: BoolText | None = None
    bname: str | None = None


_LETTERS: Final = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "bname": "n",
}

SendMessageV2Header: Final[Any] = renamed(SendMessageHeader, "SendMessageV2Header", _LETTERS)
"""SendMessageHeader with one-letter names on the wire."""


class SendMessageResponseHeader(Header, gc=False, rename="camel"):
    """The position of the stored message. `msg_id`: its offset id (of a batch: all ids, joined by commas);
    `queue_offset`: the offset of the first message; `msg_region` and `trace_on`: the broker's values for message
    tracing."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = msgspec.field(name="MSG_REGION", default=None)
    trace_on: str | None = msgspec.field(name="TRACE_ON", default=None)
