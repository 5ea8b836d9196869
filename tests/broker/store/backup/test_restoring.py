"""Restored stores: consistent, equal to the original up to their end, with the state that belongs to it."""

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.backup import BackupError
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.protocol.disk import FILLER_UNIT, offset_file_name
from skylarkmq.protocol.javajson import loads
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
from tests.harness.golden_stores import golden_store
from tests.harness.stores import SEGMENT_BYTES, message, opened


def config(root: Path, name: str, content: object) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(json.dumps(content))


def offsets(root: Path, **committed: int) -> None:
    """Save the committed offsets of groups for queue 0 of T."""
    config(root, "consumerOffset.json", {"offsetTable": {f"T@{group}": {"0": at} for group, at in committed.items()}})


def committed(root: Path) -> dict[str, Any]:
    table = loads((root / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    return {name: {str(queue): at for queue, at in queues.items()} for name, queues in table.items()}


def bodies(root: Path) -> list[list[bytes]]:
    """Return the messages that a broker on this store serves, by queue."""
    with opened(root) as it:
        return [it.bodies(queue_id=queue_id) for queue_id in (0, 1)]


# everything


def test_a_restored_store_is_consistent_and_serves_all_messages(tmp_path: Path) -> None:
    """Log, queues and index; the broker continues with the next offsets."""
    with opened(tmp_path / "store") as it:
        put(it, 150)
        expected = [it.bodies(queue_id=queue_id) for queue_id in (0, 1)]
        end = it.store.max_physical_offset
        config(it.root, "topics.json", {"topicConfigTable": {"T": {}}})
        back_up(it.root, tmp_path / "backup")
        put(it, 10, seed=7)
    done = restored(tmp_path / "backup", tmp_path / "new")
    assert (done.log_start, done.log_end, done.records, done.queues) == (0, end, 150, 2)
    assert (done.missing, done.cut, done.damage) == ([], [], [])
    assert log_bytes(tmp_path / "new", end) == log_bytes(tmp_path / "store", end)
    assert log_bytes(tmp_path / "new", 3 * SEGMENT_BYTES)[end:] == bytes(3 * SEGMENT_BYTES - end)
    assert problems(tmp_path / "new") == []
    assert sorted(os.listdir(tmp_path / "new")) == ["checkpoint", "commitlog", "config", "consumequeue", "index"]
    with opened(tmp_path / "new") as it:
        assert [it.bodies(queue_id=queue_id) for queue_id in (0, 1)] == expected
        (sent,) = it.put(message(b"next"))
        assert sent.queue_offset == 75


@pytest.mark.parametrize(("version", "name"), [("4.9.8", "clean"), ("4.9.8", "trimmed"), ("5.3.3", "crc")])
def test_rebuilt_queues_equal_those_of_rocketmq(tmp_path: Path, version: str, name: str) -> None:
    """Queues whose messages have expired keep their end, with filler units."""
    root = golden_store(version, name, tmp_path / "store").root
    back_up(root, tmp_path / "backup")
    restored(tmp_path / "backup", tmp_path / "new")
    for path in (root / "consumequeue").rglob("*"):
        if not path.is_file() or "%LMQ%" in str(path):
            continue
        copy = tmp_path / "new" / path.relative_to(root)
        data, old = copy.read_bytes() if copy.is_file() else b"", path.read_bytes()
        units = [(data[at : at + 20], old[at : at + 20]) for at in range(0, len(data), 20)]
        assert all(new in (unit, FILLER_UNIT) for new, unit in units)
        assert bool(data) or name == "trimmed"  # of the expired units only the last file matters
    assert [finding for finding in problems(tmp_path / "new") if "FixtureBatchCQ" not in finding.what] == []


def test_a_queue_without_messages_keeps_its_numbers(tmp_path: Path) -> None:
    """Its messages have expired, and its consumers continue with the next ones."""
    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        for _ in range(45):
            it.put(message(b"old", "Expired"))
        put(it, 150)
        flush(it)
        (it.root / "commitlog" / offset_file_name(0)).unlink()
        back_up(it.root, tmp_path / "backup")
    restored(tmp_path / "backup", tmp_path / "new")
    assert problems(tmp_path / "new") == []
    with opened(tmp_path / "new") as it:
        assert (it.store.min_offset("Expired", 0), it.store.max_offset("Expired", 0)) == (45, 45)
        (sent,) = it.put(message(b"new", "Expired"))
        assert sent.queue_offset == 45
        assert it.bodies("Expired") == [b"new"]


def test_retention_of_a_restored_store_begins_anew(tmp_path: Path) -> None:
    """Old segments would otherwise be deleted in the first night."""
    with opened(tmp_path / "store") as it:
        put(it, 80)
        for path in (it.root / "commitlog").iterdir():
            os.utime(path, (1, 1))
        back_up(it.root, tmp_path / "backup")
    restored(tmp_path / "backup", tmp_path / "new")
    assert all(path.stat().st_mtime > 1e9 for path in (tmp_path / "new" / "commitlog").iterdir())


# until


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, int, bytes]]]:
    """Return a backup with three states, and (end, store time, body) of each of its records."""
    base = tmp_path_factory.mktemp("history")
    records = []
    with opened(base / "store") as it:
        for round_number in range(3):
            for number in range(40):
                it.clock.now_ms += 10
                body = b"%d-%d" % (round_number, number) + bytes(1_000)
                it.put(message(body))
                records.append((it.store.max_physical_offset, it.clock.now_ms, body))
            config(it.root, "topics.json", {"topicConfigTable": {"T": {"round": round_number}}})
            offsets(it.root, g=40 * (round_number + 1))
            back_up(it.root, base / "backup")
    return base / "backup", records


