"""The messages of which transactions are made."""

import pytest

from broker.delivery.transactions.messages import copy_of, decided_by, final_of, half_of, op_of
from protocol.message import decode_properties, encode_properties
from protocol.record import encode
from tests.harness.stores import BORN_HOST
from tests.harness.transacted import HALF, HOST, OP

PROPERTIES = {"REAL_TOPIC": "T", "REAL_QID": "3", "TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "U"}


def record(properties: dict[str, str], born_host: bytes = BORN_HOST) -> bytes:
    return encode(
        topic=HALF, body=b"body", properties=encode_properties(properties).encode(), queue_id=0, queue_offset=5,
        physical_offset=77, born_timestamp=1, born_host=born_host, store_timestamp=2, store_host=HOST, flag=9,
        sys_flag=0x301, reconsume_times=4,
    )  # fmt: skip


def test_a_half_message_says_where_it_belongs() -> None:
    """And which transaction it is of: without another word, its own."""
    half = half_of(record(PROPERTIES))
    assert half is not None
    assert (half.topic, half.queue_id, half.root, half.checks, half.group, half.unique_key) == (
        *("T", 3, 5, 0),
        *("PG", "U"),
    )
    later = half_of(record(PROPERTIES | {"TRAN_PREPARED_QUEUE_OFFSET": "2", "TRANSACTION_CHECK_TIMES": "7"}))
    assert later is not None
    assert (later.root, later.checks) == (2, 7)


@pytest.mark.parametrize(
    "changes", [{"REAL_TOPIC": ""}, {"REAL_QID": ""}, {"REAL_QID": "-1"}, {"REAL_QID": "x"}, {"REAL_QID": "1" * 30}]
)
def test_what_does_not_say_where_it_belongs_is_none(changes: dict[str, str]) -> None:
    """Neither is what is no record at all."""
    assert half_of(record(PROPERTIES | changes)) is None
    assert half_of(b"\0" * 100) is None
    assert half_of(None) is None


@pytest.mark.parametrize(
    ("seconds", "ms"), [("0", 0), ("12", 12_000), ("-1", 6_000), ("", 6_000), ("1.5", 6_000), ("x", 6_000)]
)
def test_immunity(seconds: str, ms: int) -> None:
    """-1, and what is no number, is the default."""
    half = half_of(record(PROPERTIES | {"CHECK_IMMUNITY_TIME_IN_SECONDS": seconds}))
    assert half is not None
    assert half.immunity_ms(6_000) == ms


@pytest.mark.parametrize("born_host", [BORN_HOST, bytes(range(20))])
def test_what_becomes_of_it(born_host: bytes) -> None:
    """Final message and copy keep body, flag, hosts and times; only the final one has a transaction's bits."""
    half = half_of(record(PROPERTIES, born_host))
    assert half is not None
    final, copy = final_of(half), copy_of(half, 5, 1)
    for made in (final, copy):
        assert (bytes(made.body), made.flag, made.born_timestamp, made.reconsume_times) == (b"body", 9, 1, 4)
        assert made.born_host == born_host
    assert (final.topic, final.queue_id, final.sys_flag & 0xC, final.prepared_transaction_offset) == ("T", 3, 8, 77)
    assert (copy.topic, copy.queue_id, copy.sys_flag & 0xC, copy.prepared_transaction_offset) == (HALF, 0, 0, 0)
    added = {"TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "5"}
    assert decode_properties(copy.properties.decode()) == PROPERTIES | added
    assert decode_properties(copy_of(half, None, 0).properties.decode()) == PROPERTIES | {
        "TRANSACTION_CHECK_TIMES": "0"
    }


def test_op_messages() -> None:
    """Ours name one half message, RocketMQ's as many as they like."""
    op = op_of(12, 1, HOST)
    assert (op.topic, op.queue_id, bytes(op.body), op.tags_code) == (OP, 0, b"12", 100)
    assert decided_by(op.body) == [12]
    assert decided_by(b"12,13,14,") == [12, 13, 14]
    assert decided_by(b"") == decided_by(b",") == []
