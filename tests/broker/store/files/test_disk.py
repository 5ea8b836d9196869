"""The store's disk operations: which files a killed process may leave behind, and where."""

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.disk import Disk, temporary_path


class KilledWhileSyncing(Disk):
    """The process ends while a file is being created."""

    def fsync(self, fd: int) -> None:
        raise KeyboardInterrupt


class MountedDirectories(Disk):
    """Every directory is a file system of its own."""

    def rename(self, source: str, target: str) -> None:
        if os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        super().rename(source, target)


def test_an_incomplete_segment_is_beside_its_directory(tmp_path: Path) -> None:
    """A directory of segments never contains other files, because RocketMQ would not start on it."""
    segments = tmp_path / "commitlog"
    segments.mkdir()
    path = segments / f"{65536:020d}"
    with pytest.raises(KeyboardInterrupt):
        KilledWhileSyncing().create(str(path), 4096)
    assert list(segments.iterdir()) == []
    assert [left.name for left in tmp_path.glob("*.tmp")] == ["commitlog.00000000000000065536.tmp"]
    os.close(Disk().create(str(path), 4096))
    assert path.stat().st_size == 4096
    assert list(tmp_path.glob("*.tmp")) == []


def test_other_temporary_files_are_in_the_same_directory() -> None:
    """The root may be a mount point, so its temporary files are created in it."""
    assert temporary_path("/store/checkpoint") == "/store/checkpoint.tmp"


def test_a_log_directory_that_is_a_mount_point(tmp_path: Path) -> None:
    """If a rename from outside fails, the file is created inside; no temporary file remains."""
    segments = tmp_path / "commitlog"
    segments.mkdir()
    os.close(MountedDirectories().create(str(segments / f"{0:020d}"), 4096))
    assert [path.name for path in segments.iterdir()] == [f"{0:020d}"]
    assert [path.name for path in tmp_path.iterdir()] == ["commitlog"]


class SlowDirectories(Disk):
    """Making a directory and syncing its parent take so long that other threads come meanwhile."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def make_one_directory(self, path: str) -> None:
        time.sleep(0.02)
        super().make_one_directory(path)

    def sync_directory(self, path: str) -> None:
        time.sleep(0.02)
        super().sync_directory(path)
        self.synced.append(path)


def test_threads_may_need_the_same_directory(tmp_path: Path) -> None:
    """None of them writes into it before it is safe, because its own file would be lost with the directory."""
    disk, together = SlowDirectories(), threading.Barrier(4)

    def make(_number: int) -> list[str]:
        together.wait()
        disk.make_directory(str(tmp_path / "store" / "config"))
        return disk.synced.copy()

    with ThreadPoolExecutor(4) as threads:
        seen = list(threads.map(make, range(4)))
    assert seen == [[str(tmp_path), str(tmp_path / "store")]] * 4


def test_a_directory_may_be_named_from_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Disk().make_directory("store/config")
    assert (tmp_path / "store" / "config").is_dir()
