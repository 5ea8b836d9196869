"""Producers with a serializer: values become bodies."""

import json

import pytest

from skylarkmq import InvalidMessage, Producer
from skylarkmq.protocol.codes import RequestCode
from tests.clients.cluster import running_cluster


def to_json(value: object) -> bytes:
    return json.dumps(value).encode()


async def test_a_message_has_the_serialized_value_as_its_body() -> None:
    """It is a usual message: with tags, keys and properties, for every way to send it."""
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv, serializer=to_json) as producer:
        order = producer.message("T", {"coffee": 1}, tags="paid", keys=["order-1"], properties={"shop": "7"})
        assert order.body == b'{"coffee": 1}'
        await producer.send(order)
        await producer.send_batch([producer.message("T", n) for n in range(2)])
        (sent,) = cluster.broker.requests_of(RequestCode.SEND_MESSAGE_V2)
        assert bytes(sent.body) == b'{"coffee": 1}'
        stored = sorted(cluster.broker.by_position.values(), key=lambda message: message.physical_offset)
        assert [message.body for message in stored] == [b'{"coffee": 1}', b"0", b"1"]
        assert (stored[0].tags, list(stored[0].keys), stored[0].properties["shop"]) == ("paid", ["order-1"], "7")


async def test_values_that_cannot_be_serialized_are_invalid_messages() -> None:
    """With the serializer's error as cause; without a serializer too."""
    async with running_cluster() as cluster:
        producer = Producer("p", namesrv=cluster.namesrv, serializer=to_json)
        with pytest.raises(InvalidMessage, match="serializer failed: TypeError") as caught:
            producer.message("T", object())
        assert isinstance(caught.value.__cause__, TypeError)
        with pytest.raises(InvalidMessage, match="no serializer"):
            Producer("p", namesrv=cluster.namesrv).message("T", 1)
