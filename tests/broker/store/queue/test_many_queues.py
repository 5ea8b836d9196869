"""Twenty thousand queues, with a limited number of open files and without a map for each."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.stores import Opened, message

pytestmark = pytest.mark.fuzz

TOPICS = 200
QUEUES = 100
OPEN_FILES = 64


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a directory in memory if possible, because the file system is not under test."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        yield Path(name)


def counts() -> tuple[int, int]:
    """Return the numbers of descriptors and maps of this process."""
    return len(os.listdir("/proc/self/fd")), len(Path("/proc/self/maps").read_text().splitlines())


def test_twenty_thousand_queues(directory: Path) -> None:
    """Every queue accepts and returns messages, before and after a restart, with a bounded number of files."""
    descriptors, maps = counts()
    it = Opened(directory, open_queue_files=OPEN_FILES, mapped_file_size_commit_log=16 << 20)
    for topic in range(TOPICS):
        it.put(*(message(b"%d" % queue_id, f"T{topic}", queue_id) for queue_id in range(QUEUES)))
    assert it.store.statistics().queues == TOPICS * QUEUES
    assert it.bodies("T7", 42) == [b"42"]
    it.crash()  # a stop would sync each of their files
    again = Opened(directory, open_queue_files=OPEN_FILES, mapped_file_size_commit_log=16 << 20)
    assert again.recovered.records == TOPICS * QUEUES
    assert all(again.store.max_offset(f"T{topic}", topic % QUEUES) == 1 for topic in range(TOPICS))
    assert again.bodies("T199", 99) == [b"99"]
    again.put(message(b"more", "T3", 5))
    assert again.bodies("T3", 5) == [b"5", b"more"]
    used, mapped = counts()
    assert used - descriptors <= OPEN_FILES + 20
    assert mapped - maps <= 100
    again.crash()
