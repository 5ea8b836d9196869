"""Fuzzers of the modules for reads: from units and records to a consumer's messages."""

import socket
import struct
from random import Random
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from skylarkmq.broker.processors.pull.response import python_found_head
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.clients.arrow.columns import numpy_columns
from skylarkmq.clients.arrow.compiled_columns import STORED_TYPES, TEXTS, common_columns, unordered_columns
from skylarkmq.clients.arrow.record_layout import RecordLayout, python_record_starts, record_starts
from skylarkmq.protocol import compiled, record
from skylarkmq.protocol.crc32 import python_slice_crcs, slice_crcs
from skylarkmq.protocol.disk import UNIT, index_keys
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.message_id import cached_host
from skylarkmq.protocol.unit_runs import MOST_UNITS, PythonUnitRun
from tests.fuzz.cases.memory import damaged, exact, number
from tests.protocol.compiled.test_same_messages import random_record, random_response
from tests.protocol.compiled.test_same_units import Segment, attributes_of, random_units

_gather: Final[Any] = compiled.load("gather")
_messages: Final[Any] = compiled.load("messages")
_segment: Final = exact(Random(1).randbytes(1 << 16))
_columns: Final[Any] = compiled.load("columns")
_stored: Final[Any] = compiled.load("stored_appends")
_tails: Final[Any] = compiled.load("queue_tail")
_ALL_COLUMNS: Final = (1 << len(STORED_TYPES)) - 1
_COMMON: Final = 0x1F << 11 | 1 << 18
"""The bits for columns of topics and properties, and for compressed bodies."""
_READ_BYTES: Final = 1 << 20


