"""The compiled module returns the same columns as NumPy and Arrow, or none."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylarkmq.clients.arrow.columns import numpy_columns, record_batch
from skylarkmq.clients.arrow.compiled_columns import STORED_TYPES, TEXTS, common_columns, unordered_columns
from skylarkmq.clients.arrow.record_layout import RecordLayout, python_record_starts, record_starts
from skylarkmq.clients.arrow.schema import message_columns
from skylarkmq.protocol import compiled
from tests.clients.arrow.test_columns import V6, encode_one
from tests.harness.rounds import rounds
from tests.harness.spark_rows import rows_of

pytestmark = pytest.mark.skipif(compiled.load("columns") is None, reason="no compiled modules here")

PIECES = (
    b"TAGS\x01TagA\x02", b"KEYS\x01k1 k2\x02", b"KEYS\x01 k3\x02", b"KEYS\x01  \x02", b"KEYS\x01\x02", b"TAGS\x01",
    b"TAG\x01x\x02", b"TAGSX\x01x\x02", b"UNIQ_KEY\x010A0B\x02", b"UNIQ_KE\x01no\x02", b"UNIQ_KEYS\x01no\x02",
    b"UNIQ_KEY\x01\x02", b"a\x01b\x01c\x02", b"\x01x\x02", b"\x02", b"x", b"KEYS\x01k", b"UNIQ_KEY\x017",
)  # fmt: skip

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
times = st.integers(0, 2_000_000_000_000) | st.sampled_from([-62_135_596_800_000, 253_402_300_799_999])


@st.composite
def records_in_common_layout(draw: Any) -> bytes:
    return encode_one(
        topic=draw(st.sampled_from(["T", "Orders", "%RETRY%" + "g" * 140])),
        body=draw(st.binary(max_size=50)),
        properties=draw(st.lists(st.sampled_from(PIECES), max_size=7).map(b"".join)),
        queue_id=draw(int32),
        queue_offset=draw(int64),
        born_timestamp=draw(times),
        store_timestamp=draw(times),
        flag=draw(int32),
        sys_flag=draw(st.sampled_from([0, 2, 8, 0x300])),
        reconsume_times=draw(int32),
        physical_offset=draw(int64),
        prepared_transaction_offset=draw(int64),
    )


@given(st.lists(records_in_common_layout(), max_size=12), st.binary(max_size=120), st.randoms())
@settings(max_examples=rounds(150))
def test_records_in_the_common_layout_have_the_same_columns(parts: list[bytes], rest: bytes, chance: Any) -> None:
    """The columns of all records, and of some of them, are equal and valid, whatever bytes follow."""
    buffer = b"".join(parts) + rest
    positions = [sum(map(len, parts[:n])) for n in range(len(parts))]
    starts = np.array([at for at in positions if chance.random() < 0.9], np.int64)
    found = common_columns(buffer, starts)
    assert found is not None
    expected = numpy_columns(RecordLayout(buffer, starts), STORED_TYPES)
    assert found.keys() == expected.keys()
    for name, column in found.items():
        column.validate(full=True)
        assert column.equals(expected[name]), name


@given(st.lists(records_in_common_layout(), max_size=12), st.sets(st.sampled_from(TEXTS)), st.booleans(), st.randoms())
@settings(max_examples=rounds(100))
def test_records_in_any_order_have_the_same_columns(
    parts: list[bytes], encoded: set[str], is_viewed: bool, chance: Any
) -> None:
    """Also as dictionary arrays, and bodies as views."""
    buffer = b"".join(parts)
    starts = np.array([sum(map(len, parts[:n])) for n in range(len(parts))], np.int64)
    viewed = {"body"} if is_viewed else set()
    expected = numpy_columns(RecordLayout(buffer, starts), STORED_TYPES)
    order = np.array(chance.sample(range(len(parts)), len(parts)), np.int64)
    found = unordered_columns(buffer, starts[order], STORED_TYPES, encoded - viewed, viewed)
    assert found is not None
    for name, column in found.items():
        column.validate(full=True)
        assert pa.types.is_dictionary(column.type) is (name in encoded - viewed)
        plain = column.dictionary_decode() if name in encoded - viewed else column
        assert plain.cast(STORED_TYPES[name]).equals(expected[name].take(pa.array(order))), name


def test_values_that_repeat_a_record_have_a_limit() -> None:
    """Arrow's offsets are 32 bits; records in any order may repeat."""
    record = encode_one(body=bytes(1 << 20))
    starts = np.zeros(1 << 11, np.int64)
    with pytest.raises(ValueError, match="Arrow's limit"):
        unordered_columns(record, starts, ["body"], (), ())
    found = unordered_columns(record, starts, ["body"], (), ["body"])
    assert found is not None
    assert len(found["body"]) == len(starts)


