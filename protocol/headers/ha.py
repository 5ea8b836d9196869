"""Header of RESET_MASTER_FLUSH_OFFSET (908) of RocketMQ 5."""

from skylarkmq.protocol.headers.fields import Header, Int64


class MasterFlushOffsetHeader(Header, gc=False, rename="camel"):
    """RESET_MASTER_FLUSH_OFFSET (908): the offset up to which the master has flushed its log, as a slave knows it."""

    master_flush_offset: Int64
