"""Headers about topics: UPDATE_AND_CREATE_TOPIC (17), GET_ROUTEINFO_BY_TOPIC (105), DELETE_TOPIC_IN_BROKER (215),
DELETE_TOPIC_IN_NAMESRV (216).

Source: docs/reference/wire.md, "Topics".
"""

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32


class CreateTopicHeader(Header, gc=False, rename="camel"):
    """UPDATE_AND_CREATE_TOPIC (17). `attributes`: `+key=value,-key`; `topic_filter_type`: SINGLE_TAG or MULTI_TAG."""

    topic: str
    default_topic: str | None = None
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_filter_type: str | None = None
    topic_sys_flag: Int32 | None = None
    order: BoolText | None = None
    attributes: str | None = None
    force: BoolText | None = None


class TopicHeader(Header, gc=False, rename="camel"):
    """One topic, everywhere or in one cluster: GET_ROUTEINFO_BY_TOPIC (105), DELETE_TOPIC_IN_BROKER (215) and
    DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str = ""
    cluster_name: str | None = None
    accept_standard_json_only: BoolText | None = None
