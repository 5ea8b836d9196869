"""What clients report to a broker: bodies of HEART_BEAT (34), CHECK_CLIENT_CONFIG (46) and GET_CONSUMER_LIST_BY_GROUP
(38).

The clients differ. C++ clients send enumerations as ordinals and subVersion as text, and omit the type of the
expression, its tags and empty lists. Go clients send subVersion in ns, the others in ms. All forms decode to the same
structs. Source: docs/reference/wire.md, "JSON bodies".
"""

from typing import ClassVar, Final

import msgspec

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel

TAG: Final = "TAG"
SQL92: Final = "SQL92"


class SubscriptionData(Body):
    """One topic of a consumer. `sub_version`: time of the subscription, in the client's own unit; a larger one is
    newer."""

    topic: str = ""
    sub_string: str = "*"
    tags_set: list[str] = []
    code_set: list[int] = []
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False


class ConsumerData(Body):
    """One consumer group of a client."""

    group_name: str = ""
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(Body):
    """One producer group of a client."""

    group_name: str = ""


class HeartbeatData(Body):
    """HEART_BEAT (34). `without_sub`: the subscriptions are those of the earlier heartbeat with the same fingerprint
    (0: no fingerprint)."""

    most_request_bytes: ClassVar[int] = 2 << 20  # 10,000 subscriptions

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class CheckClientRequestBody(Body):
    """CHECK_CLIENT_CONFIG (46): asks the broker whether it can parse an expression."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class ConsumerIdList(Body):
    """GET_CONSUMER_LIST_BY_GROUP (38): the client ids of a group."""

    consumer_id_list: list[str] = []
