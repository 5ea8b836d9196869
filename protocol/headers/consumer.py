"""Headers about consumer groups and clients: QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15),
UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38), NOTIFY_CONSUMER_IDS_CHANGED (40), DELETE_SUBSCRIPTIONGROUP
(207), GET_SUBSCRIPTIONGROUP_CONFIG (352).

Source: docs/reference/wire.md, "Groups".
"""

import msgspec

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class QueryConsumerOffsetHeader(Header, gc=False, rename="camel"):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: BoolText | None = None
    bname: str | None = None


class UpdateConsumerOffsetHeader(Header, gc=False, rename="camel"):
    """UPDATE_CONSUMER_OFFSET (15). Queue and offset are optional here so that the broker can name the missing one in
    its remark."""

    consumer_group: str
    topic: str
    queue_id: Int32 | None = None
    commit_offset: Int64 | None = None
    bname: str | None = None


class UnregisterClientHeader(Header, gc=False, rename="camel"):
    """UNREGISTER_CLIENT (35): the client leaves these groups."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
    bname: str | None = None


class ConsumerGroupHeader(Header, gc=False, rename="camel"):
    """One group: GET_CONSUMER_LIST_BY_GROUP (38), and NOTIFY_CONSUMER_IDS_CHANGED (40), which the broker sends."""

    consumer_group: str
    bname: str | None = None


class GroupHeader(Header, gc=False, rename="camel"):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class DeleteGroupHeader(Header, gc=False, rename="camel"):
    """DELETE_SUBSCRIPTIONGROUP (207). RocketMQ 4.9 sends removeOffset instead of cleanOffset."""

    group_name: str
    clean_offset: BoolText | None = None
    remove_offset: BoolText | None = None
