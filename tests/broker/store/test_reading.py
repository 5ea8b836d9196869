"""getMessage: every status with its corrections, every limit, and regions that hold exactly the records promised."""

from pathlib import Path
from typing import Any

import pytest

from broker.store.reading import GetStatus
from tests.harness.stores import Opened, message, opened, records_of

COUNT = 50  # messages of the queue under test: 20 + 20 + 10 units
OLD = 30  # below that offset the log is gone in `trimmed`


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with opened(tmp_path) as it:
        for number in range(COUNT):
            it.put(message(b"%0100d" % number, tag="even" if number % 2 == 0 else "odd"))
        yield it


def bodies(it: Opened, *args: Any, **kwargs: Any) -> list[int]:
    return [int(bytes(record.body)) for record in records_of(it.store.get(*args, **kwargs))]


@pytest.mark.parametrize(
    ("topic", "queue_id", "offset", "status", "next_offset"),
    [
        ("nobody", 0, 0, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("nobody", 0, 7, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("T", 3, 7, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("T", 0, -1, GetStatus.OFFSET_TOO_SMALL, 0),
        ("T", 0, 0, GetStatus.FOUND, 20),
        ("T", 0, 19, GetStatus.FOUND, 20),
        ("T", 0, 20, GetStatus.FOUND, 40),
        ("T", 0, COUNT - 1, GetStatus.FOUND, COUNT),
        ("T", 0, COUNT, GetStatus.OFFSET_OVERFLOW_ONE, COUNT),
        ("T", 0, COUNT + 1, GetStatus.OFFSET_OVERFLOW_BADLY, COUNT),
    ],
)
def test_status_by_offset(
    store: Opened, topic: str, queue_id: int, offset: int, status: GetStatus, next_offset: int
) -> None:
    """Where an offset lies decides status and next offset; one get stays within a queue segment."""
    result = store.store.get(topic, queue_id, offset, 32)
    assert (result.status, result.next_begin_offset) == (status, next_offset)
    assert (result.message_count > 0) == (status is GetStatus.FOUND)
    if topic == "T" and queue_id == 0:
        assert (result.min_offset, result.max_offset) == (0, COUNT)


def test_missing_queue_segment(store: Opened, tmp_path: Path) -> None:
    """Where a queue segment should be and is not, the next one is pointed at."""
    store.must_be_sound = False
    (tmp_path / "consumequeue" / "T" / "0" / f"{400:020d}").unlink()
    store.store._queue_files.close()
    result = store.store.get("T", 0, 25, 32)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, 40)


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (1, 1), (7, 7), (20, 20)])
def test_max_count(store: Opened, asked: int, given: int) -> None:
    """As many as asked for, and never less than one."""
    assert bodies(store, "T", 0, 0, asked) == list(range(given))


@pytest.mark.parametrize(("records", "spare", "given"), [(0, 1, 1), (2, 0, 2), (3, -1, 2), (3, 0, 3)])
def test_max_total_bytes(store: Opened, records: int, spare: int, given: int) -> None:
    """The caller's limit on bytes holds, but for the first message."""
    limit = records and store.store.get("T", 0, 0, records).total_bytes
    assert bodies(store, "T", 0, 0, 20, max_total_bytes=limit + spare) == list(range(given))


def test_filter(store: Opened) -> None:
    """Only units whose tags code matches are read; the next offset passes those that do not."""
    odd = message(tag="odd").tags_code
    result = store.store.get("T", 0, 0, 5, lambda code: code == odd)
    assert [int(bytes(record.body)) for record in records_of(result)] == [1, 3, 5, 7, 9]
    assert result.next_begin_offset == 10
    nothing = store.store.get("T", 0, 0, 5, lambda code: False)
    assert (nothing.status, nothing.next_begin_offset, nothing.regions) == (GetStatus.NO_MATCHED_MESSAGE, 20, [])


@pytest.mark.parametrize(("inspected", "next_offset"), [(200, 10), (0, 4), (16_000, 20)])
def test_inspection_limit(tmp_path: Path, inspected: int, next_offset: int) -> None:
    """At most maxFilterMessageSize bytes of units are inspected, or as many units as messages were asked for."""
    with opened(tmp_path, max_filter_message_size=inspected) as it:
        it.put(*(message() for _ in range(30)))
        assert it.store.get("T", 0, 0, 4, lambda code: False).next_begin_offset == next_offset


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
    """Memory and disk have their own limits of messages and bytes."""
    with opened(tmp_path, **limits) as it:
        it.put(*(message(b"x" * 100) for _ in range(20)))
        result = it.store.get("T", 0, 0, 20)
        assert (result.message_count, result.next_begin_offset) == (given, given)
        assert result.behind_memory == ("access_message_in_memory_max_ratio" in limits)


def test_adjacent_records_are_one_region(tmp_path: Path) -> None:
    """Neighbours in the log leave as one piece of the file; others, and those of another segment, as their own."""
    with opened(tmp_path) as it:
        it.put(*(message(b"x" * 100) for _ in range(5)), message(queue_id=1), message(b"x" * 100))
        result = it.store.get("T", 0, 0, 32)
        assert [region.size for region in result.regions] == [5 * 192, 192]
        assert result.total_bytes == 6 * 192
        it.put(message(b"y" * 64_900), message(b"z" * 100))
        result = it.store.get("T", 0, 5, 32)
        assert [region.position for region in result.regions] == [5 * 192 + 97, 0]
        assert [region.size for region in result.regions] == [192, 64_992 + 192]


def test_removed_records_are_skipped(tmp_path: Path) -> None:
    """Units whose log segment is gone are passed over: to the next segment's first, at once."""
    with opened(tmp_path) as it:
        it.put(*(message(b"x" * 9000) for _ in range(30)))  # seven to a log segment, twenty to a queue segment
        segments = it.store._log.files.segments
        gone = [segments.pop(0)]
        result = it.store.get("T", 0, 0, 32)
        assert (result.status, result.message_count, result.next_begin_offset) == (GetStatus.FOUND, 13, 20)
        gone += [segments.pop(0), segments.pop(0)]
        result = it.store.get("T", 0, 0, 32)
        assert (result.status, result.next_begin_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 20)
        result = it.store.get("T", 0, 0, 1, lambda code: False)
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 20)
        result = it.store.get("T", 0, 20, 1)
        assert (result.status, result.message_count) == (GetStatus.FOUND, 1)
        segments[:0] = gone


def test_a_get_sees_the_open_batch(tmp_path: Path) -> None:
    """A pull behind a send of the same turn reads what was sent."""
    with opened(tmp_path) as it:
        it.store.put(message(b"now"))
        assert it.store.get("T", 0, 0, 32).message_count == 1
        it.store.put(message(b"again"))
        assert it.store.max_offset("T", 0) == 2
        behind = it.store.max_physical_offset
        it.store.put(message(b"again"))
        assert it.store.record_at(behind) is not None
