"""getMessage: every status with its corrections, every limit, and regions with exactly the returned records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.read import queue_reads
from skylarkmq.broker.store.read.log_reads import Region
from skylarkmq.broker.store.read.queue_reads import GetResult, GetStatus
from skylarkmq.protocol.record import Record, iterate
from skylarkmq.protocol.unit_runs import Records
from tests.harness.stores import Opened, message, opened, records_of

COUNT = 50  # messages of the queue under test: 20 + 20 + 10 units


@contextmanager
def filled(root: Path) -> Iterator[Opened]:
    with opened(root) as it:
        for number in range(COUNT):
            it.put(message(b"%0100d" % number, tag="even" if number % 2 == 0 else "odd"))
        yield it


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A store that no test changes."""
    with filled(tmp_path_factory.mktemp("store")) as it:
        yield it


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[Opened]:
    """A store that the test may change."""
    with filled(tmp_path) as it:
        yield it


def bodies(it: Opened, *args: Any, **kwargs: Any) -> list[int]:
    return [int(bytes(record.body)) for record in records_of(it.store.get(*args, **kwargs))]


@pytest.mark.parametrize(
    ("topic", "queue_id", "offset", "status", "next_offset"),
    [
        ("missing", 0, 0, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("missing", 0, 7, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("T", 3, 7, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("T", 0, -1, GetStatus.OFFSET_TOO_SMALL, 0),
        ("T", 0, 0, GetStatus.FOUND, 20),
        ("T", 0, 19, GetStatus.FOUND, 20),
        ("T", 0, 20, GetStatus.FOUND, 40),
        ("T", 0, COUNT - 1, GetStatus.FOUND, COUNT),
        ("T", 0, COUNT, GetStatus.OFFSET_OVERFLOW_ONE, COUNT),
        ("T", 0, COUNT + 1, GetStatus.OFFSET_OVERFLOW_BADLY, COUNT),
        ("T", 0, 1 << 62, GetStatus.OFFSET_OVERFLOW_BADLY, COUNT),
        ("T", 0, -(1 << 62), GetStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_status_by_offset(
    store: Opened, topic: str, queue_id: int, offset: int, status: GetStatus, next_offset: int
) -> None:
    """The offset determines status and next offset; one get stays within a queue segment."""
    result = store.store.get(topic, queue_id, offset, 32)
    assert (result.status, result.next_begin_offset) == (status, next_offset)
    assert (result.message_count > 0) == (status is GetStatus.FOUND)
    if topic == "T" and queue_id == 0:
        assert (result.min_offset, result.max_offset) == (0, COUNT)


def test_a_missing_queue_segment(own_store: Opened, tmp_path: Path) -> None:
    """The next offset is the begin of the next segment."""
    own_store.must_be_consistent = False
    (tmp_path / "consumequeue" / "T" / "0" / f"{400:020d}").unlink()
    own_store.store._parts._queue_files.close()
    result = own_store.store.get("T", 0, 25, 32)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, 40)


def test_a_missing_last_queue_segment(own_store: Opened, tmp_path: Path) -> None:
    """The next offset is the begin of the next segment, although that does not exist yet."""
    (tmp_path / "consumequeue" / "T" / "0" / f"{800:020d}").unlink()
    own_store.must_be_consistent = False
    own_store.store._parts._queue_files.close()
    result = own_store.store.get("T", 0, 45, 32)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, 60)
    assert own_store.store.get("T", 0, 60, 32).status is GetStatus.OFFSET_OVERFLOW_BADLY


FIRST = 7  # first offset of the queue in the next test


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (0, GetStatus.OFFSET_TOO_SMALL, FIRST),
        (FIRST - 1, GetStatus.OFFSET_TOO_SMALL, FIRST),
        (FIRST, GetStatus.FOUND, FIRST + 3),
        (FIRST + 2, GetStatus.FOUND, FIRST + 3),
        (FIRST + 3, GetStatus.OFFSET_OVERFLOW_ONE, FIRST + 3),
        (FIRST + 4, GetStatus.OFFSET_OVERFLOW_BADLY, FIRST + 3),
    ],
)
def test_status_in_a_queue_that_begins_later(tmp_path: Path, offset: int, status: GetStatus, next_offset: int) -> None:
    """Filler units fill the queue's first segment up to its minimum offset; they are never read."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        it.store.queues.make("T", 0).next_offset = FIRST
        it.put(*(message() for _ in range(3)))
        result = it.store.get("T", 0, offset, 32)
        assert (result.status, result.next_begin_offset) == (status, next_offset)
        assert (result.min_offset, result.max_offset) == (FIRST, FIRST + 3)


def test_a_gap_in_a_queue_is_skipped(tmp_path: Path) -> None:
    """A gap ends a get. The next get skips it, and no message after it."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        it.put(message(b"before"))
        it.store.queues.make("T", 0).next_offset = 4
        it.put(message(b"behind"))
        result = it.store.get("T", 0, 0, 32)
        assert ([bytes(record.body) for record in records_of(result)], result.next_begin_offset) == ([b"before"], 1)
        result = it.store.get("T", 0, 1, 32)
        assert ([bytes(record.body) for record in records_of(result)], result.next_begin_offset) == ([b"behind"], 5)


def test_a_queue_without_records_keeps_its_offsets(tmp_path: Path) -> None:
    """A queue whose records have all expired reports its end, or an offset out of range."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        it.put(*(message() for _ in range(3)))
        queue = it.store.queues.make("T", 0)
        queue.correct_min_offset(it.store.max_physical_offset)
        asked = [it.store.get("T", 0, offset, 32) for offset in (0, 2, 3, 4)]
        assert [(result.status, result.next_begin_offset) for result in asked] == [
            (GetStatus.OFFSET_TOO_SMALL, 3),
            (GetStatus.OFFSET_TOO_SMALL, 3),
            (GetStatus.OFFSET_OVERFLOW_ONE, 3),
            (GetStatus.OFFSET_OVERFLOW_BADLY, 3),
        ]


@pytest.mark.parametrize(
    ("segments", "offset", "status", "next_offset", "found"),
    [
        (1, 0, GetStatus.NO_MATCHED_MESSAGE, 20, []),
        (2, 0, GetStatus.FOUND, 40, [30]),
        (2, 31, GetStatus.FOUND, 50, [45]),
        (9, 46, GetStatus.NO_MATCHED_MESSAGE, 50, []),
        (9, 30, GetStatus.FOUND, 40, [30]),
    ],
)
def test_travel_over_queue_segments(
    tmp_path: Path, segments: int, offset: int, status: GetStatus, next_offset: int, found: list[int]
) -> None:
    """travelCqFileNumWhenGetMessage limits how many segments a get searches for its first message."""
    with opened(tmp_path, travel_cq_file_num_when_get_message=segments) as it:
        it.put(*(message(b"%d" % number, tag="x" if number in {30, 45} else "y") for number in range(COUNT)))
        wanted = message(tag="x").tags_code
        result = it.store.get("T", 0, offset, 32, lambda code: code == wanted)
        assert (result.status, result.next_begin_offset) == (status, next_offset)
        assert [int(bytes(record.body)) for record in records_of(result)] == found


@pytest.mark.parametrize(
    ("in_memory", "counts"), [(18, {0: 20, 17: 3}), (10, {0: 3, 7: 13, 8: 12, 10: 10}), (0, {0: 3, 17: 3, 18: 2})]
)
def test_limits_are_judged_per_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int, counts: dict[int, int]
) -> None:
    """A get that begins on disk and reaches memory applies the limits of its current position."""
    monkeypatch.setattr(queue_reads, "memory_window_bytes", lambda ratio_percent: in_memory * 192)
    with opened(tmp_path, max_transfer_count_on_message_in_disk=3) as it:
        it.put(*(message(b"x" * 100) for _ in range(20)))
        assert {offset: it.store.get("T", 0, offset, 32).message_count for offset in counts} == counts
        assert it.store.get("T", 0, 0, 2).message_count == 2


def test_fall_behind(tmp_path: Path) -> None:
    """The result contains the size of the log after the last inspected unit, and -1 if none was inspected."""
    with opened(tmp_path) as it:
        it.put(*(message(b"x" * 100) for _ in range(20)))
        assert it.store.get("T", 0, 0, 5).fall_behind_bytes == 16 * 192
        assert it.store.get("T", 0, 20, 5).fall_behind_bytes == -1


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (1, 1), (7, 7), (20, 20)])
def test_max_count(store: Opened, asked: int, given: int) -> None:
    """A get returns at most the requested number, and at least one message."""
    assert bodies(store, "T", 0, 0, asked) == list(range(given))


@pytest.mark.parametrize(("records", "spare", "given"), [(0, 1, 1), (2, 0, 2), (3, -1, 2), (3, 0, 3)])
def test_max_total_bytes(store: Opened, records: int, spare: int, given: int) -> None:
    """The caller's limit on bytes applies to all but the first message."""
    limit = records and store.store.get("T", 0, 0, records).total_bytes
    assert bodies(store, "T", 0, 0, 20, max_total_bytes=limit + spare) == list(range(given))


def test_filter(store: Opened) -> None:
    """Only units whose tags code matches are read; the next offset skips the others."""
    odd = message(tag="odd").tags_code
    result = store.store.get("T", 0, 0, 5, lambda code: code == odd)
    assert [int(bytes(record.body)) for record in records_of(result)] == [1, 3, 5, 7, 9]
    assert result.next_begin_offset == 10
    nothing = store.store.get("T", 0, 0, 5, lambda code: False)
    assert (nothing.status, nothing.next_begin_offset, nothing.regions) == (GetStatus.NO_MATCHED_MESSAGE, 20, [])


@pytest.mark.parametrize(("inspected", "next_offset"), [(200, 10), (0, 4), (16_000, 20)])
def test_inspection_limit(tmp_path: Path, inspected: int, next_offset: int) -> None:
    """At most maxFilterMessageSize bytes of units are inspected, or as many units as messages were requested."""
    with opened(tmp_path, max_filter_message_size=inspected) as it:
        it.put(*(message() for _ in range(30)))
        assert it.store.get("T", 0, 0, 4, lambda code: False).next_begin_offset == next_offset


@pytest.mark.parametrize("asked", [2**31 - 1, 16_384, 32, 1, 0, -5])
def test_inspection_limit_of_extreme_counts(tmp_path: Path, asked: int) -> None:
    """A larger request inspects no more units than a get may return."""
    limits: dict[str, Any] = {"max_transfer_count_on_message_in_memory": 10, "max_transfer_count_on_message_in_disk": 8}
    with opened(tmp_path, max_filter_message_size=200, **limits) as it:
        it.put(*(message() for _ in range(18)))
        assert it.store.get("T", 0, 0, asked, lambda code: False).next_begin_offset == 10
        given = 10 if asked >= 10 else 1
        assert it.store.get("T", 0, 0, asked, everything).message_count == given


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        ({"max_transfer_count_on_message_in_memory": 6}, 6),
        ({"max_transfer_bytes_on_message_in_memory": 192 * 3}, 3),
        ({"max_transfer_bytes_on_message_in_memory": 1}, 1),
        ({"access_message_in_memory_max_ratio": 0}, 8),
        ({"access_message_in_memory_max_ratio": 0, "max_transfer_count_on_message_in_disk": 4}, 4),
        ({"access_message_in_memory_max_ratio": 0, "max_transfer_bytes_on_message_in_disk": 192 * 5 + 191}, 5),
    ],
)
def test_transfer_limits(tmp_path: Path, limits: dict[str, Any], given: int) -> None:
    """Memory and disk have separate limits of messages and bytes."""
    with opened(tmp_path, **limits) as it:
        it.put(*(message(b"x" * 100) for _ in range(20)))
        result = it.store.get("T", 0, 0, 20)
        assert (result.message_count, result.next_begin_offset) == (given, given)
        assert result.behind_memory == ("access_message_in_memory_max_ratio" in limits)


