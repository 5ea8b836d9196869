"""Header of a consumer that sends a message back: 36. Source: docs/formats.md, "Groups"."""

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class SendBackHeader(Header, gc=False, rename="camel"):
    """Request 36: `offset` is the physical one; `delay_level` -1: to the dead letters, 0: as the broker thinks."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: BoolText | None = None
    max_reconsume_times: Int32 | None = None
    bname: str | None = None
