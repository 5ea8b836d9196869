"""Backups of stores that are written meanwhile: complete, incremental, resumed after a kill, and refused."""

import errno
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.backup import BackupError
from skylarkmq.broker.store.backup.manifest import load_manifest
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.protocol.disk import offset_file_name
from tests.broker.store.backup.backups import (
    Killed,
    KillingDisk,
    back_up,
    flush,
    log_bytes,
    problems,
    put,
    restored,
)
from tests.harness.stores import SEGMENT_BYTES, Opened, message, opened


def config(root: Path, name: str, content: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(content)


def segment(directory: Path, number: int) -> Path:
    return directory / "commitlog" / offset_file_name(number * SEGMENT_BYTES)


# a store that is in use


def test_a_backup_has_all_records_of_an_open_store(tmp_path: Path) -> None:
    """Up to the last one; segments have their full size; the manifest has their lengths and checksums."""
    with opened(tmp_path / "store") as it:
        put(it, 150)
        done = back_up(it.root, tmp_path / "backup")
        end = it.store.max_physical_offset
        assert (done.log_start, done.log_end, done.last_store_time) == (0, end, it.clock.now_ms)
        assert log_bytes(tmp_path / "backup" / "log", end) == log_bytes(it.root, end)
        assert (done.damage, done.warnings, done.copied_bytes + done.shared_bytes) == ([], [], end)
    manifest = load_manifest(tmp_path / "backup")
    assert manifest is not None
    assert [one.length for one in manifest.log] == [SEGMENT_BYTES, SEGMENT_BYTES, end - 2 * SEGMENT_BYTES]
    assert all(one.length == one.verified for one in manifest.log)
    assert {path.stat().st_size for path in (tmp_path / "backup" / "log" / "commitlog").iterdir()} == {SEGMENT_BYTES}


def test_later_backups_copy_only_new_bytes(tmp_path: Path) -> None:
    """An unchanged store adds nothing, not even a state."""
    with opened(tmp_path / "store") as it:
        end = 0
        for round_number in range(4):
            before = end
            put(it, 40, seed=round_number)
            done = back_up(it.root, tmp_path / "backup")
            end = it.store.max_physical_offset
            assert (done.log_end, done.copied_bytes + done.shared_bytes) == (end, end - before)
            again = back_up(it.root, tmp_path / "backup")
            assert (again.copied_bytes + again.shared_bytes, again.snapshots) == (0, round_number + 1)
        assert log_bytes(tmp_path / "backup" / "log", end) == log_bytes(it.root, end)


@pytest.mark.parametrize("torn", [1, 60, 500, 1_000])
def test_an_append_in_progress_is_not_part_of_a_backup(tmp_path: Path, torn: int) -> None:
    """The next backup has it."""
    with opened(tmp_path / "store") as it:
        put(it, 5)
        end = it.store.max_physical_offset
        put(it, 1, seed=9)
        whole = segment(it.root, 0).read_bytes()
        with segment(it.root, 0).open("r+b") as file:
            file.seek(end + torn)
            file.write(bytes(it.store.max_physical_offset - end - torn))
        assert back_up(it.root, tmp_path / "backup").log_end == end
        assert log_bytes(tmp_path / "backup" / "log", SEGMENT_BYTES)[end:] == bytes(SEGMENT_BYTES - end)
        segment(it.root, 0).write_bytes(whole)
        assert back_up(it.root, tmp_path / "backup").log_end == it.store.max_physical_offset


def test_segments_that_retention_deletes_meanwhile_are_copied(tmp_path: Path) -> None:
    """Their names are gone before their turn comes."""

    class Deleting(Disk):
        def copy_range(self, source: int, fd: int, count: int, at: int) -> int:
            for number in range(3):
                segment(tmp_path / "store", number).unlink(missing_ok=True)
            return super().copy_range(source, fd, count, at)

        def clone(self, source: int, fd: int) -> None:
            raise OSError(errno.EOPNOTSUPP, "no")

    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        put(it, 250)
        end = it.store.max_physical_offset
        expected = log_bytes(it.root, end)
        assert back_up(it.root, tmp_path / "backup", Deleting()).log_end == end
    assert log_bytes(tmp_path / "backup" / "log", end) == expected


def test_a_batch_that_the_broker_takes_back_is_not_part_of_a_backup(tmp_path: Path) -> None:
    """A batch whose write failed was in the file for a moment. The backup is refused, and its repetition succeeds."""

    class TakingBack(Disk):
        def fsync(self, fd: int) -> None:
            if "/backup/log/" in os.readlink(f"/proc/self/fd/{fd}"):
                with segment(tmp_path / "store", 0).open("r+b") as file:
                    file.seek(end)
                    file.write(bytes(5_000))
            super().fsync(fd)

    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        put(it, 5)
        back_up(it.root, tmp_path / "backup")
        end = it.store.max_physical_offset
        put(it, 2, seed=4)
        with pytest.raises(BackupError, match="took back its last messages"):
            back_up(it.root, tmp_path / "backup", TakingBack())
        assert back_up(it.root, tmp_path / "backup").log_end == end


# interruptions


@pytest.mark.crash
def test_a_killed_backup_continues(tmp_path: Path) -> None:
    """Killed before any of its system calls, also in a later backup: the next run has the same result."""
    with opened(tmp_path / "store") as it:
        config(it.root, "topics.json", '{"topicConfigTable":{}}')
        put(it, 80)
        flush(it)
        older = tmp_path / "older"
        back_up(it.root, older)
        put(it, 70, seed=1)
        config(it.root, "topics.json", '{"topicConfigTable":{"T":{}}}')
        end = it.store.max_physical_offset
        counted = KillingDisk()
        back_up(it.root, tmp_path / "whole", counted)
        for base, every in ((None, 3), (older, 1)):
            for kill_at in range(0, counted.calls, every):
                target = tmp_path / f"{base is None}-{kill_at}"
                if base is not None:
                    shutil.copytree(base, target)
                try:
                    back_up(it.root, target, KillingDisk(kill_at))
                except Killed:
                    pass
                assert back_up(it.root, target, KillingDisk()).log_end == end
                assert log_bytes(target / "log", end) == log_bytes(it.root, end)
                manifest = load_manifest(target)
                assert manifest is not None
                assert manifest.newest is not None
                state = target / "state" / manifest.newest.directory / "topics.json"
                assert state.read_text() == '{"topicConfigTable":{"T":{}}}'
                shutil.rmtree(target)


def test_an_interrupted_backup_is_complete_up_to_the_previous_one(tmp_path: Path) -> None:
    """Killed in the middle of the copy: a restore ends where the last complete run ended."""
    with opened(tmp_path / "store") as it:
        put(it, 80)
        end = back_up(it.root, tmp_path / "backup").log_end
        put(it, 200, seed=1)
        with pytest.raises(Killed):
            back_up(it.root, tmp_path / "backup", KillingDisk(12))
        assert restored(tmp_path / "backup", tmp_path / "new").log_end == end
        assert log_bytes(tmp_path / "new", end) == log_bytes(it.root, end)
    assert problems(tmp_path / "new") == []


def test_damaged_files_of_earlier_runs_are_copied_again(tmp_path: Path) -> None:
    """A flipped bit, a short file, a missing file; without verification only sizes are compared."""
    with opened(tmp_path / "store") as it:
        put(it, 200)
        end = back_up(it.root, tmp_path / "backup").log_end
        log = tmp_path / "backup" / "log"
        data = bytearray(segment(log, 0).read_bytes())
        data[3_000] ^= 1
        segment(log, 0).write_bytes(data)
        os.truncate(segment(log, 1), 100)
        segment(log, 2).unlink()
        assert back_up(it.root, tmp_path / "backup", is_verified=False).copied_bytes == 2 * SEGMENT_BYTES
        assert log_bytes(log, end) != log_bytes(it.root, end)
        done = back_up(it.root, tmp_path / "backup")
        assert done.warnings == [f"{segment(log, 0)} was damaged and is copied again"]
        assert log_bytes(log, end) == log_bytes(it.root, end)


def test_what_was_not_read_back_is_read_back_later(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as it:
        put(it, 100)
        back_up(it.root, tmp_path / "backup", is_verified=False)
        manifest = load_manifest(tmp_path / "backup")
        assert manifest is not None
        assert {one.verified for one in manifest.log} == {0}
        put(it, 10, seed=3)
        back_up(it.root, tmp_path / "backup")
    manifest = load_manifest(tmp_path / "backup")
    assert manifest is not None
    assert all(one.length == one.verified for one in manifest.log)


def test_a_disk_that_returns_other_bytes_is_found(tmp_path: Path) -> None:
    """The copy is read back from the disk."""

    class Flipping(Disk):
        def fsync(self, fd: int) -> None:
            super().fsync(fd)
            if "/commitlog/" in os.readlink(f"/proc/self/fd/{fd}"):
                os.pwrite(fd, b"\xff", 200)

    with opened(tmp_path / "store") as it:
        put(it, 10)
        with pytest.raises(BackupError, match="does not contain what was written: check the disk"):
            back_up(it.root, tmp_path / "backup", Flipping())


def test_a_full_disk_is_one_line_and_the_backup_continues(tmp_path: Path) -> None:
    class Full(Disk):
        def clone(self, source: int, fd: int) -> None:
            raise OSError(errno.EOPNOTSUPP, "no")

        def copy_range(self, source: int, fd: int, count: int, at: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with opened(tmp_path / "store") as it:
        put(it, 100)
        with pytest.raises(BackupError, match="is full: free some space, then repeat the command: it continues"):
            back_up(it.root, tmp_path / "backup", Full())
        assert back_up(it.root, tmp_path / "backup").log_end == it.store.max_physical_offset


# damage of the store


def test_damaged_records_of_the_store_are_copied_and_named(tmp_path: Path) -> None:
    """The records around them are valid in the copy, too."""
    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        put(it, 200)
        data = bytearray(segment(it.root, 1).read_bytes())
        data[500] ^= 1
        segment(it.root, 1).write_bytes(data)
        done = back_up(it.root, tmp_path / "backup")
        end = it.store.max_physical_offset
        assert log_bytes(tmp_path / "backup" / "log", end) == log_bytes(it.root, end)
    assert [(one.file, one.offset) for one in done.damage] == [(f"commitlog/{offset_file_name(SEGMENT_BYTES)}", 0)]


def test_damage_in_the_newest_segment_does_not_end_the_log(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        put(it, 20)
        data = bytearray(segment(it.root, 0).read_bytes())
        data[100] ^= 1
        segment(it.root, 0).write_bytes(data)
        done = back_up(it.root, tmp_path / "backup")
        assert done.log_end == it.store.max_physical_offset
    assert len(done.damage) == 1


# retention and other stores


def trim(it: Opened, segments: int) -> None:
    for number in range(segments):
        segment(it.root, number).unlink()


def test_a_backup_keeps_segments_that_the_store_no_longer_has(tmp_path: Path) -> None:
    """--prune removes them, and the states before them."""
    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        put(it, 100)
        back_up(it.root, tmp_path / "backup")
        put(it, 100, seed=1)
        back_up(it.root, tmp_path / "backup")
        trim(it, 3)
        done = back_up(it.root, tmp_path / "backup")
        assert (done.log_start, done.removed_segments) == (0, 0)
        pruned = back_up(it.root, tmp_path / "backup", is_pruned=True)
        assert (pruned.log_start, pruned.removed_segments, pruned.snapshots) == (3 * SEGMENT_BYTES, 3, 1)
        assert len(list((tmp_path / "backup" / "state").iterdir())) == 1
        end = it.store.max_physical_offset
        assert restored(tmp_path / "backup", tmp_path / "new").log_start == 3 * SEGMENT_BYTES
        assert log_bytes(tmp_path / "new", end, 3 * SEGMENT_BYTES) == log_bytes(it.root, end, 3 * SEGMENT_BYTES)
    assert problems(tmp_path / "new") == []


def test_a_damaged_segment_that_the_store_no_longer_has_is_named(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        put(it, 200)
        back_up(it.root, tmp_path / "backup")
        trim(it, 1)
        os.truncate(segment(tmp_path / "backup" / "log", 0), 5)
        done = back_up(it.root, tmp_path / "backup")
    assert len(done.warnings) == 1
    assert "is damaged, and the store no longer has this segment" in done.warnings[0]
    with pytest.raises(BackupError, match=r"00000000000000000000 has 5 of 65536 bytes: repeat the backup"):
        restored(tmp_path / "backup", tmp_path / "new")


def test_a_gap_is_refused(tmp_path: Path) -> None:
    """The store deleted a segment before the backup had all of it."""
    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        put(it, 20)
        back_up(it.root, tmp_path / "backup")
        put(it, 200, seed=1)
        trim(it, 1)
        with pytest.raises(BackupError, match=r"begins at byte 65536, the backup ends at .* begin a new backup"):
            back_up(it.root, tmp_path / "backup")


def test_another_store_is_refused(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("other", 2)):
        with opened(tmp_path / name) as it:
            put(it, 20, seed=seed)
    back_up(tmp_path / "one", tmp_path / "backup")
    with pytest.raises(BackupError, match="belongs to another store; begin a new backup in an empty directory"):
        back_up(tmp_path / "other", tmp_path / "backup")


def test_other_directories_are_refused(tmp_path: Path) -> None:
    """A directory with other files, the store itself, a damaged manifest, one of a newer version, one in use."""
    with opened(tmp_path / "store") as it:
        put(it, 3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for other, name in ((tmp_path / "full", "file"), (tmp_path / "store", "checkpoint")):
        with pytest.raises(
            BackupError, match=f"neither empty nor a backup .it contains {name}.: use another directory"
        ):
            back_up(tmp_path / "store", other)
    back_up(tmp_path / "store", tmp_path / "backup")
    manifest = tmp_path / "backup" / "backup.json"
    content = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps(content | {"version": 2}))
    with pytest.raises(BackupError, match="has version 2, this program reads 1"):
        back_up(tmp_path / "store", tmp_path / "backup")
    manifest.write_text("{")
    with pytest.raises(BackupError, match="is damaged"):
        back_up(tmp_path / "store", tmp_path / "backup")
    manifest.write_text(json.dumps(content))
    with (tmp_path / "backup" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(BackupError, match="another command is using"):
            back_up(tmp_path / "store", tmp_path / "backup")


def test_a_store_that_no_broker_would_start_on_is_refused(tmp_path: Path) -> None:
    """A segment of another size, or a missing one. An empty last file is harmless."""
    with opened(tmp_path / "store") as it:
        put(it, 200)
    root, end = tmp_path / "store", back_up(tmp_path / "store", tmp_path / "backup").log_end
    segment(root, 9).touch()
    assert back_up(root, tmp_path / "backup").log_end == end
    os.truncate(segment(root, 1), 5_000)
    with pytest.raises(BackupError, match="has 5000 bytes, segments here have 65536: give mappedFileSizeCommitLog"):
        back_up(root, tmp_path / "backup")
    segment(root, 1).unlink()
    with pytest.raises(BackupError, match=r"65536 bytes before .* are missing: run mqbroker store verify"):
        back_up(root, tmp_path / "backup")


def test_too_many_files_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All segments are opened at once."""
    with opened(tmp_path / "store") as it:
        put(it, 10)
    real_open = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if "/store/commitlog/" in str(path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(BackupError, match=r"more files than this process may open: raise the limit \(ulimit -Hn\)"):
        back_up(tmp_path / "store", tmp_path / "backup")


def test_an_empty_store_can_be_backed_up(tmp_path: Path) -> None:
    """Its first messages are then part of the next backup."""
    with opened(tmp_path / "store") as it:
        assert back_up(it.root, tmp_path / "backup").log_end == 0
        assert restored(tmp_path / "backup", tmp_path / "empty").records == 0
        put(it, 3)
        assert back_up(it.root, tmp_path / "backup").log_end == it.store.max_physical_offset
    with opened(tmp_path / "empty") as it:
        it.put(message())
        assert it.bodies() == [b"hello"]


# state files


def test_state_files_are_copied_as_their_last_save_left_them(tmp_path: Path) -> None:
    """A damaged file is replaced by its backup; leftovers of a save are not copied; the owner alone can read them."""
    with opened(tmp_path / "store") as it:
        put(it, 3)
    root = tmp_path / "store"
    for name, content in {
        "topics.json": "{}",
        "users.json": '{"userTable":{}}',
        "subscriptionGroup.json": "{broken",
        "subscriptionGroup.json.bak": '{"subscriptionGroupTable":{}}',
        "consumerOffset.json.tmp": "{}",
        "timermetrics": "{}",
    }.items():
        config(root, name, content)
    done = back_up(root, tmp_path / "backup")
    assert done.warnings == [f"{root}/config/subscriptionGroup.json is missing or damaged, its backup is used"]
    (state,) = (tmp_path / "backup" / "state").iterdir()
    assert {path.name: path.read_text() for path in state.iterdir()} == {
        "topics.json": "{}",
        "users.json": '{"userTable":{}}',
        "subscriptionGroup.json": '{"subscriptionGroupTable":{}}',
        "timermetrics": "{}",
        "queues.json": "{}",
    }
    assert state.stat().st_mode & 0o077 == 0
    assert {path.stat().st_mode & 0o777 for path in state.iterdir()} == {0o600}


def test_a_state_file_without_any_usable_copy_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as it:
        put(it, 3)
    config(tmp_path / "store", "topics.json", "")
    with pytest.raises(StoreError, match=r"topics\.json is damaged \(empty\), and it has no usable backup"):
        back_up(tmp_path / "store", tmp_path / "backup")
