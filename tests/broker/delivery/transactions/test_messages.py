"""The messages of transactions."""

import pytest

from skylarkmq.broker.delivery.transactions.messages import (
    OP_PROPERTIES,
    check_request_of,
    copy_of,
    decided_by,
    discard_of,
    final_of,
    half_of,
    make_half,
    op_of,
)
from skylarkmq.broker.processors.send.stored_properties import PropertyCompletion
from skylarkmq.protocol.message import decode_properties, encode_properties
from skylarkmq.protocol.record import Record, encode, parse
from tests.harness.stores import BORN_HOST, message
from tests.harness.transacted import HALF, HOST, OP

PROPERTIES = {"REAL_TOPIC": "T", "REAL_QID": "3", "TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "U"}


def record(properties: dict[str, str], born_host: bytes = BORN_HOST) -> bytes:
    return encode(
        topic=HALF, body=b"body", properties=encode_properties(properties).encode(), queue_id=0, queue_offset=5,
        physical_offset=77, born_timestamp=1, born_host=born_host, store_timestamp=2, store_host=HOST, flag=9,
        sys_flag=0x301, reconsume_times=4,
    )  # fmt: skip


def test_a_half_message_contains_its_destination_and_root() -> None:
    """Without a root property it is its own root."""
    half = half_of(record(PROPERTIES))
    assert half is not None
    assert (half.topic, half.queue_id, half.root, half.checks, half.group, half.unique_key) == (
        "T",
        3,
        5,
        0,
        "PG",
        "U",
    )
    later = half_of(record(PROPERTIES | {"TRAN_PREPARED_QUEUE_OFFSET": "2", "TRANSACTION_CHECK_TIMES": "7"}))
    assert later is not None
    assert (later.root, later.checks) == (2, 7)


@pytest.mark.parametrize(
    "changes", [{"REAL_TOPIC": ""}, {"REAL_QID": ""}, {"REAL_QID": "-1"}, {"REAL_QID": "x"}, {"REAL_QID": "1" * 30}]
)
def test_a_record_without_a_destination_is_not_a_half_message(changes: dict[str, str]) -> None:
    """Bytes without a record are not one either."""
    assert half_of(record(PROPERTIES | changes)) is None
    assert half_of(b"\0" * 100) is None
    assert half_of(None) is None


@pytest.mark.parametrize(
    ("seconds", "ms"), [("0", 0), ("12", 12_000), ("-1", 6_000), ("", 6_000), ("1.5", 6_000), ("x", 6_000)]
)
def test_immunity_is_parsed(seconds: str, ms: int) -> None:
    """-1, and a value that is not a number, mean the default."""
    half = half_of(record(PROPERTIES | {"CHECK_IMMUNITY_TIME_IN_SECONDS": seconds}))
    assert half is not None
    assert half.immunity_ms(6_000) == ms


@pytest.mark.parametrize("born_host", [BORN_HOST, bytes(range(20))])
def test_final_message_and_copy(born_host: bytes) -> None:
    """Final message and copy keep body, flag, hosts and times; only the final one has transaction bits."""
    half = half_of(record(PROPERTIES, born_host))
    assert half is not None
    final, copy = final_of(half), copy_of(half, 5, 1)
    for made in (final, copy):
        assert (bytes(made.body), made.flag, made.born_timestamp, made.reconsume_times) == (b"body", 9, 1, 4)
        assert made.born_host == born_host
    assert (final.topic, final.queue_id, final.sys_flag & 0xC, final.prepared_transaction_offset) == ("T", 3, 8, 77)
    assert (copy.topic, copy.queue_id, copy.sys_flag & 0xC, copy.prepared_transaction_offset) == (HALF, 0, 0, 0)
    added = {"TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_HALF_OFFSET": "5"}
    assert decode_properties(copy.properties.decode()) == PROPERTIES | added
    assert decode_properties(copy_of(half, None, 0).properties.decode()) == PROPERTIES | {
        "TRANSACTION_CHECK_TIMES": "0"
    }


@pytest.mark.parametrize("name", ["TRAN_PREPARED_QUEUE_OFFSET", "TRAN_PREPARED_HALF_OFFSET"])
@pytest.mark.parametrize("root", ["2", "6", "x"])
def test_clients_do_not_get_the_offset_of_the_half_message(root: str, name: str) -> None:
    """Neither in the committed or discarded message nor in a check; the other properties stay byte for byte."""
    added = {"TRANSACTION_CHECK_TIMES": "1", name: root, "last": "TRAN_PREPARED_QUEUE_OFFSET"}
    half = half_of(record(PROPERTIES | added))
    assert half is not None
    expected = encode_properties(PROPERTIES | {"TRANSACTION_CHECK_TIMES": "1", "last": added["last"]}).encode()
    assert final_of(half).properties == discard_of(half).properties == expected
    assert name not in half.properties  # delayed messages are made from these
    copy = copy_of(half, half.root, 2)
    question = parse(memoryview(check_request_of(half, copy, HOST, "b").body))
    assert isinstance(question, Record)
    assert b"\x02TRAN_PREPARED" not in question.properties
    assert b"TRANSACTION_CHECK_TIMES\x012\x02" in question.properties
    assert b"TRAN_PREPARED_HALF_OFFSET\x01" in copy.properties


def test_clients_get_the_offset_after_the_immunity_time_as_from_rocketmq() -> None:
    """A copy made during the immunity time has TRAN_PREPARED_QUEUE_OFFSET; later copies, checks and final messages
    keep it. A transaction of its own has none."""
    immune = PROPERTIES | {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
    half = half_of(record(immune))
    assert half is not None
    kept = decode_properties(copy_of(half, 3, 0, is_immune=True).properties.decode())
    assert kept == immune | {"TRANSACTION_CHECK_TIMES": "0", "TRAN_PREPARED_QUEUE_OFFSET": "3"}
    again = half_of(record(kept))
    assert again is not None
    assert again.root == 3
    for made in (final_of(again), discard_of(again)):
        assert decode_properties(made.properties.decode()) == kept
    copy = copy_of(again, again.root, 1)
    assert decode_properties(copy.properties.decode()) == kept | {"TRANSACTION_CHECK_TIMES": "1"}
    question = parse(memoryview(check_request_of(again, copy, HOST, "b").body))
    assert isinstance(question, Record)
    assert question.properties == copy.properties
    assert decode_properties(copy_of(again, None, 0).properties.decode()) == immune | {"TRANSACTION_CHECK_TIMES": "0"}


@pytest.mark.parametrize(
    "changes",
    [
        {"REAL_TOPIC": "../x"},
        {"REAL_TOPIC": "a\0b"},
        {"REAL_TOPIC": OP},
        {"REAL_TOPIC": "rmq_sys_wheel_timer"},
        {"REAL_TOPIC": "T" * 256},
        {"REAL_QID": "2147483648"},
        {"REAL_QID": "9" * 5_000},
        {"REAL_QID": "٣"},
    ],
)
def test_a_forged_record_is_not_a_half_message(changes: dict[str, str]) -> None:
    """A half message is validated as if it came from the network: other versions let clients forge them."""
    assert half_of(record(PROPERTIES | changes)) is None


@pytest.mark.parametrize("root", ["6", "999999999999999999", "-1", "9" * 5_000, "٣"])
def test_a_root_after_its_copy_is_ignored(root: str) -> None:
    """The record is a transaction of its own, and no table grows to a forged offset."""
    half = half_of(record(PROPERTIES | {"TRAN_PREPARED_QUEUE_OFFSET": root, "TRANSACTION_CHECK_TIMES": "9" * 5_000}))
    assert half is not None
    assert (half.root, half.checks) == (5, 0)


def test_a_sender_cannot_set_the_root() -> None:
    """Nor the number of checks: both would end transactions of others, or its own too early."""
    append = message(b"x", "T")
    roots = {"TRAN_PREPARED_QUEUE_OFFSET": "2", "TRAN_PREPARED_HALF_OFFSET": "2"}
    make_half(append, PROPERTIES | roots | {"TRANSACTION_CHECK_TIMES": "15"})
    stored = decode_properties(append.properties.decode())
    assert not {"TRANSACTION_CHECK_TIMES", *roots} & set(stored)
    completion = PropertyCompletion("C", lambda: "K")
    for name in ("TRAN_PREPARED_QUEUE_OFFSET", "TRAN_PREPARED_HALF_OFFSET", "TRANSACTION_CHECK_TIMES"):
        forged = f"{name}\x012\x02"
        plain = "UNIQ_KEY\x01K1\x02TRAN_MSG\x01true\x02"
        assert completion.deferred(plain) is not None
        assert completion.deferred(plain + forged) is None  # so all its properties are decoded


def op_record(body: bytes, properties: bytes = OP_PROPERTIES) -> Record:
    data = encode(
        topic=OP, body=body, properties=properties, queue_id=0, queue_offset=5, physical_offset=77, born_timestamp=1,
        born_host=BORN_HOST, store_timestamp=2, store_host=HOST,
    )  # fmt: skip
    found = parse(memoryview(data))
    assert isinstance(found, Record)
    return found


def test_op_messages_contain_offsets() -> None:
    """Ours contain one offset, RocketMQ's any number."""
    op = op_of(12, 1, HOST)
    assert (op.topic, op.queue_id, bytes(op.body), op.tags_code) == (OP, 0, b"12", 100)
    assert decided_by(op_record(bytes(op.body))) == [12]
    assert decided_by(op_record(b"12,13,14,")) == decided_by(op_record(b"12,13,14")) == [12, 13, 14]
    assert decided_by(op_record(b"12", b"TAGS\x01d\x02")) == [12]


@pytest.mark.parametrize(
    "body", [b"", b",", b"x", b"-1", b"12 13", b"9" * 5_000, b"9223372036854775808", "٣".encode(), b"\xff1", b"1,,2"]
)
def test_invalid_op_messages_decide_nothing(body: bytes) -> None:
    """They raise nothing either."""
    assert decided_by(op_record(body)) is None


@pytest.mark.parametrize(
    "properties", [b"", b"TAGS\x01e\x02", OP_PROPERTIES + b"REAL_TOPIC\x01RMQ_SYS_TRANS_OP_HALF_TOPIC\x02"]
)
def test_op_messages_from_another_topic_are_ignored(properties: bytes) -> None:
    """A broker tags its op messages, and never sends them through a delay level or a timer."""
    assert decided_by(op_record(b"12", properties)) is None
