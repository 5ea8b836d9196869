"""Headers about one queue: its bounds (29, 30, 31, 32); about messages: by key (12), by id (33).

Source: docs/formats.md, "Queues", "Queries".
"""

import msgspec

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class QueueHeader(Header, gc=False, rename="camel"):
    """One queue: requests 30, 31 and 32."""

    topic: str
    queue_id: Int32
    committed: BoolText | None = None
    bname: str | None = None


class SearchOffsetHeader(Header, gc=False, rename="camel"):
    """Request 29: a store time in ms; `boundary_type` "upper", anything else is lower."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    bname: str | None = None


class OffsetResponseHeader(Header, gc=False, rename="camel"):
    """A queue offset: answers to 14, 29, 30 and 31."""

    offset: Int64


class TimestampResponseHeader(Header, gc=False, rename="camel"):
    """A store time in ms, -1 for none: the answer to 32."""

    timestamp: Int64


class QueryMessageHeader(Header, gc=False, rename="camel"):
    """Request 12: messages of a topic by key, stored in a range of ms; `is_unique_key`: the key is a unique one."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    is_unique_key: BoolText | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponseHeader(Header, gc=False, rename="camel"):
    """Store time (ms) and physical offset of the newest message in the index, 0 when it has nothing of that key."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageHeader(Header, gc=False, rename="camel"):
    """Request 33: a physical offset in the commit log."""

    offset: Int64
    topic: str | None = None
