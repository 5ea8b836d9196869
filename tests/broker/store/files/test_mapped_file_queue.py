"""The segments of a log: lookup by arithmetic, removal at the front, and gaps with --force-gap."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.allocation import Allocator
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.mapped_file_queue import MappedFileQueue, gaps
from skylarkmq.protocol.disk import offset_file_name
from tests.harness.stores import TestDisk

SIZE = 4096


def queue_of(directory: Path, *, force_gap: bool = False) -> MappedFileQueue:
    disk = TestDisk()
    return MappedFileQueue(directory, SIZE, disk, Allocator(disk), force_gap=force_gap)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[MappedFileQueue]:
    """Segments 2 to 5 of a log."""
    files = queue_of(tmp_path)
    for start in range(2 * SIZE, 6 * SIZE, SIZE):
        files.segment_at(start).write(b"x", 0)  # an empty one after a gap would be removed
    yield files
    files.close()


@pytest.mark.parametrize("removed", [0, 1, 3])
def test_find_after_removals(files: MappedFileQueue, removed: int) -> None:
    """Lookups find every remaining byte, whatever was removed at the front, and no other byte."""
    gone = [files.remove_first() for _ in range(removed)]
    first = (2 + removed) * SIZE
    assert files.min_offset == first
    for offset in (first, first + SIZE - 1, 5 * SIZE, 6 * SIZE - 1):
        segment = files.find(offset)
        assert segment is not None
        assert segment.start <= offset < segment.end
    for offset in (-1, 0, first - 1, 6 * SIZE):
        assert files.find(offset) is None
    assert all(segment.is_deleted and os.path.exists(segment.path) for segment in gone)
    for segment in gone:
        segment.close()


def test_neighbors(files: MappedFileQueue) -> None:
    """The next and previous segments are found; there is none at the ends."""
    first, last = files.segments[0], files.segments[-1]
    assert files.at_or_after(first.start) is files.at_or_after(0) is first
    assert files.at_or_after(first.end) is files.segments[1]
    assert files.at_or_after(last.end - 1) is last
    assert files.at_or_after(last.end) is None
    assert files.before(last.start) is files.segments[-2]
    assert files.before(first.start) is None


def test_a_gap_stops_the_start(files: MappedFileQueue, tmp_path: Path) -> None:
    """The error names the missing bytes and files, and the option that skips them."""
    files.close()
    for start in (3 * SIZE, 4 * SIZE):
        os.unlink(tmp_path / offset_file_name(start))
    expected = (
        f"{tmp_path}: bytes {3 * SIZE} to {5 * SIZE} are missing, files {offset_file_name(3 * SIZE)} to "
        f"{offset_file_name(4 * SIZE)}; mqbroker --force-gap serves the rest"
    )
    with pytest.raises(StoreError) as refusal:
        queue_of(tmp_path).load()
    assert str(refusal.value) == expected


def test_a_forced_gap_is_skipped(files: MappedFileQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Existing bytes are found, missing bytes are not, and a walk skips the gap."""
    files.close()
    os.unlink(tmp_path / offset_file_name(3 * SIZE))
    files = queue_of(tmp_path, force_gap=True)
    files.load()
    try:
        assert files.gaps == [(3 * SIZE, 4 * SIZE)]
        assert "gap in the log skipped" in caplog.text
        found = {offset: files.find(offset) for offset in (2 * SIZE, 3 * SIZE - 1, 4 * SIZE, 6 * SIZE - 1)}
        assert all(segment and segment.start <= offset < segment.end for offset, segment in found.items())
        assert all(files.find(offset) is None for offset in (0, 3 * SIZE, 4 * SIZE - 1, 6 * SIZE))
        before, behind = files.segments[:2]
        assert files.at_or_after(before.end) is behind
        assert [files.is_missing(offset) for offset in (3 * SIZE - 1, 3 * SIZE, 4 * SIZE - 1, 4 * SIZE)] == [
            False,
            True,
            True,
            False,
        ]
        assert files.before(behind.start) is before
        files.remove_first().close()
        assert files.gaps == []  # the log now begins after it
        assert files.find(4 * SIZE) is behind
    finally:
        files.close()


def test_a_file_at_an_invalid_offset_cannot_be_forced(files: MappedFileQueue, tmp_path: Path) -> None:
    """Only whole segments can be missing."""
    files.close()
    os.rename(tmp_path / offset_file_name(3 * SIZE), tmp_path / offset_file_name(3 * SIZE + 1))
    with pytest.raises(StoreError, match="does not begin where a file of 4096 bytes can"):
        queue_of(tmp_path, force_gap=True).load()


@pytest.mark.parametrize(
    ("starts", "expected"),
    [([], []), ([0], []), ([0, 10, 20], []), ([0, 20], [(10, 20)]), ([5, 15, 45, 55, 75], [(25, 45), (65, 75)])],
)
def test_gaps(starts: list[int], expected: list[tuple[int, int]]) -> None:
    """Gaps are the ranges between two segments that no segment contains."""
    assert list(gaps(starts, 10)) == expected


@pytest.mark.parametrize(
    ("stale_at", "probe_bytes", "cleared"),
    [(10, None, 3), (10, 100, 3), (300, None, 3), (300, 100, 0), (4093, 4096, 3)],
)
def test_truncate_probes_the_given_number_of_bytes(
    files: MappedFileQueue, stale_at: int, probe_bytes: int | None, cleared: int
) -> None:
    """Data within the probed bytes makes truncate clear the whole tail; without any, the rest is not read."""
    last = files.segments[-1]
    last.write(b"old", stale_at)
    assert files.truncate(last.start + 1, probe_bytes) == cleared
    assert bytes(last.view[1:]).count(0) == SIZE - 1 - (3 - cleared)
    if cleared:
        last.write(b"old", 200)
        last.write(b"old", 2_000)
        assert files.truncate(last.start + 1, 1_000) == 6
