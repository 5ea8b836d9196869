"""Columns of records are compared with protocol.record: random, golden and damaged records."""

import random
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylarkmq.clients.arrow import columns
from skylarkmq.clients.arrow.columns import ends_of, queue_offsets, record_batch, record_batches, walk
from skylarkmq.clients.arrow.schema import TYPES, Columns, message_columns
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import Damaged, Record, decode, encode, iterate, to_message
from tests.harness.golden import bodies
from tests.harness.golden_stores import GOLDEN_STORES
from tests.harness.rounds import rounds
from tests.harness.spark_rows import row_of, rows_of, whole_row_of
from tests.harness.stores import unpack_golden

V4, V6 = encode_host("10.0.0.1", 10911), encode_host("2001:db8::7", 10911)
PIECES = [
    b"TAGS\x01TagA\x02", b"KEYS\x01k1 k2\x02", b"KEYS\x01 k3\x02", b"KEYS\x01  \x02", b"KEYS\x01\x02", b"TAGS\x01",
    b"TAG\x01x\x02", b"TAGSX\x01x\x02", b"UNIQ_KEY\x010A0B\x02", b"UNIQ_KE\x01no\x02", b"UNIQ_KEYS\x01no\x02",
    b"a\x01b\x01c\x02", b"\x01x\x02", b"a\x01\x02", b"\x02", b"ab\x02", b"x", "名\x01值\x02".encode(),
    b"\xff\x01\xfe\x02",
    b"n\x01\xe5\x90", b"\x8d\x02", b"TAGS\x01", b"\xc3", b"\xa9", b"KEYS\x01\xc3\xa9\x02",
    b"__CRC32#\x010123456789\x02",
]  # fmt: skip

properties = st.lists(st.sampled_from(PIECES), max_size=7).map(b"".join) | st.binary(max_size=60)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
times = st.integers(0, 2_000_000_000_000) | st.sampled_from([-1, -62_135_596_800_001, 253_402_300_800_000]) | int64


@st.composite
def records(draw: Any) -> bytes:
    body = draw(st.binary(max_size=50))
    sys_flag = draw(st.sampled_from([0, 0, 2, 8, 1, 0x301, 0x101, 0x201, 0x401]))
    if sys_flag in {1, 0x301} and draw(st.booleans()):
        body = zlib.compress(body)
    return encode(
        topic=draw(st.sampled_from(["T", "Orders", "主题", "%RETRY%" + "g" * 140])),
        body=body,
        properties=draw(properties),
        queue_id=draw(int32),
        queue_offset=draw(int64),
        physical_offset=draw(int64),
        born_timestamp=draw(times),
        born_host=draw(st.sampled_from([V4, V6])),
        store_timestamp=draw(times),
        store_host=draw(st.sampled_from([V4, V6])),
        flag=draw(int32),
        sys_flag=sys_flag,
        reconsume_times=draw(int32),
        prepared_transaction_offset=draw(int64),
    )


def expected(buffer: bytes) -> list[dict[str, Any]]:
    return [row_of(message, "b", include_properties=True) for message in decode(buffer)]


def columns_of(buffer: bytes) -> list[dict[str, Any]]:
    return rows_of(record_batch(buffer, walk(buffer), "b", message_columns(include_properties=True)))


@given(st.lists(records(), max_size=20))
@settings(max_examples=rounds(150))
def test_rows_equal_the_messages_that_protocol_decodes(parts: list[bytes]) -> None:
    """Any hosts, versions, properties, times and compressions: each column equals the message's value."""
    buffer = b"".join(parts)
    assert columns_of(buffer) == expected(buffer)
    assert queue_offsets(buffer, walk(buffer)).tolist() == [message.queue_offset for message in decode(buffer)]


@given(st.lists(records(), min_size=1, max_size=12), st.randoms())
@settings(max_examples=rounds(50))
def test_a_selection_of_records_becomes_only_those_rows(parts: list[bytes], chance: random.Random) -> None:
    """A batch of some of the starts has those rows, and no others."""
    buffer = b"".join(parts)
    chosen = sorted(chance.sample(range(len(parts)), chance.randint(0, len(parts))))
    batch = record_batch(buffer, walk(buffer)[chosen], "b", message_columns(include_properties=True))
    assert rows_of(batch) == [expected(buffer)[row] for row in chosen]


@given(
    st.lists(records(), max_size=8),
    st.lists(st.sampled_from([*TYPES]), min_size=1, max_size=6, unique=True),
    st.booleans(),
)
@settings(max_examples=rounds(60))
def test_any_columns_equal_the_fields_of_the_records(parts: list[bytes], names: list[str], decode: bool) -> None:
    """Columns in any number and order, decoded or as stored; the batch has the declared types."""
    buffer = b"".join(parts)
    columns = Columns(tuple(names), decode)
    batch = record_batch(buffer, walk(buffer), "b", columns)
    assert batch.schema == columns.schema
    found = [record for record in iterate(buffer, check_body=False) if isinstance(record, Record)]
    whole = [whole_row_of(record, "b", decode=decode) for record in found]
    assert rows_of(batch) == [{name: row[name] for name in names} for row in whole]