def test_adjacent_records_are_one_region(tmp_path: Path) -> None:
    """Adjacent records in the log form one region; other records and other segments have their own regions."""
    with opened(tmp_path) as it:
        it.put(*(message(b"x" * 100) for _ in range(5)), message(queue_id=1), message(b"x" * 100))
        result = it.store.get("T", 0, 0, 32, everything)
        assert [region.size for region in result.regions] == [5 * 192, 192]
        assert result.total_bytes == 6 * 192
        it.put(message(b"y" * 64_900), message(b"z" * 100))
        result = it.store.get("T", 0, 5, 32)
        assert [region.position for region in result.regions if isinstance(region, Region)] == [5 * 192 + 97, 0]
        assert [region.size for region in result.regions] == [192, 64_992 + 192]


def test_a_contiguous_run_is_one_region(tmp_path: Path) -> None:
    """Without a filter, a run of adjacent records is returned without an inspection of each unit."""
    with opened(tmp_path) as it:
        it.put(*(message(b"x" * 100) for _ in range(5)))
        assert it.store.get("T", 0, 1, 3).regions == (Region(it.store._log.files.segments[0], 192, 3 * 192),)


def test_small_scattered_records_are_one_piece(tmp_path: Path) -> None:
    """Short runs are returned as one piece, ready to be gathered, in the order of the queue."""
    with opened(tmp_path) as it:
        for number in range(15):
            it.put(message(b"%d" % number, queue_id=number % 3))
        (piece,) = it.store.get("T", 1, 0, 4).regions
        assert isinstance(piece, Records)
        assert [bytes(record.body) for record in iterate(piece.view) if isinstance(record, Record)] == [
            b"1",
            b"4",
            b"7",
            b"10",
        ]
        assert piece.size == len(piece.view) == sum(map(len, piece.parts_after(b"")))


