"""Heartbeats of all official clients decode to the same structs."""

import pytest

from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from skylarkmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData

JAVA = (
    b'{"clientID":"10.0.0.1@1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
    b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":['
    b'{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
    b'"subVersion":1795224625015,"tagsSet":["TagA","TagB"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,'
    b'"producerDataSet":[{"groupName":"p"}],"withoutSub":false}'
)


def test_heartbeat_of_java() -> None:
    """Java's heartbeat decodes to its values, and is written with its bytes."""
    decoded = HeartbeatData.decode(JAVA)
    assert decoded == HeartbeatData(
        "10.0.0.1@1",
        [ProducerData("p")],
        [
            ConsumerData(
                "g",
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                subscription_data_set=[
                    SubscriptionData("T", "TagA || TagB", ["TagA", "TagB"], [2598919, 2598920], 1795224625015)
                ],
            )
        ],
    )
    assert decoded.encode() == JAVA


def test_heartbeat_of_cpp() -> None:
    """C++ ordinals, texts for numbers, missing lists and the newline at the end are read."""
    decoded = HeartbeatData.decode(
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":0,'
        b'"subscriptionDataSet":[{"subString":"*","subVersion":"1795224625015","topic":"T"}]}]}\n'
    )
    assert decoded.producer_data_set == []
    (consumer,) = decoded.consumer_data_set
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.subscription_data_set == [SubscriptionData("T", "*", sub_version=1795224625015)]


def test_heartbeat_of_go() -> None:
    """Go's nanoseconds fit, and its nulls count as absent."""
    decoded = HeartbeatData.decode(
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"g","messageModel":"CLUSTERING",'
        b'"subscriptionDataSet":[{"subVersion":1795224625015000000,"codeSet":["97",98],"tagsSet":null,"topic":"T"}]}]}'
    )
    (subscription,) = decoded.consumer_data_set[0].subscription_data_set
    assert subscription == SubscriptionData("T", code_set=[97, 98], sub_version=1795224625015000000)


@pytest.mark.parametrize(("ordinal", "expected"), list(enumerate(ConsumeFromWhere)))
def test_ordinals_are_replaced_by_names(ordinal: int, expected: ConsumeFromWhere) -> None:
    """An ordinal is the position in the list of names."""
    data = b'{"consumeFromWhere":%d}' % ordinal
    assert ConsumerData.decode(data).consume_from_where is expected


@pytest.mark.parametrize(("text", "expected"), [(b"true", True), (b'"true"', True), (b"1", True), (b"0", False)])
def test_flags_in_all_forms_are_read(text: bytes, expected: bool) -> None:
    """Flags are booleans, text, or the 0 and 1 of C++."""
    assert HeartbeatData.decode(b'{"withoutSub":%s}' % text).without_sub is expected
