"""Headers about one queue: SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30), GET_MIN_OFFSET (31),
GET_EARLIEST_MSG_STORETIME (32); and about messages: QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33).

Source: docs/reference/wire.md, "Queues", "Queries".
"""

import msgspec

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class QueueHeader(Header, gc=False, rename="camel"):
    """One queue: GET_MAX_OFFSET (30), GET_MIN_OFFSET (31) and GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int32
    committed: BoolText | None = None
    bname: str | None = None


class SearchOffsetHeader(Header, gc=False, rename="camel"):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). `timestamp`: store time in ms; `boundary_type`: "upper", any other text:
    lower."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    bname: str | None = None


class OffsetResponseHeader(Header, gc=False, rename="camel"):
    """A queue offset: response to QUERY_CONSUMER_OFFSET (14), SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30) and
    GET_MIN_OFFSET (31)."""

    offset: Int64


class TimestampResponseHeader(Header, gc=False, rename="camel"):
    """A store time in ms, -1 for none: response to GET_EARLIEST_MSG_STORETIME (32)."""

    timestamp: Int64


class QueryMessageHeader(Header, gc=False, rename="camel"):
    """QUERY_MESSAGE (12): messages of a topic by key, stored within a range of ms. `is_unique_key`: the key is a unique
    key."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    is_unique_key: BoolText | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponseHeader(Header, gc=False, rename="camel"):
    """Store time (ms) and physical offset of the newest indexed message; 0 if the index has no message with the key."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageHeader(Header, gc=False, rename="camel"):
    """VIEW_MESSAGE_BY_ID (33). `offset`: physical offset in the commit log."""

    offset: Int64
    topic: str | None = None