@pytest.mark.parametrize("most", [1, 2, 3, 7, 19, 20, 21, 32, 100])
@pytest.mark.parametrize("limit", [1, 191, 192, 193, 1_000, 5_000, 1 << 20])
def test_runs_and_single_inspection_agree(store: Opened, most: int, limit: int) -> None:
    """Both paths return the same result for every offset and every limit."""
    for offset in range(COUNT):
        at_once = store.store.get("T", 0, offset, most, None, limit)
        each = store.store.get("T", 0, offset, most, everything, limit)
        assert [bytes(record.body) for record in records_of(at_once)] == [
            bytes(record.body) for record in records_of(each)
        ]
        at_once.regions = each.regions = ()
        assert at_once == each


def test_new_units_are_found(tmp_path: Path) -> None:
    """Later appends are found, and a topic that is created again does not return units of the deleted one."""
    with opened(tmp_path, mapped_file_size_consume_queue=20_000) as it:
        it.must_be_consistent = False  # the topic is removed without the store's deletion
        for number in range(40):
            it.put(message(b"%d" % number))
            assert bodies(it, "T", 0, max(0, number - 7), 4)[-1] == min(number, max(0, number - 7) + 3)
        assert bodies(it, "T", 0, 8, 32) == list(range(8, 40))
        it.store.queues.remove_topic("T")
        it.put(message(b"99"))
        assert bodies(it, "T", 0, 0, 4) == [99]


