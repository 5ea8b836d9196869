"""Offset by time: both boundaries against a search of every message, over segments, gaps and equal times."""

import os
import random
from pathlib import Path

import pytest

from skylarkmq.broker.store.read.offset_by_time import Boundary
from tests.harness.stores import Opened, message, opened

START_MS = 1_700_000_000_000
UNITS = 20  # in a queue segment


def expected(times: list[int], timestamp: int, boundary: Boundary, first: int = 0) -> int:
    """Return the result that docs/reference/disk.md, "Offset by time", defines, by a linear search."""
    if boundary is Boundary.LOWER:
        return first + next((number for number, time in enumerate(times) if time >= timestamp), len(times))
    return first + max((number for number, time in enumerate(times) if time <= timestamp), default=0)


def put_at(it: Opened, times: list[int]) -> None:
    for time in times:
        it.clock.now_ms = START_MS + time
        it.put(message(), message(topic="other"))


@pytest.mark.parametrize(
    "times",
    [
        [0],
        [5] * 50,
        [0] * 19 + [5] * 22 + [9] * 9,  # a run of equal times over two segment boundaries
        [0] * 20 + [10] * 20 + [20] * 20,  # times that change at segment boundaries
        list(range(0, 120, 2)),
        sorted(random.Random(4).choices(range(40), k=65)),
    ],
)
@pytest.mark.parametrize("is_reopened", [False, True])
def test_both_boundaries_find_the_right_message_for_every_time(
    tmp_path: Path, times: list[int], is_reopened: bool
) -> None:
    """Times before, between, at and after those of a queue find the right message."""
    with opened(tmp_path) as it:
        put_at(it, times)
        if not is_reopened:
            assert_all(it, times)
    if is_reopened:
        with opened(tmp_path) as it:
            assert_all(it, times)


def assert_all(it: Opened, times: list[int], first: int = 0) -> None:
    for boundary in Boundary:
        for time in range(times[0] - 2, times[-1] + 3):
            found = it.store.offset_by_time("T", 0, START_MS + time, boundary)
            assert found == expected(times, time, boundary, first), (time, boundary)


def test_messages_deleted_from_the_log_count_as_older(tmp_path: Path) -> None:
    """Units without records count as older than all others; results stay within the readable range."""
    times = list(range(40))
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        for time in times:
            it.clock.now_ms = START_MS + time
            it.put(message(b"x" * 9_000))  # seven to a segment of the log
        it.store._log.files.segments[0].close()
        del it.store._log.files.segments[0]
        lower = [it.store.offset_by_time("T", 0, START_MS + time) for time in (-1, 0, 6, 7, 8, 39, 40)]
        assert lower == [7, 7, 7, 7, 8, 39, 40]
        queue = it.store.queues.make("T", 0)
        queue.correct_min_offset(it.store.min_physical_offset)
        assert_all(it, times[7:], first=7)


def test_a_missing_queue_or_record_gives_the_minimum(tmp_path: Path) -> None:
    """No queue: 0. A record that cannot be read: the minimum of the queue."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        assert it.store.offset_by_time("T", 0, START_MS) == 0
        put_at(it, list(range(9)))
        queue = it.store.queues.make("T", 0)
        it.store._parts._queue_files.close()
        with open(queue._path, "r+b") as file:
            os.pwrite(file.fileno(), (1 << 40).to_bytes(8, "big"), 4 * 20)
        assert it.store.offset_by_time("T", 0, START_MS + 7) == queue.min_offset
