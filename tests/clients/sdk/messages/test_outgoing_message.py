"""Preparation of messages for sending."""

import zlib
from datetime import UTC, datetime, timedelta

import pytest

from skylarkmq.clients.sdk.base.errors import InvalidMessage
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.messages.outgoing_message import Preparation, check_topic, scheduled
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.message import Message, decode_batch, decode_properties
from skylarkmq.protocol.message_id import UniqueIds

NOW_MS = 1_795_283_796_296
SETTINGS = ProducerSettings()


@pytest.fixture
def ids() -> UniqueIds:
    return UniqueIds("10.0.0.1", 7, 99)


def test_properties_carry_tags_keys_and_id(ids: UniqueIds) -> None:
    """Those of the application are kept; UNIQ_KEY is the message id."""
    message = Message("T", b"x", tags="paid", keys=["a", "b"], properties={"ü": "é"})
    outgoing = Preparation(ids, SETTINGS).one(message, NOW_MS)
    properties = decode_properties(outgoing.properties)
    assert properties == {"ü": "é", "KEYS": "a b", "TAGS": "paid", "UNIQ_KEY": outgoing.msg_id}
    assert message.properties == {"ü": "é"}


def test_a_given_message_id_is_kept(ids: UniqueIds) -> None:
    """A forwarded message keeps its id."""
    assert Preparation(ids, SETTINGS).one(Message("T", b"", properties={"UNIQ_KEY": "X"}), NOW_MS).msg_id == "X"


def test_large_bodies_are_compressed(ids: UniqueIds) -> None:
    """From 4 KiB on, if that makes them smaller; sysFlag marks them."""
    outgoing = Preparation(ids, SETTINGS).one(Message("T", b"a" * 4096), NOW_MS)
    assert outgoing.sys_flag == SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB
    assert zlib.decompress(outgoing.body) == b"a" * 4096
    for body in (b"a" * 4095, zlib.compress(bytes(range(256)) * 64) + bytes(range(256)) * 17):
        plain = Preparation(ids, ProducerSettings(compression_level=0)).one(Message("T", body), NOW_MS)
        assert (plain.body, plain.sys_flag) == (body, 0)


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"a" * (4 * 1024 * 1024 + 1)),
        Message("T", b"", properties={"a\x01b": "c"}),
        Message("T", b"", properties={"a": "c\x02"}),
        Message("T", b"", properties={"a": "x" * 40_000}),
    ],
    ids=["body", "name", "value", "properties"],
)
def test_messages_above_limits_are_refused(ids: UniqueIds, message: Message) -> None:
    """Limits and separators are checked before the send."""
    with pytest.raises(InvalidMessage):
        Preparation(ids, SETTINGS).one(message, NOW_MS)


def test_batch_is_one_body_of_all_messages(ids: UniqueIds) -> None:
    """Each record keeps its flag, body and properties; the ids are joined."""
    messages = [Message("T", b"%d" % n, tags=f"t{n}", flag=n) for n in range(3)]
    (outgoing,) = Preparation(ids, SETTINGS).batches(messages, NOW_MS)
    records = decode_batch(outgoing.body)
    assert [(record.flag, bytes(record.body)) for record in records] == [(0, b"0"), (1, b"1"), (2, b"2")]
    properties = [decode_properties(bytes(record.properties).decode()) for record in records]
    assert [entry["TAGS"] for entry in properties] == ["t0", "t1", "t2"]
    assert ",".join(entry["UNIQ_KEY"] for entry in properties) == outgoing.msg_id
    assert outgoing.is_batch


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message("A", b""), Message("B", b"")],
        [Message("A", b""), Message("A", b"x" * 2**22)],
        [Message("A", b"", properties={"DELAY": "3"})],
    ],
    ids=["empty", "topics", "size", "delayed"],
)
def test_invalid_batches_are_refused(ids: UniqueIds, messages: list[Message]) -> None:
    """No message, two topics, a message above the limit, or one with a time of delivery."""
    with pytest.raises(InvalidMessage):
        Preparation(ids, SETTINGS).batches(messages, NOW_MS)


def test_a_batch_is_split_at_the_limit(ids: UniqueIds) -> None:
    """Into the fewest requests below it, with the messages in order."""
    messages = [Message("T", bytes([n]) * 1000) for n in range(25)]
    batches = Preparation(ids, ProducerSettings(max_message_bytes=10_800)).batches(messages, NOW_MS)
    bodies = [[bytes(record.body) for record in decode_batch(batch.body)] for batch in batches]
    assert [len(each) for each in bodies] == [10, 10, 5]
    assert [body for each in bodies for body in each] == [message.body for message in messages]
    assert max(len(batch.body) for batch in batches) <= 10_800
    assert len({msg_id for batch in batches for msg_id in batch.msg_id.split(",")}) == 25


AT = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("delay", "deliver_at", "level", "expected"),
    [
        (timedelta(seconds=1.5), None, None, {"TIMER_DELAY_MS": "1500"}),
        (None, AT, None, {"TIMER_DELIVER_MS": "1893456000000"}),
        (None, None, 4, {"DELAY": "4"}),
    ],
)
def test_a_time_of_delivery_is_a_property(
    delay: timedelta | None, deliver_at: datetime | None, level: int | None, expected: dict[str, str]
) -> None:
    """One of RocketMQ's three. The given message is unchanged."""
    message = Message("T", b"x", properties={"k": "v"})
    assert scheduled(message, delay, deliver_at, level).properties == {"k": "v"} | expected
    assert message.properties == {"k": "v"}


def test_invalid_times_are_refused() -> None:
    """Two times, or one that is not in the future."""
    with pytest.raises(ValueError, match="one of"):
        scheduled(Message("T", b"x"), timedelta(seconds=1), AT, None)
    for delay, level in ((timedelta(0), None), (None, 0), (timedelta(seconds=-1), None)):
        with pytest.raises(ValueError, match="not in the future"):
            scheduled(Message("T", b"x"), delay, None, level)


@pytest.mark.parametrize("topic", ["", " ", "a b", "ü", "x" * 128])
def test_invalid_topics_are_refused(topic: str) -> None:
    """By the broker's rule and with its text."""
    with pytest.raises(InvalidMessage, match="The specified topic"):
        check_topic(topic)
