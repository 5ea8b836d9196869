"""Headers about consumer groups and clients: 14, 15, 35, 38, 40, 207, 352. Source: docs/formats.md, "Groups"."""

import msgspec

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class QueryConsumerOffsetHeader(Header, gc=False, rename="camel"):
    """Request 14."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: BoolText | None = None
    bname: str | None = None


class UpdateConsumerOffsetHeader(Header, gc=False, rename="camel"):
    """Request 15; a missing queue or offset is refused by name, so both may be absent here."""

    consumer_group: str
    topic: str
    queue_id: Int32 | None = None
    commit_offset: Int64 | None = None
    bname: str | None = None


class UnregisterClientHeader(Header, gc=False, rename="camel"):
    """Request 35: the client leaves the groups named here."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
    bname: str | None = None


class ConsumerGroupHeader(Header, gc=False, rename="camel"):
    """One group: request 38, and 40 as the broker pushes it."""

    consumer_group: str
    bname: str | None = None


class GroupHeader(Header, gc=False, rename="camel"):
    """Request 352."""

    group: str


class DeleteGroupHeader(Header, gc=False, rename="camel"):
    """Request 207; 4.9 says removeOffset."""

    group_name: str
    clean_offset: BoolText | None = None
    remove_offset: BoolText | None = None