OTHERS: list[dict[str, Any]] = [
    {},
    {"sys_flag": 1},
    {"topic": "主题"},
    {"properties": b"a\x01\xff\x02"},
    {"born_timestamp": 1 << 60},
]
USED_BY = {
    "sys_flag": {"body"},
    "topic": {"topic"},
    "born_timestamp": {"bornTimestamp"},
    "properties": {"properties", "tags", "keys", "msgId"},
}


@given(
    st.lists(records_in_common_layout(), max_size=4),
    st.sets(st.sampled_from([*STORED_TYPES])),
    st.sampled_from(OTHERS),
)
@settings(max_examples=rounds(60))
def test_only_the_wanted_columns_are_returned(parts: list[bytes], names: set[str], other: dict[str, Any]) -> None:
    """A record is in the common layout if its wanted columns are; stored bodies may be compressed."""
    parts = [*parts, encode_one(**other)]
    buffer = b"".join(parts)
    starts = np.array([sum(map(len, parts[:n])) for n in range(len(parts))], np.int64)
    for decode in (True, False):
        found = common_columns(buffer, starts, names, decode=decode)
        is_common = not any(USED_BY[field] & names for field in other) or (not decode and "sys_flag" in other)
        assert (found is not None) == is_common
        if found is not None:
            assert found == numpy_columns(RecordLayout(buffer, starts), names, decode=decode)


@given(st.lists(records_in_common_layout(), max_size=12), st.integers(0, 2000), st.integers(-3, 3))
@settings(max_examples=rounds(100))
def test_record_starts_are_the_same(parts: list[bytes], cut: int, shift: int) -> None:
    """The result is the same for a part of the buffer, and from a position without a record."""
    buffer = b"".join(parts)
    begin, end = max(0, min(shift, len(buffer))), min(cut, len(buffer))
    assert record_starts(buffer, begin, end).tolist() == python_record_starts(buffer, begin, end).tolist()


@pytest.mark.parametrize(
    "other",
    [
        {"sys_flag": 1},
        {"born_host": V6},
        {"store_host": V6},
        {"topic": "主题"},
        {"properties": b"a\x01\xff\x02"},
        {"born_timestamp": -62_135_596_800_001},
        {"store_timestamp": 253_402_300_800_000},
    ],
)
def test_one_record_in_another_layout_disables_the_compiled_columns(other: dict[str, Any]) -> None:
    """The compiled module never returns a part of a batch."""
    parts = [encode_one(), encode_one(**other), encode_one()]
    starts = np.array([0, len(parts[0]), len(parts[0] + parts[1])], np.int64)
    assert common_columns(b"".join(parts), starts[[0]]) is not None
    assert common_columns(b"".join(parts), starts) is None


@given(st.lists(records_in_common_layout(), min_size=1, max_size=4), st.randoms())
@settings(max_examples=rounds(200))
def test_damaged_records_have_no_columns_or_the_same(parts: list[bytes], chance: Any) -> None:
    """Bytes are flipped at random; compiled columns equal those of the Python version, if there are any."""
    buffer = bytearray(b"".join(parts))
    starts = np.array([sum(map(len, parts[:n])) for n in range(len(parts))], np.int64)
    for _ in range(chance.randint(1, 4)):
        buffer[chance.randrange(len(buffer))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    found = common_columns(buffer, starts)
    if found is not None:
        expected = numpy_columns(RecordLayout(buffer, starts), STORED_TYPES)
        assert all(column.equals(expected[name]) for name, column in found.items())


def test_whole_batches_are_the_same() -> None:
    """Including the other columns: keys, properties, and ids of messages without a unique id."""
    buffer = encode_one(properties=b"UNIQ_KEY\x01u\x02KEYS\x01a b\x02") + encode_one(properties=b"TAGS\x01t\x02")
    wanted = message_columns(include_properties=True)
    rows = rows_of(record_batch(buffer, record_starts(buffer, 0, len(buffer)), "b", wanted))
    assert [row["msgId"] for row in rows] == ["u", "0A00000100002A9F0000000000000000"]
    assert [row["key"] for row in rows] == ["a", None]
    assert [row["properties"] for row in rows] == [{"UNIQ_KEY": "u", "KEYS": "a b"}, {"TAGS": "t"}]


def test_a_start_outside_the_buffer_is_rejected() -> None:
    """No byte after the buffer's end is read."""
    for begin, end in ((-1, 5), (0, 201)):
        with pytest.raises(ValueError, match="is not within 200 bytes"):
            record_starts(bytes(200), begin, end)
