"""Backups and restores that end at any step: by a kill, a power cut, a full disk or a failed sync.

Afterwards a backup is complete up to its last complete run, and the next run continues it. A restored directory is
empty, complete, or refused by a broker and named by the next restore.

    SKYLARK_INTERRUPTIONS=1 python -m pytest -m crash tests/broker/store/backup/test_interruptions.py  # all steps
"""

import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

import pytest

from skylarkmq.broker.store.backup import BackupError
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.message_store import MessageStore
from tests.broker.store.backup.backups import back_up, flush, log_bytes, problems, put, restored
from tests.harness.faulty_disk import SHORT_WRITE, FaultyDisk
from tests.harness.simulated_disk import PowerCut
from tests.harness.stores import Clock, config_of, opened

pytestmark = pytest.mark.crash

EVERY: Final = int(os.environ.get("SKYLARK_INTERRUPTIONS", "0"))
"""The distance of the tested steps; 0: a few of them."""
FEW: Final = 8


class CopyingDisk(FaultyDisk):
    """A faulty disk without copies in the kernel, which it would not record. Files outside of it are real."""

    def clone(self, source: int, fd: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    def copy_range(self, source: int, fd: int, count: int, at: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "no")

    def fdatasync(self, fd: int) -> None:
        if os.fstat(fd).st_ino in self._files:
            super().fdatasync(fd)


MakeDisk: TypeAlias = Callable[..., tuple[Path, CopyingDisk]]


class Example:
    """A store, its backup after 80 messages, and its end after 70 more."""

    def __init__(self, root: Path) -> None:
        self.store = root / "store"
        self.backup = root / "backup"
        self.later = root / "later"
        with opened(self.store) as it:
            (self.store / "config").mkdir()
            (self.store / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{}}}')
            put(it, 80)
            flush(it)
            self.end = back_up(self.store, self.backup).log_end
            put(it, 70, seed=1)
            flush(it)
            self.later_end = it.store.max_physical_offset
        shutil.copytree(self.backup, self.later)
        back_up(self.store, self.later)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return Example(tmp_path_factory.mktemp("example"))


@pytest.fixture
def make_disk(tmp_path: Path) -> MakeDisk:
    """Return a function that returns a new directory and its disk; the previous directory is removed."""
    made: list[Path] = []

    def make(fail_at: int = -1, problem: int = errno.EIO, length: int = 1) -> tuple[Path, CopyingDisk]:
        root = tmp_path / f"disk{len(made)}"
        root.mkdir()
        if made:
            shutil.rmtree(made[-1], ignore_errors=True)
        made.append(root)
        return root, CopyingDisk(root, fail_at, problem, length)

    return make


