"""Header of CONSUMER_SEND_MSG_BACK (36), the negative acknowledgment. Source: docs/reference/wire.md, "Groups"."""

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class SendBackHeader(Header, gc=False, rename="camel"):
    """CONSUMER_SEND_MSG_BACK (36). `offset`: physical offset; `delay_level` -1: move the message to the dead-letter
    topic, 0: the broker chooses the level."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: BoolText | None = None
    max_reconsume_times: Int32 | None = None
    bname: str | None = None