@pytest.mark.parametrize("number", [0, 1, 39, 40, 57, 58, 80, 118])
def test_the_log_ends_after_the_last_record_stored_by_then(
    tmp_path: Path, history: tuple[Path, list[tuple[int, int, bytes]]], number: int
) -> None:
    """By time or by offset, up to one before the next record."""
    backup, records = history
    end, stored_at, _ = records[number]
    limits: list[dict[str, Any]] = [
        {"until_ms": stored_at},
        {"until_ms": records[number + 1][1] - 1},
        {"until_offset": end},
        {"until_offset": records[number + 1][0] - 1},
    ]
    for at, limit in enumerate(limits):
        done = restored(backup, tmp_path / str(at), **limit)
        assert (done.log_end, done.last_store_time) == (end, stored_at)
    assert problems(tmp_path / "0") == []
    assert bodies(tmp_path / "0") == [[body for _, _, body in records[: number + 1]], []]


def test_the_state_is_the_newest_one_that_is_not_later(
    tmp_path: Path, history: tuple[Path, list[tuple[int, int, bytes]]]
) -> None:
    """What is newer than the state is printed. Committed offsets stay as they were saved."""
    backup, records = history
    done = restored(backup, tmp_path / "new", until_offset=records[100][0])
    assert done.snapshot_end == records[79][0]
    assert loads((tmp_path / "new" / "config" / "topics.json").read_bytes())["topicConfigTable"] == {"T": {"round": 1}}
    assert committed(tmp_path / "new") == {"T@g": {"0": 80}}
    (missing,) = done.missing
    assert missing.startswith("changes of topics, groups, committed offsets and accounts after ")
    assert missing.endswith(f"the last {records[100][0] - records[79][0]} bytes of the log are newer than this state")


def test_without_a_state_that_is_old_enough_the_log_alone_is_restored(
    tmp_path: Path, history: tuple[Path, list[tuple[int, int, bytes]]]
) -> None:
    """It says what is missing; --later-state uses the first one, and cuts offsets beyond the queues' ends."""
    backup, records = history
    done = restored(backup, tmp_path / "new", until_offset=records[10][0])
    assert (done.snapshot_end, list((tmp_path / "new" / "config").iterdir())) == (None, [])
    assert "--later-state uses it" in done.missing[0]
    assert "delivered again" in done.missing[1]
    later = restored(backup, tmp_path / "later", until_offset=records[10][0], uses_later_state=True)
    assert later.snapshot_end == records[39][0]
    assert later.cut == ["group 'g' had committed 40 of 'T'-0, which ends at 11"]
    assert committed(tmp_path / "later") == {"T@g": {"0": 11}}
    assert "later than the log" in later.missing[0]
    assert problems(tmp_path / "later") == []


