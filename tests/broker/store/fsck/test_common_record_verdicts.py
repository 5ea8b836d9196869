"""Runs of records never change a verdict: for any bytes, the checks find the same records and problems without them.

SKYLARK_FUZZ=100000 python -m pytest tests/broker/store/fsck/test_common_record_verdicts.py   # about 400,000 records
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

import pytest

from skylarkmq.broker.store.backup import records as backup_records
from skylarkmq.broker.store.backup.records import Walked, walk
from skylarkmq.broker.store.fsck import log as log_check
from skylarkmq.broker.store.fsck.findings import Finding, Findings, no_progress
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY, index_keys, offset_file_name
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Record, encode
from skylarkmq.protocol.record_checksum import fill_checksum, with_checksum_space
from tests.harness.golden_stores import GOLDEN_STORES, golden_store

START: Final = 65_536
V4, V6 = encode_host("10.0.0.1", 10911), encode_host("::1", 10911)
PIECES: Final = (
    b"TAGS\x01", b"KEYS\x01", b"UNIQ_KEY\x01", b"__CRC32#\x01", b"0123456789",
    b"\x01", b"\x02", b" ", b"a", b"k1", b"x\x01y\x02", b"\xff", b"\xc3\xa4",
)  # fmt: skip
TOPICS: Final = ("", "T", "Tä", "T" * 127, "T" * 128, "T" * 300)
FLAGS: Final = (0, 1, 4, 8, 12, 0x80, 0x81)
MAGICS: Final = tuple(struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK, 0, -1))
NUMBERS: Final = tuple(struct.pack(">i", number) for number in (0, -1, 2**31 - 1, -(2**31), 90, 91, 300))
HEAD_FIELDS: Final = (0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 56, 84)
"""Where numbers begin in a record."""

Verdict = tuple[list[dict[str, Any]], list[Finding], tuple[int, int, int, int]]

pytestmark = pytest.mark.skipif(compiled.load("columns") is None, reason="runs need the compiled modules")


def random_record(rng: Random, at: int) -> bytes:
    """Return a record of any layout: one in two is common."""
    is_common = rng.random() < 0.5
    properties = b"".join(rng.choices(PIECES[:-2] if is_common else PIECES, k=rng.randrange(12)))
    has_checksum = rng.random() < 0.3
    content = encode(
        topic="T" if is_common else rng.choice(TOPICS),
        body=rng.randbytes(rng.choice((0, 1, 50))),
        properties=with_checksum_space(properties) if has_checksum else properties,
        queue_id=at % 5,
        queue_offset=at,
        physical_offset=START + at,
        born_timestamp=-at,
        born_host=V4 if is_common else rng.choice((V4, V6)),
        store_timestamp=at if rng.random() < 0.9 else rng.randrange(1_000),
        store_host=V4 if is_common else rng.choice((V4, V6)),
        flag=7,
        sys_flag=0 if is_common else rng.choice(FLAGS),
        reconsume_times=3,
        prepared_transaction_offset=at + 9,
    )
    if rng.random() < 0.1:
        content = content.replace("ä".encode(), b"\xff\xff")  # a topic that is not UTF-8
    return fill_checksum([content]) if has_checksum else content


def random_log(rng: Random) -> bytearray:
    """Return up to nine records, with a blank or zeros after them."""
    data = b""
    begins = []
    for _ in range(rng.randrange(1, 10)):
        begins.append(len(data))
        data += random_record(rng, len(data))
    rest = rng.randrange(120)
    blank = BLANK.pack(rest, MAGIC_BLANK) if rest >= BLANK.size and rng.random() < 0.5 else b""
    harmed = bytearray(data + blank.ljust(rest, b"\0"))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        harm(rng, harmed, rng.choice(begins))
    if rng.random() < 0.15:
        del harmed[rng.randrange(1, len(harmed)) :]
    return harmed


def harm(rng: Random, data: bytearray, begin: int) -> None:
    """Change a byte, a bit, a number anywhere, a number in the head of the record at `begin`, or clear some bytes."""
    at = rng.randrange(len(data))
    kind = rng.randrange(5)
    if kind == 0:
        data[at] = rng.randrange(256)
    elif kind == 1:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        end = min(at + rng.choice((1, 8, 64, 400)), len(data))
        data[at:end] = bytes(end - at)
    else:
        at = min(begin + rng.choice(HEAD_FIELDS) if kind == 3 else at, len(data) - 4)
        data[at : at + 4] = rng.choice(MAGICS + NUMBERS)


@contextmanager
def without_runs() -> Iterator[None]:
    """Let the checks take every record by itself."""
    with (
        patch.object(log_check, "read_run", lambda _view, _at, _start: []),
        patch.object(backup_records, "end_of_run", lambda _view, at, _start: (at, 0)),
    ):
        yield


def verdict(root: Path, size: int) -> Verdict:
    """Return the records of a log, with all that the other checks read of them, its findings, and its limits."""
    found = Findings()
    check = LogCheck(root, size, found, crashed=False, progress=no_progress)
    records = [
        {name: getattr(record, name) for name in Record.__struct_fields__ if name != "source"}
        | {"body": bytes(record.body), "properties": record.properties, "tags": record.tags_code}
        | {"keys": index_keys(record.properties) if record.keys is None else record.keys}
        for batch in check.records()
        for record in batch
    ]
    return records, [*found.take(), *found.summaries()], (check.start, check.end, check.newest, check.damages)


def walked(data: bytes, start: int) -> Walked:
    """Walk over records, as a backup does."""
    return walk(memoryview(data), 0, start)


def assert_same(root: Path, data: bytes, start: int, seed: object) -> int:
    """Check a log of one segment with and without runs. Return the number of its valid records."""
    (root / COMMIT_LOG_DIRECTORY / offset_file_name(start)).write_bytes(data)
    fast, fast_walk = verdict(root, len(data)), walked(data, start)
    with without_runs():
        assert fast == verdict(root, len(data)), seed
        assert fast_walk == walked(data, start), seed
    return len(fast[0])


def test_random_logs_get_the_verdicts_of_the_parser(tmp_path: Path, fuzz_rounds: int) -> None:
    """Records of all layouts, harmed in all their fields, cut, or followed by blanks of any size."""
    (tmp_path / COMMIT_LOG_DIRECTORY).mkdir()
    logs = max(fuzz_rounds // 500, 10)
    records = sum(assert_same(tmp_path, bytes(random_log(Random(seed))), START, seed) for seed in range(logs))
    assert records > logs


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_harmed_golden_stores_get_the_verdicts_of_the_parser(
    tmp_path: Path, fuzz_rounds: int, version: str, name: str
) -> None:
    """The newest segment with records of stores that RocketMQ wrote."""
    golden = golden_store(version, name, tmp_path / "store")
    path = max(path for path in (golden.root / COMMIT_LOG_DIRECTORY).iterdir() if any(path.read_bytes()[:8]))
    begins = [record["physicalOffset"] - int(path.name) for record in golden.records]
    data = path.read_bytes()
    (tmp_path / COMMIT_LOG_DIRECTORY).mkdir()
    for seed in range(max(fuzz_rounds // 62_500, 2)):
        rng = Random(seed)
        harmed = bytearray(data)
        for _ in range(rng.choice((0, 1, 3, 10))):
            harm(rng, harmed, max(rng.choice(begins), 0))
        assert_same(tmp_path, bytes(harmed), int(path.name), seed)
