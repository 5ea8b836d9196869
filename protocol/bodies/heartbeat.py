"""What clients tell a broker about themselves: heartbeats (34), the check of an expression (46), who is there (38).

Clients differ: C++ gives enumerations as ordinals, subVersion as text, and leaves out the type of the expression, its
tags and empty lists; Go counts subVersion in ns where the others count ms. All of it ends in the same structs.
Source: docs/formats.md, "JSON bodies".
"""

from typing import ClassVar, Final

import msgspec

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel

TAG: Final = "TAG"
SQL92: Final = "SQL92"


class SubscriptionData(Body):
    """One topic of a consumer. `sub_version`: when it was made, in the client's own unit; larger is newer."""

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
    """`without_sub`: the subscriptions are those of the heartbeat with the same fingerprint (0: no fingerprint)."""

    most_request_bytes: ClassVar[int] = 2 << 20  # 10,000 subscriptions

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class CheckClientRequestBody(Body):
    """Asks whether the broker understands an expression."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class ConsumerIdList(Body):
    """Client ids of a group."""

    consumer_id_list: list[str] = []