@pytest.mark.parametrize("golden", GOLDEN_STORES, ids="-".join)
def test_segments_of_rocketmq_become_the_rows_that_protocol_decodes(golden: tuple[str, str], tmp_path: Path) -> None:
    """Every segment of every golden store: the same rows, and the same position of the end."""
    root = unpack_golden(golden[0], tmp_path, golden[1])
    for segment in sorted((root / COMMIT_LOG_DIRECTORY).iterdir()):
        data = segment.read_bytes()
        messages = [to_message(record) for record in iterate(data, check_body=False) if isinstance(record, Record)]
        starts = walk(data)
        while len(starts) > len(messages):  # walk checks only lengths; the store has one torn record
            with pytest.raises(ProtocolError, match="fields end at"):
                record_batch(data, starts, "b", message_columns(include_properties=True))
            starts = starts[:-1]
        batch = record_batch(data, starts, "b", message_columns(include_properties=True))
        assert rows_of(batch) == [row_of(message, "b", include_properties=True) for message in messages]
        assert ends_of(data, starts)[-1:].tolist() == [int(start) + messages[-1].size for start in starts[-1:]]


@pytest.mark.parametrize("request_name", ["PULL_MESSAGE", "QUERY_MESSAGE", "VIEW_MESSAGE_BY_ID"])
def test_responses_of_rocketmq_become_the_rows_that_protocol_decodes(request_name: str) -> None:
    """The bodies of its pull responses are consecutive whole records."""
    found = bodies(request_name, "response")
    assert len(found) > 2
    for body in found:
        assert walk(body).tolist()
        assert columns_of(body) == expected(body)


def test_without_properties_the_other_columns_are_the_same() -> None:
    """The column `properties` is present only if the schema has it."""
    buffer = encode_one(properties=b"TAGS\x01a\x02") * 3
    batch = record_batch(buffer, walk(buffer), None, message_columns(include_properties=False))
    assert rows_of(batch) == [row_of(message, None) for message in decode(buffer)]


def test_no_records_become_a_batch_without_rows() -> None:
    """An empty response becomes an empty batch with all columns."""
    batch = record_batch(b"", walk(b""), "b", message_columns(include_properties=True))
    assert batch.num_rows == 0
    assert batch.schema == message_columns(include_properties=True).schema


def test_runs_of_equally_long_records_are_found() -> None:
    """A run ends at the first record of another length, or at a truncated record."""
    short, long = encode_one(body=b"a"), encode_one(body=b"ab")
    for count in range(12):
        buffer = short * count + long + short * 2
        after = len(short) * count + len(long)
        assert walk(buffer).tolist() == [*range(0, len(short) * count + 1, len(short)), after, after + len(short)]
        assert len(walk(buffer[:-1])) == count + 2
        assert walk(b"?" + buffer, 1).tolist() == (walk(buffer) + 1).tolist()


def test_a_batch_does_not_refer_to_the_buffer() -> None:
    """The buffer may be refilled while the batch is still in use."""
    buffer = bytearray(encode_one(body=b"before", properties=b"TAGS\x01tag\x02KEYS\x01key\x02") * 4)
    starts = walk(buffer)
    batch = record_batch(buffer, starts, "b", message_columns(include_properties=True))
    before = rows_of(batch)
    buffer[:] = bytes(len(buffer))
    assert rows_of(batch) == before


def test_a_body_that_cannot_be_decompressed_is_null_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """One damaged body does not fail the batch; the log contains its queue and offset."""
    good = encode_one(body=zlib.compress(b"payload"), sys_flag=SysFlag.COMPRESSED)
    bad = encode_one(body=b"no zlib", sys_flag=SysFlag.COMPRESSED, queue_offset=7)
    batch = record_batch(good + bad, walk(good + bad), "b", message_columns(include_properties=False))
    assert batch["body"].to_pylist() == [b"payload", None]
    assert "queue_offset=7" in caplog.text