def everything(_tags_code: int) -> bool:
    """A filter that makes a get inspect each unit."""
    return True


def test_removed_records_are_skipped(tmp_path: Path) -> None:
    """Units whose log segment no longer exists are skipped in one step, up to the first record of the next segment."""
    with opened(tmp_path) as it:
        it.put(*(message(b"x" * 9000) for _ in range(30)))  # seven per log segment, twenty per queue segment
        segments = it.store._log.files.segments
        queue = it.store.queues.get("T", 0)

        def get(offset: int, count: int, matches: Callable[[int], bool] | None = None) -> GetResult:
            """Get without the store's correction of the smallest offset, which would come first."""
            return it.store.reader.get(queue, offset, count, matches, 1 << 30)

        gone = [segments.pop(0)]
        result = get(0, 32)
        assert (result.status, result.message_count, result.next_begin_offset) == (GetStatus.FOUND, 13, 20)
        gone += [segments.pop(0), segments.pop(0)]
        result = get(0, 32)
        assert (result.status, result.next_begin_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 20)
        result = get(0, 1, lambda code: False)
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 20)
        result = get(20, 1)
        assert (result.status, result.message_count) == (GetStatus.FOUND, 1)
        segments[:0] = gone


def test_a_get_sees_the_open_batch(tmp_path: Path) -> None:
    """A pull after a send in the same iteration returns the sent message."""
    with opened(tmp_path) as it:
        it.store.put(message(b"now"))
        assert it.store.get("T", 0, 0, 32).message_count == 1
        it.store.put(message(b"again"))
        assert it.store.max_offset("T", 0) == 2
        behind = it.store.max_physical_offset
        it.store.put(message(b"again"))
        assert it.store.record_at(behind) is not None
