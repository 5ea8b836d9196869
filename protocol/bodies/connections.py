"""Clients connected to a broker: consumers of a group, GET_CONSUMER_CONNECTION_LIST (203); producers of a group,
GET_PRODUCER_CONNECTION_LIST (204); all producers, GET_ALL_PRODUCER_INFO (328).

A group may have thousands of members, so msgspec encodes these bodies. `pieces` yields a body in parts, so that a
caller can encode it in slices. Source: docs/reference/wire.md, "JSON bodies".
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData

_encode: Final = msgspec.json.Encoder(order="sorted").encode


def _listed(items: Iterable[object]) -> Iterator[bytes]:
    """Yield a JSON list, item by item."""
    comma = b"["
    for item in items:
        yield comma + _encode(item)
        comma = b","
    yield b"[]" if comma == b"[" else b"]"


class ClientConnection(Body):
    """One member of a group. `client_addr`: ip:port; `version`: the version ordinal in its requests."""

    client_id: str = ""
    client_addr: str = ""
    language: str = ""
    version: int = 0


class ConsumerConnection(Body):
    """Response to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: list[ClientConnection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def pieces(self) -> Iterator[bytes]:
        """Yield the encoded body in parts."""
        yield b'{"connectionSet":'
        yield from _listed(self.connection_set)
        how = self.consume_from_where, self.consume_type, self.message_model
        yield b',"consumeFromWhere":%b,"consumeType":%b,"messageModel":%b' % tuple(map(_encode, how))
        comma = b',"subscriptionTable":{'
        for topic, data in self.subscription_table.items():
            yield b"%b%b:%b" % (comma, _encode(topic), _encode(data))
            comma = b","
        yield b"}}" if self.subscription_table else comma + b"}}"

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return b"".join(self.pieces())


class ProducerConnection(Body):
    """Response to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[ClientConnection] = []

    def pieces(self) -> Iterator[bytes]:
        """Yield the encoded body in parts."""
        yield b'{"connectionSet":'
        yield from _listed(self.connection_set)
        yield b"}"

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return b"".join(self.pieces())


class ProducerInfo(Body):
    """One producer. `remote_ip`: /ip:port; `last_update_timestamp`: Unix ms of its last heartbeat."""

    client_id: str = ""
    remote_ip: str = msgspec.field(default="", name="remoteIP")
    language: str = ""
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body):
    """Response to GET_ALL_PRODUCER_INFO (328): producers by group."""

    data: dict[str, list[ProducerInfo]] = {}

    def pieces(self) -> Iterator[bytes]:
        """Yield the encoded body in parts."""
        comma = b'{"data":{'
        for group, producers in self.data.items():
            yield b"%b%b:" % (comma, _encode(group))
            yield from _listed(producers)
            comma = b","
        yield b"}}" if self.data else comma + b"}}"

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return b"".join(self.pieces())
