"""Topic configurations, their text, and both forms of a registration."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.bodies.body import BodyError
from skylarkmq.protocol.bodies.enums import TopicFilterType
from skylarkmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from tests.harness.golden import responses

TOPIC = TopicConfig("BenchTopic", 4, 4, 6)


def registration(*topics: TopicConfig) -> RegisterBrokerBody:
    table = {topic.topic_name: topic for topic in topics}
    return RegisterBrokerBody(TopicConfigSerializeWrapper(DataVersion(0, 1_700_000_000_000, 3), table), ["f:1"])


def test_text_of_a_topic_in_remarks() -> None:
    """The text in remarks is RocketMQ's; since 5.x it ends with the attributes."""
    remark = responses()["send queueId 99"]["rawHeader"]
    assert str(TOPIC).replace(", attributes={}]", "]") in remark
    full = TopicConfig("T", 1, 2, 7, TopicFilterType.MULTI_TAG, 1, True, {"a": "1", "b": "2"})
    assert str(full) == (
        "TopicConfig [topicName=T, readQueueNums=1, writeQueueNums=2, perm=RWX, topicFilterType=MULTI_TAG, "
        "topicSysFlag=1, order=true, attributes={a=1, b=2}]"
    )


def test_json_of_a_topic_has_all_members() -> None:
    """The JSON of a topic has all members of 5.x, in alphabetical order."""
    assert TOPIC.encode() == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"BenchTopic","topicSysFlag":0,"writeQueueNums":4}'
    )
    assert TopicConfig.decode(b'{"topicFilterType":1,"attributes":null}').topic_filter_type is TopicFilterType.MULTI_TAG


def test_data_version_changes_with_every_change() -> None:
    """The next version differs even within one millisecond."""
    version = DataVersion(timestamp=5, counter=1)
    assert version.next(5) == DataVersion(timestamp=5, counter=2)
    assert version == DataVersion(timestamp=5, counter=1)


@pytest.mark.parametrize("version", [409, 479])
def test_compressed_registrations_round_trip(version: int) -> None:
    """The compressed form round-trips, with attributes from 5.x on."""
    topics = (TOPIC, TopicConfig("T", 1, 2, 7, TopicFilterType.MULTI_TAG, attributes={"message.type": "FIFO"}))
    decoded = RegisterBrokerBody.decode_compressed(registration(*topics).encode_compressed(version))
    if version < 413:
        topics[1].attributes.clear()
    assert decoded == registration(*topics)


def test_compressed_registration_has_the_documented_layout() -> None:
    """The layout is that of the table in the documentation."""
    version = b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}'
    topic = b"BenchTopic 4 4 6 SINGLE_TAG"
    servers = b'["f:1"]'
    parts = (len(version), version, 1, len(topic), topic, len(servers), servers)
    plain = b"".join(struct.pack(">i", part) if isinstance(part, int) else part for part in parts)
    assert zlib.decompress(registration(TOPIC).encode_compressed(409)) == plain
    assert RegisterBrokerBody.decode_compressed(zlib.compress(plain)) == registration(TOPIC)


@given(st.binary(), st.binary(max_size=60), st.integers(0, 200))
def test_hostile_registrations_raise_only_body_error(raw: bytes, plain: bytes, cut: int) -> None:
    """Any bytes, compressed or not, and any damaged registration decode or raise BodyError."""
    good = zlib.decompress(registration(TOPIC).encode_compressed(479))
    for data in (raw, zlib.compress(plain), zlib.compress(good[:cut] + plain + good[cut + 1 :])):
        try:
            RegisterBrokerBody.decode_compressed(data)
        except BodyError:
            continue


def test_a_truncated_registration_is_rejected() -> None:
    """A stream that ends early raises BodyError."""
    with pytest.raises(BodyError, match="cut off"):
        RegisterBrokerBody.decode_compressed(registration(TOPIC).encode_compressed(479)[:-1])


def compressed(version: bytes, count: int, topics: bytes) -> bytes:
    plain = struct.pack(">i", len(version)) + version + struct.pack(">i", count) + topics
    return zlib.compress(plain + struct.pack(">i", 2) + b"[]")


def test_a_registration_beyond_the_limits_is_rejected() -> None:
    """A body that inflates beyond a frame is rejected before its topics are read; so is one with too many topics."""
    entry = b"T 4 4 6 SINGLE_TAG"
    topic = struct.pack(">i", len(entry)) + entry
    for data, reason in (
        (compressed(b"{}", 2_000_000, topic * 2_000_000), "inflates to over"),
        (compressed(b"{}", 65_537, topic * 65_537), "65537 topics, the limit is 65536"),
        (compressed(b"{}" + b" " * 2_000_000, 1, topic), "not a valid DataVersion"),
        (
            compressed(b"{}", 1, struct.pack(">i", 5_014) + b"T " + b"9" * 5_000 + b" 4 6 SINGLE"),
            "not a compressed registration",
        ),
    ):
        with pytest.raises(BodyError, match=reason):
            RegisterBrokerBody.decode_compressed(data)
    assert RegisterBrokerBody.decode_compressed(compressed(b"{}", 2, topic * 2)).filter_server_list == []
    with pytest.raises(BodyError, match="the limit is 1"):
        RegisterBrokerBody.decode_compressed(compressed(b"{}", 2, topic * 2), most_topics=1)
