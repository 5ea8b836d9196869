"""Headers of RECALL_MESSAGE (370), which cancels a timer message. Source: docs/reference/wire.md, "Timer messages"."""

from skylarkmq.protocol.headers.fields import Header


class RecallMessageHeader(Header, gc=False, rename="camel"):
    """The message to cancel. `recall_handle` is from the response to its send."""

    topic: str
    recall_handle: str
    producer_group: str = ""
    bname: str | None = None


class RecallMessageResponseHeader(Header, gc=False, rename="camel"):
    """The unique key of the message."""

    msg_id: str
