"""Gets with property filters: the selected messages, the work limit, and cold records."""

from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.files.cold_reads import ColdRead, Range
from skylarkmq.broker.store.read import property_filters
from skylarkmq.broker.store.read.log_reads import LogReads
from skylarkmq.broker.store.read.property_filters import PropertyTests
from skylarkmq.broker.store.read.queue_reads import GetStatus
from skylarkmq.protocol.filters.sql92.filter import Sql92Filter
from tests.harness.stores import Opened, message, opened, records_of

COUNT = 300


def put_numbered(it: Opened, numbers: range) -> None:
    for number in numbers:
        append = message(b"%0100d" % number)
        append.properties = b"n\x01%d\x02even\x01%s\x02" % (number, b"yes" if number % 2 == 0 else b"no")
        it.put(append)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with opened(tmp_path, mapped_file_size_consume_queue=20_000) as it:
        put_numbered(it, range(COUNT))
        yield it


def found(it: Opened, expression: str, offset: int = 0, count: int = 32) -> tuple[list[int], int, GetStatus]:
    result = it.store.get("T", 0, offset, count, Sql92Filter.compile(expression))
    return [int(bytes(record.body)) for record in records_of(result)], result.next_begin_offset, result.status


def all_found(it: Opened, expression: str) -> tuple[list[int], int]:
    """Return all matches that a consumer gets up to the end, and the number of gets."""
    numbers, offset, gets = [], 0, 0
    while offset < COUNT:
        some, following, status = found(it, expression, offset)
        assert following > offset
        assert (status is GetStatus.FOUND) is bool(some)
        assert status in {GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE}
        numbers += some
        offset = following
        gets += 1
    return numbers, gets


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("even = 'yes'", range(0, COUNT, 2)),
        ("n BETWEEN 100 AND 102", range(100, 103)),
        ("n < 3 OR n > 297", [0, 1, 2, 298, 299]),
        ("TRUE", range(COUNT)),
        ("FALSE", []),
        ("n = 'x'", []),
    ],
)
def test_all_matches_are_found(store: Opened, expression: str, wanted: Any) -> None:
    """Consecutive gets return all matches, in order, once; each get advances."""
    assert all_found(store, expression)[0] == list(wanted)


def test_a_restarted_store_finds_the_same(tmp_path: Path) -> None:
    """The filter selects the same among records that must be checked before delivery."""
    with opened(tmp_path) as it:
        put_numbered(it, range(COUNT))
    with opened(tmp_path, check_crc_on_recover=False) as it:
        assert all_found(it, "n > 200 AND even = 'no'")[0] == list(range(201, COUNT, 2))


def test_limits_of_a_get(store: Opened) -> None:
    """A get returns as many matches as requested; the next offset is after the last tested message."""
    assert found(store, "even = 'yes'", 10, 3) == ([10, 12, 14], 15, GetStatus.FOUND)
    numbers, following, _ = found(store, "even = 'yes'", 0, 32)
    assert numbers == list(range(0, 64, 2))
    assert following <= 65


def test_an_expensive_test_stops_early(store: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work limit ends a get, but at least one message is always decided, so that consumers advance."""
    monkeypatch.setattr(property_filters, "WORK_NS", 30_000)
    _, following, status = found(store, "n = -1")
    assert 1 <= following < 20
    assert status is GetStatus.NO_MATCHED_MESSAGE
    monkeypatch.setattr(property_filters, "WORK_NS", 1)
    assert found(store, "n = -1", 7) == ([], 8, GetStatus.NO_MATCHED_MESSAGE)
    assert all_found(store, "n = 50") == ([50], COUNT)


def test_large_properties_count(tmp_path: Path) -> None:
    """Fewer messages are tested if their properties are large."""
    with opened(tmp_path, mapped_file_size_commit_log=16 << 20, mapped_file_size_consume_queue=20_000) as it:
        for number in range(100):
            append = message(b"%d" % number)
            append.properties = b"x\x01" + b"y" * 30_000 + b"\x02"
            it.put(append)
        _, following, _ = found(it, "n = 1 AND a = 2 AND b = 3")
        assert 1 <= following < 40


def test_a_cold_record_ends_a_get(store: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold record ends a get that has decided a message; a get that has decided none raises ColdRead."""
    bytes_at = LogReads.bytes_at
    cold_from = 40

    def maybe_cold(self: LogReads, offset: int, size: int) -> memoryview | None:
        number = offset // size  # all records have the same size, except for their numbers
        if number >= cold_from:
            raise ColdRead(Range("log", offset, size))
        return bytes_at(self, offset, size)

    monkeypatch.setattr(LogReads, "hot_window", lambda self, offset: (0, 0, memoryview(b"")))
    assert all_found(store, "n > 200 AND even = 'no'")[0] == list(range(201, COUNT, 2))
    monkeypatch.setattr(LogReads, "bytes_at", maybe_cold)
    _, following, status = found(store, "n = -1")
    assert 30 < following < 60
    assert status is GetStatus.NO_MATCHED_MESSAGE
    with pytest.raises(ColdRead):
        found(store, "n = -1", COUNT - 5)


def test_damaged_records_are_selected(store: Opened) -> None:
    """Unreadable records pass the filter; the delivery reports the error."""
    log_reads = store.store.reader._log_reads
    tests = PropertyTests(log_reads, Sql92Filter.compile("FALSE"))
    units = bytearray(store.store.queues.by_key["T", 0].read(0, 3))
    assert tests.verdicts(units) == [False] * 3
    units[8:12] = b"\x7f\xff\xff\xff"  # an invalid size
    units[20:28] = (1 << 40).to_bytes(8, "big")  # an offset beyond the log
    assert PropertyTests(log_reads, Sql92Filter.compile("FALSE")).verdicts(units) == [True, True, False]


def test_has_wanted(store: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns whether one of some messages matches; True if that takes too long to find out."""
    wants = Sql92Filter.compile("n = 70")
    has_wanted = store.store.has_wanted
    assert has_wanted("T", 0, wants, 60, 20)
    assert has_wanted("T", 0, wants, 70, 1)
    assert not has_wanted("T", 0, wants, 71, 100)
    assert not has_wanted("missing", 0, wants, 0, 1)
    assert has_wanted("T", 0, wants, COUNT - 1, 5)
    monkeypatch.setattr(property_filters, "WORK_NS", 30_000)
    assert has_wanted("T", 0, wants, 71, 100)
