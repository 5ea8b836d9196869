"""Who is connected to a broker: consumers of a group (203), producers of a group (204), all producers (328).

A group may have thousands of members, so these are encoded by msgspec. Source: docs/formats.md, "JSON bodies".
"""

from typing import Final

import msgspec

from protocol.bodies.body import Body
from protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from protocol.bodies.heartbeat import SubscriptionData

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class ClientConnection(Body):
    """One member of a group. `client_addr`: ip:port; `version`: the ordinal in its requests."""

    client_id: str = ""
    client_addr: str = ""
    language: str = ""
    version: int = 0


class ConsumerConnection(Body):
    """Answer to 203."""

    connection_set: list[ClientConnection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def encode(self) -> bytes:
        return _encode(self)


class ProducerConnection(Body):
    """Answer to 204."""

    connection_set: list[ClientConnection] = []

    def encode(self) -> bytes:
        return _encode(self)


class ProducerInfo(Body):
    """One producer. `remote_ip`: /ip:port; `last_update_timestamp`: Unix ms of its last heartbeat."""

    client_id: str = ""
    remote_ip: str = msgspec.field(default="", name="remoteIP")
    language: str = ""
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body):
    """Answer to 328: producers by group."""

    data: dict[str, list[ProducerInfo]] = {}

    def encode(self) -> bytes:
        return _encode(self)
