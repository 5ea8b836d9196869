"""A log with missing segments, opened with --force-gap: the rest is served, after a clean stop or a crash."""

import os
import shutil
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.read.queue_reads import GetStatus
from skylarkmq.protocol.disk import offset_file_name
from tests.harness.stores import SEGMENT_BYTES, Opened, message, records_of

BODY_BYTES = 9_000
PER_SEGMENT = 7
COUNT = 5 * PER_SEGMENT
MISSING = (2, 3)  # segments of the log


@pytest.fixture(params=["clean", "crashed", "without queues"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Create five segments of messages, alternating between two queues; the third and fourth segment are lost."""
    it = Opened(tmp_path)
    for number in range(COUNT):
        it.put(message(b"%d " % number + bytes(BODY_BYTES), queue_id=number % 2))
    if request.param == "clean":
        it.store.close()
    else:
        it.crash()
    if request.param == "without queues":
        shutil.rmtree(tmp_path / "consumequeue")
    for number in MISSING:
        os.unlink(tmp_path / "commitlog" / offset_file_name(number * SEGMENT_BYTES))
    return tmp_path


def numbers(it: Opened, queue_id: int) -> list[int]:
    """Return all messages of a queue, read like a consumer that follows the next offsets."""
    found: list[int] = []
    offset = 0
    while (result := it.store.get("T", queue_id, offset, 32)).status is not GetStatus.OFFSET_OVERFLOW_ONE:
        assert result.next_begin_offset > offset
        assert result.status in {GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING}
        found += [int(bytes(record.body).split()[0]) for record in records_of(result)]
        offset = result.next_begin_offset
    return found


def test_the_store_is_not_opened_without_force(root: Path) -> None:
    """The error names the gap."""
    with pytest.raises(StoreError, match=f"bytes {2 * SEGMENT_BYTES} to {4 * SEGMENT_BYTES} are missing"):
        Opened(root)


def test_the_rest_is_served(root: Path) -> None:
    """Messages on both sides of the gap keep their queue offsets; new ones follow; the same after a crash."""
    odd = [number for number in range(1, COUNT, 2) if number // PER_SEGMENT not in MISSING]
    it = Opened(root, force_gap=True)
    assert numbers(it, 1) == odd
    (append,) = it.put(message(b"%d " % COUNT + bytes(100), queue_id=1))
    assert append.queue_offset == COUNT // 2
    it.crash()
    again = Opened(root, force_gap=True)
    assert numbers(again, 0) == [number - 1 for number in odd] + [COUNT - 1]
    assert numbers(again, 1) == [*odd, COUNT]
    again.crash()


def test_a_get_inside_the_gap(root: Path) -> None:
    """Its status is MESSAGE_WAS_REMOVING, and its next offset leads to the next existing messages."""
    it = Opened(root, force_gap=True)
    first_lost = 2 * PER_SEGMENT // 2
    result = it.store.get("T", 0, first_lost, 4)
    if result.status is GetStatus.FOUND:  # the get has skipped the whole gap
        assert int(bytes(records_of(result)[0].body).split()[0]) >= 4 * PER_SEGMENT
    else:
        assert (result.status, result.regions) == (GetStatus.MESSAGE_WAS_REMOVING, [])
        assert result.next_begin_offset > first_lost
    it.crash()