def test_a_state_that_was_taken_after_the_time_is_not_used(tmp_path: Path) -> None:
    """Also if no message was stored in between."""
    with opened(tmp_path / "store") as it:
        put(it, 3)
        offsets(it.root, g=1)
        back_up(it.root, tmp_path / "backup")
        done = restored(tmp_path / "backup", tmp_path / "new", until_ms=it.clock.now_ms)
    assert (done.records, done.snapshot_end) == (3, None)


def test_an_end_outside_of_the_backup_is_refused(
    tmp_path: Path, history: tuple[Path, list[tuple[int, int, bytes]]]
) -> None:
    backup, records = history
    end, first_ms = records[-1][0], records[0][1]
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"until_offset": end + 1}, f"the backup ends at byte {end}, before {end + 1}: choose an earlier one"),
        ({"until_offset": 5}, "has no record before byte 5, it begins at byte 0"),
        ({"until_ms": first_ms - 1}, "the backup has no record by .*, its first record was stored at "),
    )
    for limit, problem in refused:
        with pytest.raises(BackupError, match=problem):
            restored(backup, tmp_path / "new", **limit)
        assert not (tmp_path / "new").exists()


def test_a_time_is_found_although_the_clock_was_set_back(tmp_path: Path) -> None:
    """The end is in the last segment that begins by then."""
    with opened(tmp_path / "store") as it:
        put(it, 150)
        middle, end = it.clock.now_ms, it.store.max_physical_offset
        it.clock.now_ms += 1_000
        put(it, 30, seed=1)
        back_up(it.root, tmp_path / "backup")
    assert restored(tmp_path / "backup", tmp_path / "new", until_ms=middle).log_end == end


def test_damaged_records_before_the_end_are_passed_over(tmp_path: Path) -> None:
    """The restored log has them as they are, and the records after them."""
    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        put(it, 30)
        stored_at, end = it.clock.now_ms, it.store.max_physical_offset
        put(it, 5, seed=1)
        path = it.root / "commitlog" / offset_file_name(0)
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
        back_up(it.root, tmp_path / "backup")
    done = restored(tmp_path / "backup", tmp_path / "new", until_ms=stored_at)
    assert (done.log_end, done.records, len(done.damage)) == (end, 29, 1)


# state that does not fit


def test_offsets_beyond_the_log_are_cut_and_named(tmp_path: Path) -> None:
    """Of groups and of delay levels. Topics without queues are left alone."""
    with opened(tmp_path / "store") as it:
        put(it, 10)
        it.put(message(b"delayed", "SCHEDULE_TOPIC_XXXX", 2))
        table = {"T@g": {"0": 5, "1": 6}, "Gone@g": {"0": 7}}
        config(it.root, "consumerOffset.json", {"offsetTable": table})
        config(it.root, "delayOffset.json", {"offsetTable": {"3": 4}})
        back_up(it.root, tmp_path / "backup")
    done = restored(tmp_path / "backup", tmp_path / "new")
    assert done.cut == [
        "group 'g' had committed 6 of 'T'-1, which ends at 5",
        "the delay levels had delivered 4 of 'SCHEDULE_TOPIC_XXXX'-2, which ends at 1",
    ]
    assert committed(tmp_path / "new") == {"T@g": {"0": 5, "1": 5}, "Gone@g": {"0": 7}}
    assert loads((tmp_path / "new" / "config" / "delayOffset.json").read_bytes())["offsetTable"] == {3: 1}