@pytest.mark.parametrize("compression", [SysFlag.COMPRESSION_LZ4, SysFlag.COMPRESSION_ZSTD])
def test_a_body_that_cannot_be_decompressed_retains_no_memory(compression: int) -> None:
    """A failed decompression must not allocate the maximum body size for the life of a worker."""
    bad = encode_one(body=b"neither of them", sys_flag=SysFlag.COMPRESSED | compression) * 10
    wanted = message_columns(include_properties=False)
    record_batch(bad, walk(bad), "b", wanted)
    tracemalloc.start()
    try:
        record_batch(bad, walk(bad), "b", wanted)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_bodies_of_all_codecs_are_decompressed(codec: str) -> None:
    """No further module is needed; a truncated body is null."""
    flags = SysFlag.COMPRESSED | {"lz4": SysFlag.COMPRESSION_LZ4, "zstd": SysFlag.COMPRESSION_ZSTD}[codec]
    sink = pa.BufferOutputStream()
    with pa.output_stream(sink, compression=codec) as stream:
        stream.write(b"payload" * 100)
    body = sink.getvalue().to_pybytes()
    records = encode_one(body=body, sys_flag=flags) + encode_one(body=body[:-9], sys_flag=flags)
    batch = record_batch(records, walk(records), "b", message_columns(include_properties=False))
    assert batch["body"].to_pylist() == [b"payload" * 100, None]


def test_rows_that_decompress_to_too_many_bytes_become_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are returned in order; a row that is too large by itself is a batch of its own."""
    monkeypatch.setattr(columns, "MAX_BATCH_BYTES", 2_500)
    payloads = [bytes([number]) * (9_000 if number == 3 else 1_000) for number in range(8)]
    records = b"".join(encode_one(body=zlib.compress(body), sys_flag=SysFlag.COMPRESSED) for body in payloads)
    batches = list(record_batches(records, walk(records), "b", message_columns(include_properties=False)))
    assert [body for batch in batches for body in batch["body"].to_pylist()] == payloads
    assert len(batches) > 3
    assert all(batch.num_rows == 1 or batch["body"].nbytes <= 2_500 + 100 for batch in batches)


BREAKAGES = {
    "magic": (4, ">i", 17, "magic 00000011"),
    "a size beyond the end": (0, ">i", 1000, "size 1000 with"),
    "a size that is too small": (0, ">i", 90, "size 90 is less than"),
    "a negative body length": (84, ">i", -1, "body length -1"),
    "a body beyond the record": (84, ">i", 2**31 - 1, "body length 2147483647"),
    "a longer topic": (93, ">B", 100, "topic length 100"),
    "a negative topic length": (93, ">B", 200, "topic length -56"),
    "other properties": (99, ">h", 3, "fields end at"),
    "hosts that do not fit": (36, ">i", 0x30, "size 108 is less than"),
    "a topic that is no text": (94, ">B", 0xFF, "topic is not UTF-8"),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_damaged_records_are_rejected_with_their_position(breakage: str) -> None:
    """Each kind of damage raises ProtocolError with the position of the record and the reason."""
    at, form, value, reason = BREAKAGES[breakage]
    good = encode_one(topic="Topic", body=b"hello", properties=b"TAGS\x01a\x02")
    broken = bytearray(good * 2)
    struct.pack_into(form, broken, len(good) + at, value)
    with pytest.raises(ProtocolError, match=f"no record at byte {len(good)} of {2 * len(good)}: {reason}"):
        record_batch(broken, walk(good * 2), "b", message_columns(include_properties=True))


def test_invalid_starts_are_rejected() -> None:
    """Positions outside the buffer and overlapping records raise ProtocolError."""
    buffer = encode_one() * 2
    size = len(buffer) // 2
    for starts in ([-1], [len(buffer)], [len(buffer) - 90], [0, 0], [size, 0]):
        with pytest.raises(ProtocolError, match="no record at byte"):
            record_batch(buffer, np.array(starts, np.int64), "b", COLUMNS)


@pytest.mark.fuzz
def test_flipped_bytes_become_the_same_rows_or_an_error(fuzz_rounds: int) -> None:
    """Records that protocol.record still parses become the same rows; all others raise ProtocolError."""
    given_any = given(st.lists(records(), min_size=1, max_size=6), st.randoms())
    settings(max_examples=max(fuzz_rounds // 500, 1))(given_any(check_broken))()


def check_broken(parts: list[bytes], chance: random.Random) -> None:
    buffer = bytearray(b"".join(parts))
    for _ in range(chance.randint(1, 4)):
        buffer[chance.randrange(len(buffer))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    starts = walk(buffer)
    found = list(iterate(buffer, check_body=False))
    sound = [to_message(record) for record in found if isinstance(record, Record)]
    if len(starts) > len(sound):
        assert isinstance(found[-1], Damaged)
        with pytest.raises(ProtocolError, match=r"no record at byte \d+ of \d+: ."):
            record_batch(buffer, starts, "b", COLUMNS)
    batch = record_batch(buffer, starts[: len(sound)], "b", COLUMNS)
    assert rows_of(batch) == [row_of(message, "b", include_properties=True) for message in sound]


COLUMNS = message_columns(include_properties=True)


def encode_one(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "topic": "T",
        "body": b"hello",
        "properties": b"",
        "queue_id": 0,
        "queue_offset": 0,
        "physical_offset": 0,
        "born_timestamp": 1,
        "born_host": V4,
        "store_timestamp": 2,
        "store_host": V4,
    } | changes
    return encode(**fields)