def steps(begin: int, end: int) -> list[int]:
    """Return the numbers of the tested steps: always the last ones, in which names change."""
    distance = EVERY or max((end - begin) // FEW, 1)
    return sorted({*range(begin, end, distance), *range(max(end - FEW, begin), end)})


def failing(made: list[str], begin: int, problem: int) -> list[int]:
    """Return the numbers of the calls that fail in a test: from `begin` on, for short writes only writes."""
    calls = [number for number in range(begin, len(made)) if problem != SHORT_WRITE or made[number] == "write_some"]
    return [calls[step] for step in steps(0, len(calls))]


def is_started(root: Path) -> bool:
    """Start a store and stop it. Return False if it is refused because of a restore."""
    store = MessageStore(config_of(root), Clock())
    if (root / "restoring").is_dir():
        with pytest.raises(StoreError, match="has a restore that is running or was interrupted"):
            store.load()
        return False
    store.load()
    store.close()
    return True


def assert_whole_or_refused(example: Example, target: Path) -> None:
    """A broker starts on no part of a store. The next restore starts again, or says what to do."""
    if (target / "restoring").is_dir():
        assert not is_started(target)
        if len(os.listdir(target)) > 1:
            with pytest.raises(BackupError, match=r"has a part of an interrupted restore .*: empty it and repeat"):
                restored(example.later, target)
            return
    if not (target / "commitlog").exists():
        assert restored(example.later, target).log_end == example.later_end
    assert problems(target) == []
    assert log_bytes(target, example.later_end) == log_bytes(example.store, example.later_end)
    assert is_started(target)


# kills and power cuts


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_restore_is_whole_or_refused_after_a_kill_or_a_power_cut(
    example: Example, make_disk: MakeDisk, is_power_cut: bool
) -> None:
    """At any step, and after the last one: a restore that has ended is on the disk."""
    root, disk = make_disk()
    restored(example.later, root / "new", disk)
    for cut_at in [*steps(1, disk.calls + 1), -1]:
        root, disk = make_disk()
        disk.cut_at = cut_at
        try:
            restored(example.later, root / "new", disk)
        except PowerCut:
            assert cut_at > 0
        if is_power_cut:
            disk.cut(Random(cut_at))
        assert cut_at > 0 or (root / "new" / "commitlog").exists()
        assert_whole_or_refused(example, root / "new")


def test_a_backup_continues_after_a_power_cut(example: Example, make_disk: MakeDisk) -> None:
    """At any step of its second run, what the first run stored can be restored."""
    root, disk = make_disk()
    back_up_twice(example, root / "backup", disk)
    calls = disk.calls
    root, disk = make_disk()
    back_up_first(example, root / "backup", disk)
    for cut_at in [*steps(disk.calls + 1, calls + 1), -1]:
        root, disk = make_disk()
        disk.cut_at = cut_at
        try:
            back_up_twice(example, root / "backup", disk)
        except PowerCut:
            assert cut_at > 0
        disk.cut(Random(cut_at))
        assert_continues(example, root / "backup", is_complete=cut_at < 0)


def back_up_first(example: Example, target: Path, disk: CopyingDisk) -> None:
    """Take the first backup: of a store that has what the first backup of the example has."""
    store = target.parent.parent / "first-store"
    if not store.exists():
        restored(example.backup, store)
    assert back_up(store, target, disk).log_end == example.end


def back_up_twice(example: Example, target: Path, disk: CopyingDisk) -> None:
    back_up_first(example, target, disk)
    assert back_up(example.store, target, disk).log_end == example.later_end


def assert_continues(example: Example, backup: Path, *, is_complete: bool = False) -> None:
    """The backup can be restored as it is, and the next run completes it."""
    new = backup.parent / "new"
    done = restored(backup, new)
    assert done.log_end in ((example.later_end,) if is_complete else (example.end, example.later_end))
    assert problems(new) == []
    assert log_bytes(new, done.log_end) == log_bytes(example.store, done.log_end)
    assert back_up(example.store, backup).log_end == example.later_end
    assert log_bytes(backup / "log", example.later_end) == log_bytes(example.store, example.later_end)


# full disks and failed calls


FAILURES: Final = [(errno.ENOSPC, 1 << 30), (errno.EIO, 1), (SHORT_WRITE, 1)]
"""A disk that stays full, one failed call, one short write."""


def fails(problem: int, call: Callable[[], object]) -> bool:
    """Return whether a backup or a restore fails. The error names a full disk, for which short writes count too."""
    try:
        call()
    except (StoreError, OSError) as failure:
        message = str(failure)
    else:
        return False
    assert problem == errno.EIO or "is full: free some space, then repeat the command" in message
    return True


@pytest.mark.parametrize(("problem", "length"), FAILURES)
def test_a_restore_that_fails_is_whole_or_refused(
    example: Example, make_disk: MakeDisk, problem: int, length: int
) -> None:
    """At any call. A full disk is named."""
    root, disk = make_disk()
    restored(example.later, root / "new", disk)
    failed = 0
    for fail_at in failing(disk.made, 0, problem):
        root, disk = make_disk(fail_at, problem, length)
        failed += fails(problem, partial(restored, example.later, root / "new", disk))
        assert_whole_or_refused(example, root / "new")
    assert failed > 3


@pytest.mark.parametrize(("problem", "length"), FAILURES)
def test_a_backup_that_fails_continues(example: Example, make_disk: MakeDisk, problem: int, length: int) -> None:
    """At any call of its second run. A full disk is named; the store is not changed."""
    root, disk = make_disk()
    back_up_first(example, root / "backup", disk)
    first = len(disk.made)
    root, disk = make_disk()
    back_up_twice(example, root / "backup", disk)
    failed = 0
    for fail_at in failing(disk.made, first, problem):
        root, disk = make_disk(fail_at, problem, length)
        failed += fails(problem, partial(back_up_twice, example, root / "backup", disk))
        assert_continues(example, root / "backup")
    assert problems(example.store) == []
    assert failed > 3


# two processes at a time


def test_no_broker_starts_while_a_restore_runs(example: Example, tmp_path: Path) -> None:
    """It makes no file in the directory, so the restore completes."""

    class Starting(Disk):
        def reserve(self, fd: int, size: int) -> None:
            assert not is_started(tmp_path / "new")
            super().reserve(fd, size)

    assert restored(example.later, tmp_path / "new", Starting()).log_end == example.later_end
    assert is_started(tmp_path / "new")


def test_a_directory_in_which_a_broker_was_started_meanwhile_is_refused(example: Example, tmp_path: Path) -> None:
    """The broker keeps the directory: a later start is not refused."""

    class Starting(Disk):
        def make_one_directory(self, path: str) -> None:
            if path.endswith("/restoring"):
                assert is_started(tmp_path / "new")
            super().make_one_directory(path)

    with pytest.raises(BackupError, match=r"a broker has been started on .*new: give an empty directory"):
        restored(example.later, tmp_path / "new", Starting())
    assert is_started(tmp_path / "new")
