"""The observed disk: what its journal proves, and that it disturbs the syncs of another process."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.observed_disk import ENTRY, ObservedDisk, SyncedBytes, build_library, can_observe

WRITES = """
import os, sys
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"x" * 100, 0)
os.fdatasync(fd)
os.pwrite(fd, b"y" * 50, 100)
"""


def journal(tmp_path: Path, *entries: tuple[int, int, int, int, int, int]) -> SyncedBytes:
    file = tmp_path / "journal"
    file.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries))
    return SyncedBytes(file)


def write(at: int, size: int, begin_ns: int, end_ns: int, segment: int = 0) -> tuple[int, int, int, int, int, int]:
    return 1, begin_ns, end_ns, segment, at, size


def sync(begin_ns: int, end_ns: int, segment: int = 0) -> tuple[int, int, int, int, int, int]:
    return 2, begin_ns, end_ns, segment, 0, 0


def test_bytes_are_on_the_disk_once_a_later_sync_has_ended(tmp_path: Path) -> None:
    """A sync that began before the end of the write proves nothing."""
    one = journal(tmp_path, write(0, 100, 10, 20), sync(15, 30), sync(40, 50))
    assert [one.has(0, 100, at) for at in (30, 49, 50)] == [False, False, True]
    assert not one.has(0, 101, 50)


def test_the_last_write_of_each_byte_counts(tmp_path: Path) -> None:
    """Zeros that were synced before a record do not prove the record; two writes may prove one record."""
    one = journal(tmp_path, write(0, 500, 1, 2), sync(3, 4), write(0, 100, 5, 6), write(100, 100, 7, 8), sync(9, 10))
    assert not one.has(0, 200, 9)
    assert one.has(0, 200, 10)
    assert one.has(0, 500, 10)


def test_a_sync_covers_its_own_segment(tmp_path: Path) -> None:
    """Offsets are those of the log."""
    one = journal(tmp_path, write(0, 100, 1, 2, 1 << 20), sync(3, 4), write(0, 9, 5, 6), sync(7, 8, 1 << 20))
    assert not one.has(1 << 20, (1 << 20) + 100, 7)
    assert one.has(1 << 20, (1 << 20) + 100, 8)
    assert not one.has(0, 9, 8)


@pytest.mark.crash
@pytest.mark.skipif(not can_observe(), reason="no gcc here")
def test_a_process_is_observed_and_disturbed(tmp_path: Path) -> None:
    """Its writes and syncs are in the journal; orders make a sync slow or fail."""
    disk = ObservedDisk(tmp_path / "disk", build_library(tmp_path))
    (tmp_path / "commitlog").mkdir()
    command = disk.command([sys.executable, "-c", WRITES, str(tmp_path / "commitlog" / f"{4096:020}")])
    subprocess.run(command, check=True)
    now_ns = time.monotonic_ns()
    one = SyncedBytes(disk.journal)
    assert one.has(4096, 4196, now_ns)
    assert not one.has(4196, 4246, now_ns)
    disk.slow(0.3)
    begun = time.monotonic()
    subprocess.run(command, check=True)
    assert time.monotonic() - begun >= 0.3
    for order in (disk.fail, disk.fail_log):
        order()
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert "[Errno 5] Input/output error" in done.stderr
    disk.heal()
    subprocess.run(command, check=True)
    assert SyncedBytes(disk.journal).syncs == 3
