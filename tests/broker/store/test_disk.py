"""The store's door to the disk: what a killed process may leave behind, and where."""

import errno
import os
from pathlib import Path

import pytest

from skylarkmq.broker.store.disk import Disk, temporary_path


class KilledWhileSyncing(Disk):
    """The process ends while a file is being made."""

    def fsync(self, fd: int) -> None:
        raise KeyboardInterrupt


class MountedDirectories(Disk):
    """Every directory is a file system of its own."""

    def rename(self, source: str, target: str) -> None:
        if os.path.dirname(source) != os.path.dirname(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        super().rename(source, target)


def test_a_half_made_segment_lies_beside_its_directory(tmp_path: Path) -> None:
    """In a directory of segments there is never anything but segments: RocketMQ would not start on it."""
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


def test_other_files_are_made_in_their_own_directory() -> None:
    """The root may be a mount point: what lies in it is made in it."""
    assert temporary_path("/store/checkpoint") == "/store/checkpoint.tmp"


def test_a_log_on_a_mount_of_its_own(tmp_path: Path) -> None:
    """Where a rename from beside is impossible, the file is made inside; nothing is left over."""
    segments = tmp_path / "commitlog"
    segments.mkdir()
    os.close(MountedDirectories().create(str(segments / f"{0:020d}"), 4096))
    assert [path.name for path in segments.iterdir()] == [f"{0:020d}"]
    assert [path.name for path in tmp_path.iterdir()] == ["commitlog"]
