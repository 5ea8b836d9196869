"""Header of RESET_MASTER_FLUSH_OFFSET (908) of RocketMQ 5."""

from skylarkmq.protocol.headers.fields import Header, Int64


class MasterFlushOffsetHeader(Header, gc=False, rename="camel"):
    """RESET_MASTER_FLUSH_OFFSET (908): the offset up to which a slave assumes its master's log to be flushed."""

    master_flush_offset: Int64
