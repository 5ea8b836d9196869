"""Bodies that list connected clients, as Java's tools read them."""

from skylarkmq.protocol.bodies.connections import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from skylarkmq.protocol.filters.tag import subscribe

MEMBER = b'{"clientAddr":"1.2.3.4:5","clientId":"c","language":"JAVA","version":479}'


def test_members_of_groups_are_encoded_as_java_reads_them() -> None:
    """GET_CONSUMER_CONNECTION_LIST (203) and GET_PRODUCER_CONNECTION_LIST (204), with subscriptions by topic;
    round-trip."""
    member = ClientConnection("c", "1.2.3.4:5", "JAVA", 479)
    producers = ProducerConnection([member])
    assert producers.encode() == b'{"connectionSet":[%b]}' % MEMBER
    consumers = ConsumerConnection([member], {"T": subscribe("T", "a", 7)})
    text = consumers.encode()
    assert text.startswith(b'{"connectionSet":[%b],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",' % MEMBER)
    assert b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"T":{' in text
    assert (ConsumerConnection.decode(text), ProducerConnection.decode(producers.encode())) == (consumers, producers)


def test_producers_are_listed_by_group() -> None:
    """GET_ALL_PRODUCER_INFO (328): addresses begin with a slash."""
    table = ProducerTable({"g": [ProducerInfo("c", "/1.2.3.4:5", "GO", 317, 9)]})
    assert table.encode() == (
        b'{"data":{"g":[{"clientId":"c","language":"GO","lastUpdateTimestamp":9,"remoteIP":"/1.2.3.4:5","version":317}]}}'
    )
    assert ProducerTable.decode(table.encode()) == table


def test_parts_of_a_body_are_json_for_any_number_of_clients() -> None:
    """The parts of a body are JSON together, for no, one and many clients."""
    members = [ClientConnection(f"c{number}") for number in range(3)]
    topics = {name: subscribe(name, "*", 1) for name in ("A", "B")}
    for body in (ConsumerConnection(), ConsumerConnection(members, topics), ConsumerConnection(members[:1])):
        assert ConsumerConnection.decode(body.encode()) == body
    assert ProducerConnection.decode(ProducerConnection(members).encode()).connection_set == members
    assert ProducerConnection().encode() == b'{"connectionSet":[]}'
    for data in ({}, {"a": [], "b": [ProducerInfo("c"), ProducerInfo("d")]}):
        assert ProducerTable.decode(ProducerTable(data).encode()).data == data