def gather(rng: Random) -> None:
    """Runs of units, some of them invalid, with requests inside and outside of them; heads; writes to a socket."""
    segment = Segment(rng.choice((0, 1 << 30, (1 << 62) - len(_segment), rng.getrandbits(50))), _segment)
    units = random_units(rng, segment.start, rng.choice((1, 10, MOST_UNITS, 3 * MOST_UNITS)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(len(units) // 20 + 1) * 20
        units = units[:at] + UNIT.pack(number(rng), number(rng) >> 32, number(rng)) + units[at + 20 :]
    limit, span = segment.start + rng.choice((len(_segment), 20_000)), rng.choice((len(_segment), 10_000))
    first, longest = rng.getrandbits(40), rng.choice((290, 400))
    runs = [made(first, units, segment, limit, span, longest) for made in (PythonUnitRun, _gather.UnitRun)]
    assert len({(it.first, it.count, it.count and it.begin, it.end) for it in runs}) == 1
    parts: list[Any] = []
    for _ in range(3):
        arguments = first + rng.randrange(-2, 80), rng.randrange(-1, MOST_UNITS + 3), rng.randrange(10_000)
        if rng.random() < 0.1:
            arguments = number(rng), number(rng), number(rng)
        records = runs[1].take(*arguments)
        assert attributes_of(records) == attributes_of(runs[0].take(*arguments))
        parts += [rng.randbytes(rng.randrange(40)), records or b""]
    written_alike(parts)
    pieces: Any = tuple(rng.randbytes(rng.randrange(60)) for _ in range(5))
    numbers = *(number(rng) for _ in range(3)), rng.getrandbits(32) - (1 << 31), rng.getrandbits(20)
    assert _gather.found_head(pieces, *numbers) == python_found_head(pieces, *numbers)


def written_alike(parts: list[Any]) -> None:
    """The bytes at the other end of a socket are the parts in their order, as far as the socket accepted them."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        taken = _gather.write(ours.fileno(), parts)
        expected = b"".join(bytes(part) for part in parts)
        assert theirs.recv(_READ_BYTES) if taken else not expected
        assert 0 <= taken <= len(expected)


def messages(rng: Random) -> None:
    """A response's body, whole or damaged: the same messages, or the same error."""
    row = random_response(rng)
    if rng.random() < 0.4:
        row = damaged(rng, row)
    check_body = rng.random() < 0.7
    compiled_messages = _messages.Messages(MessageExt, cached_host)
    assert read(compiled_messages.read, exact(row), check_body) == read(
        record.python_read_common_layout, memoryview(row), check_body
    ), row


def read(reader: record.RecordReader, row: memoryview, check_body: bool) -> object:
    """Return the messages of a row, or the error."""
    with patch.object(record, "read_common_layout", reader):
        try:
            return record.decode(row, check_body=check_body)
        except ProtocolError as error:
            return str(error)


def columns(rng: Random) -> None:
    """Records with properties for columns, sometimes damaged: equal columns, or None; checksums of slices."""
    parts = [plain_record(rng) for _ in range(rng.randrange(1, 9))]
    positions = [sum(map(len, parts[:n])) for n in range(len(parts))]
    buffer = b"".join(parts)
    if is_damaged := rng.random() < 0.5:
        buffer = damaged(rng, buffer) or b"\0"
        positions = [at for at in positions if at < len(buffer) - 4]
    if rng.random() < 0.1:
        positions = [number(rng), *positions]
        is_damaged = True
    begin = rng.randrange(len(buffer) + 1) if rng.random() < 0.2 else 0
    assert (
        record_starts(exact(buffer), begin, len(buffer)).tolist()
        == python_record_starts(buffer, begin, len(buffer)).tolist()
    )
    slice_crcs_alike(rng, buffer)
    starts = np.array(positions, np.int64)
    found = common_columns(exact(buffer), starts)
    as_bytes = _columns.columns(exact(buffer), starts, _ALL_COLUMNS)
    assert (found is None) == (as_bytes is None)
    if found is None:
        assert is_damaged or not positions
        return
    try:
        expected = numpy_columns(RecordLayout(buffer, starts), STORED_TYPES)
    except ProtocolError as error:
        raise AssertionError(f"not refused by both: {error} {buffer!r} {positions}") from error
    for name, column in found.items():
        column.validate(full=True)
        assert column.equals(expected[name]), name
    unordered_alike(rng, buffer, starts, expected)


def stored_appends(rng: Random) -> None:
    """Records of several queues, sometimes damaged, as appends: the same as those of the parser, or a ValueError if
    there are no columns of them either."""
    parts = [plain_record(rng) for _ in range(rng.randrange(1, 9))]
    buffer = b"".join(parts)
    positions = [sum(map(len, parts[:n])) for n in range(len(parts))]
    if rng.random() < 0.3:
        buffer = damaged(rng, buffer) or b"\0"
    if rng.random() < 0.1:
        positions = [number(rng), *positions]
    begins = np.array(positions, np.int64)
    queues = [_tails.QueueTail(topic, n) for n, topic in enumerate(("T", "x" * 127, "ä"))]
    numbers = np.array([rng.randrange(3) for _ in positions], np.int64)
    is_common = _columns.columns(exact(buffer), begins, _COMMON) is not None
    if rng.random() < 0.1:
        numbers[rng.randrange(len(numbers))] = rng.choice((-1, 3, number(rng)))
        is_common = is_common and set(numbers) <= {0, 1, 2}
    try:
        found = _stored.appends(exact(buffer), begins, queues, numbers, PutStatus.PENDING)
    except ValueError:
        assert not is_common, (buffer, positions)
        return
    assert is_common
    for at, queue, append in zip(positions, numbers, found, strict=True):
        assert_is_of_record(append, record.parse(memoryview(buffer), at, check_body=False), queues[queue])


def assert_is_of_record(append: Any, parsed: object, queue: Any) -> None:
    """Each field is that of the record; the topic is that of the queue."""
    assert isinstance(parsed, record.Record)
    names: tuple[str, ...] = (
        "queue_id",
        "queue_offset",
        "physical_offset",
        "size",
        "flag",
        "sys_flag",
        "born_timestamp",
        "born_host",
    )
    names += ("store_timestamp", "reconsume_times", "prepared_transaction_offset", "tags_code", "properties")
    for name in names:
        assert getattr(append, name) == getattr(parsed, name), name
    assert append.keys == index_keys(parsed.properties)
    assert (append.body, append.topic, append.queue) == (b"", queue.topic, queue)
    assert (append.status, append.wait_flush) == (PutStatus.PENDING, True)


def unordered_alike(rng: Random, buffer: bytes, starts: np.ndarray[Any, Any], expected: dict[str, pa.Array]) -> None:
    """The same columns in another order, some as dictionary arrays, and bodies as views."""
    order = np.array(rng.sample(range(len(starts)), len(starts)), np.int64)
    encoded = [name for name in TEXTS[1:] if rng.random() < 0.5]
    found = unordered_columns(exact(buffer), starts[order], STORED_TYPES, encoded, ("body",))
    assert found is not None
    for name, column in found.items():
        column.validate(full=True)
        plain = column.dictionary_decode() if name in encoded else column
        assert plain.cast(STORED_TYPES[name]).equals(expected[name].take(pa.array(order))), name


def slice_crcs_alike(rng: Random, buffer: bytes) -> None:
    """Slices within the buffer, and now and then outside of it."""
    begins, ends = ([rng.randrange(len(buffer) + 1) for _ in range(3)] for _ in range(2))
    bounds = [sorted(pair) for pair in zip(begins, ends, strict=True)]
    if rng.random() < 0.2:
        bounds.append([number(rng), number(rng)])
    columns_of_bounds = np.array(bounds, np.int64).T
    results = []
    for crcs in (slice_crcs, python_slice_crcs):
        try:
            results.append(crcs(exact(buffer), *columns_of_bounds).tolist())
        except ValueError:
            results.append(None)
    assert results[0] == results[1], bounds


PIECES: Final = (
    b"TAGS\x01TagA\x02", b"KEYS\x01k1 k2\x02", b"KEYS\x01\x02", b"TAGS\x01", b"TAGSX\x01x\x02", b"UNIQ_KEY\x010A0B\x02",
    b"UNIQ_KE\x01no\x02", b"UNIQ_KEY\x01\x02", b"a\x01b\x01c\x02", b"\x01x\x02", b"\x02", b"x", b"UNIQ_KEY\x017",
)  # fmt: skip


def plain_record(rng: Random) -> bytes:
    """Return a record that has columns."""
    whole = bytearray(random_record(rng, rng.choice(("T", "x" * 127)), bytes(8), b"".join(rng.choices(PIECES, k=4))))
    struct.pack_into(">i", whole, 36, rng.choice((0, 2, 8, 0x300)))
    struct.pack_into(">q", whole, 40, rng.choice((0, 1_700_000_000_000, -62_135_596_800_000)))
    struct.pack_into(">q", whole, 56, rng.choice((0, 1_700_000_000_000, 253_402_300_799_999)))
    return bytes(whole)