def test_topics_without_a_definition_are_named(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as it:
        put(it, 2)
        put(it, 2, topic="U")
        config(it.root, "topics.json", {"topicConfigTable": {"T": {}}})
        back_up(it.root, tmp_path / "backup")
    (missing,) = restored(tmp_path / "backup", tmp_path / "new").missing
    assert missing == "the definitions of 'U': the broker's start creates them with default settings"


def test_deletions_and_archive_marks_do_not_reach_beyond_the_log(tmp_path: Path) -> None:
    """They would otherwise hide, or release for deletion, messages that are stored later."""
    with opened(tmp_path / "store") as it:
        put(it, 10)
        end = it.store.max_physical_offset
        put(it, 10, seed=1)
        config(it.root, "deletedTopics.json", {"Gone": end + 50})
        config(it.root, "archive.json", {"lowWaterMark": end + 50, "updatedAt": 1, "archive": "/a"})
        back_up(it.root, tmp_path / "backup")
    restored(tmp_path / "backup", tmp_path / "whole")
    assert json.loads((tmp_path / "whole" / "config" / "archive.json").read_bytes())["lowWaterMark"] == end + 50
    restored(tmp_path / "backup", tmp_path / "new", until_offset=end, uses_later_state=True)
    assert json.loads((tmp_path / "new" / "config" / "deletedTopics.json").read_bytes()) == {"Gone": end}
    assert not (tmp_path / "new" / "config" / "archive.json").exists()


def test_messages_of_deleted_topics_stay_deleted(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        put(it, 4, topic="Gone")
        config(it.root, "deletedTopics.json", {"Gone": it.store.max_physical_offset})
        put(it, 4)
        back_up(it.root, tmp_path / "backup")
    restored(tmp_path / "backup", tmp_path / "new")
    assert not (tmp_path / "new" / "consumequeue" / "Gone").exists()


# refusals and interruptions


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with opened(tmp_path / "store") as it:
        put(it, 100)
        offsets(it.root, g=1)
        back_up(it.root, tmp_path / "backup")
    return tmp_path / "backup"


def test_only_an_empty_directory_is_a_target(tmp_path: Path, backup: Path) -> None:
    """It may exist, for example as a mount point. A file and a directory with a file are refused."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(BackupError, match=r"full is not empty \(it contains x\): give an empty directory"):
        restored(backup, tmp_path / "full")
    with pytest.raises(BackupError, match="x is not a directory: give an empty one"):
        restored(backup, tmp_path / "full" / "x")
    (tmp_path / "new").mkdir()
    assert restored(backup, tmp_path / "new").records == 100


def test_what_is_no_complete_backup_is_refused(tmp_path: Path, backup: Path) -> None:
    with pytest.raises(BackupError, match=r"store is not a backup: it has no backup\.json"):
        restored(tmp_path / "store", tmp_path / "new")
    with pytest.raises(Killed):
        back_up(tmp_path / "store", tmp_path / "half", KillingDisk(15))
    with pytest.raises(BackupError, match="was interrupted before it was complete: repeat mqbroker store backup"):
        restored(tmp_path / "half", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_backup_that_is_being_written_is_refused(tmp_path: Path, backup: Path) -> None:
    """Restores share the lock; a backup holds it alone, and may be without the file if it was copied."""
    with (backup / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BackupError, match=r"a backup is writing to .*: wait until it has ended"):
            restored(backup, tmp_path / "new")
        fcntl.flock(file, fcntl.LOCK_SH)
        assert restored(backup, tmp_path / "new").records == 100
    (backup / "lock").unlink()
    assert restored(backup, tmp_path / "other").records == 100


def test_a_damaged_backup_is_refused(tmp_path: Path, backup: Path) -> None:
    """A log file or a state file; --no-verify restores the log as it is."""
    path = backup / "log" / "commitlog" / offset_file_name(0)
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    with pytest.raises(BackupError, match=r"is damaged \(checksum\): repeat the backup"):
        restored(backup, tmp_path / "new")
    assert len(restored(backup, tmp_path / "new", is_verified=False).damage) == 1
    (state,) = (backup / "state").iterdir()
    (state / "consumerOffset.json").write_text("{}")
    with pytest.raises(BackupError, match=r"consumerOffset\.json is missing or damaged"):
        restored(backup, tmp_path / "other")


def test_a_full_disk_is_one_line(tmp_path: Path, backup: Path) -> None:
    class Full(Disk):
        def reserve(self, fd: int, size: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(BackupError, match=r"the disk of .*new is full: free some space, then repeat the command"):
        restored(backup, tmp_path / "new", Full())
    assert restored(backup, tmp_path / "new").records == 100
