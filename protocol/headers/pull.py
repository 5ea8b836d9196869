"""Headers of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361). Source: docs/reference/wire.md, "Pull"."""

from skylarkmq.protocol.headers.fields import Header, Int32, Int64


class PullMessageHeader(Header, gc=False, rename="camel"):
    """A pull from one queue. The bits of `sys_flag` are `codes.PullSysFlag`. Times in ms."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    bname: str | None = None


class PullMessageResponseHeader(Header, gc=False, rename="camel"):
    """The offset of the next pull, and the queue's bounds. Clients need the first four fields with every status."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
