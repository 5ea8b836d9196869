"""Recovery after a stop or a crash: the log is a prefix of what was written, and the queues agree with it."""

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from skylarkmq.broker.store.files.errors import LoadStopped, StoreError
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.disk import UNIT, Checkpoint, offset_file_name
from tests.harness.stores import Clock, Opened, config_of, message, opened

SIZE = 91 + 1 + 200  # a record of `filled`
SYS_FLAG_AT = 36
PER_SEGMENT = (65_536 - 8) // SIZE


def filled(root: Path, count: int) -> Opened:
    """Return a running store with `count` messages on two queues. Each body contains its number."""
    it = Opened(root)
    for number in range(count):
        it.put(message(b"%0200d" % number, queue_id=number % 2))
    return it


def numbers(it: Opened) -> list[int]:
    return sorted(int(body) for queue_id in (0, 1) for body in it.bodies(queue_id=queue_id))


def log_path(root: Path, segment: int = 0) -> Path:
    return root / "commitlog" / offset_file_name(segment * 65_536)


def queue_path(root: Path, queue_id: int = 0, segment: int = 0) -> Path:
    return root / "consumequeue" / "T" / str(queue_id) / offset_file_name(segment * 400)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def snapshot(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files if path.name.isdigit()}


def test_fresh_store(tmp_path: Path) -> None:
    """A directory that does not exist becomes an empty store that accepts messages."""
    with opened(tmp_path / "new" / "store") as it:
        assert (it.recovered.end, it.recovered.records) == (0, 0)
        assert it.put(message())[0].status is PutStatus.PUT_OK


def test_clean_reopen_reads_only_the_end(tmp_path: Path) -> None:
    """After a clean stop one record is scanned, and all messages exist."""
    it = filled(tmp_path, 500)
    it.store.close()
    assert not (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert again.recovered.records == 1
        assert numbers(again) == list(range(500))
        (append,) = again.put(message(b"next"))
        assert append.queue_offset == 250


def test_crash_reopen_finds_everything(tmp_path: Path) -> None:
    """After a crash every written record exists, and the store continues at its end."""
    filled(tmp_path, 500).crash()
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    with opened(tmp_path) as again:
        assert numbers(again) == list(range(500))
        (append,) = again.put(message(b"9" * 200))
        assert append.queue_offset == 250
        assert len(again.bodies()) == 251


@pytest.mark.parametrize("crashed", [False, True])
def test_a_crash_recovery_reads_from_the_disk(tmp_path: Path, crashed: bool) -> None:
    """The page cache may contain bytes that a failed sync never wrote, so recovery drops it."""
    it = filled(tmp_path, 500)
    if crashed:
        it.crash()
    else:
        it.store.close()
    dropped: list[int] = []
    with patch.object(MappedFile, "drop_page_cache", lambda segment: dropped.append(segment.start)), opened(tmp_path):
        pass
    assert dropped == (sorted(dropped, reverse=True) if crashed else [])
    assert (0 in dropped) is crashed


def test_checkpoint_shortens_the_scan(tmp_path: Path) -> None:
    """A crash scan begins at the last segment that is older than the checkpoint by three seconds."""
    it = Opened(tmp_path)
    for number in range(3 * PER_SEGMENT):
        it.clock.now_ms += 100
        it.put(message(b"%0200d" % number, queue_id=number % 2))
    it.crash()
    first_of_third = Clock().now_ms + 100 * (2 * PER_SEGMENT + 1)
    for timestamp, start in ((first_of_third + 3000, 2), (first_of_third + 2999, 1), (0, 0)):
        (tmp_path / "checkpoint").write_bytes(Checkpoint(timestamp, timestamp + 1).encode())
        again = Opened(tmp_path)
        assert again.recovered.scanned_from == start * 65_536
        assert numbers(again) == list(range(3 * PER_SEGMENT))
        again.crash()


def test_lost_queues_are_rebuilt(tmp_path: Path) -> None:
    """Queues that lost all or some units are rebuilt byte for byte, if needed from before the checkpoint."""
    filled(tmp_path, 2 * PER_SEGMENT + 10).crash()
    before = snapshot(tmp_path)
    (tmp_path / "checkpoint").write_bytes(Checkpoint(1 << 50, 1 << 50).encode())  # it covers too much
    for path in queue_path(tmp_path, 0).parent.iterdir():
        path.unlink()
    overwrite(queue_path(tmp_path, 1, 3), 100, bytes(300))
    Opened(tmp_path).crash()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("lost", [4, 5, 150, SIZE - 5])
def test_torn_tail_is_cleared(tmp_path: Path, lost: int) -> None:
    """A record whose end did not reach the disk is cleared with its unit; its offset is used again."""
    filled(tmp_path, 11).crash()
    overwrite(log_path(tmp_path), 11 * SIZE - lost, bytes(lost))
    with opened(tmp_path) as it:
        assert (it.recovered.records, it.recovered.removed_units) == (10, 1)
        assert not any(log_path(tmp_path).read_bytes()[10 * SIZE :])
        assert not any(queue_path(tmp_path).read_bytes()[5 * 20 :])
        assert it.store.max_offset("T", 0) == 5
        (append,) = it.put(message(b"again"))
        assert (append.queue_offset, append.physical_offset) == (5, 10 * SIZE)


def test_cleared_records_do_not_reappear(tmp_path: Path) -> None:
    """Valid records after a torn one are cleared, so that an append of the same length does not reveal them again."""
    filled(tmp_path, 20).crash()
    overwrite(log_path(tmp_path), 10 * SIZE + 100, b"\xff" * 8)  # the body of number 10
    it = Opened(tmp_path)
    assert it.recovered.reason == "body CRC"
    assert it.recovered.cleared_bytes > 9 * 200
    it.put(message(b"%0200d" % 77))
    it.crash()
    with opened(tmp_path) as again:
        assert numbers(again) == [*range(10), 77]


def test_later_segments_are_removed_with_the_tail(tmp_path: Path) -> None:
    """If the log ends in an earlier segment, the later ones are removed."""
    filled(tmp_path, 2 * PER_SEGMENT + 5).crash()
    overwrite(log_path(tmp_path, 0), 4 * SIZE + 100, b"\xff")
    with opened(tmp_path) as it:
        assert numbers(it) == [0, 1, 2, 3]
        assert it.store.max_physical_offset == 4 * SIZE
        later = [log_path(tmp_path, number) for number in (1, 2)]  # or a new one, created ahead
        assert not any(any(path.read_bytes()) for path in later if path.exists())
        assert it.put(message(b"1" * 200))[0].queue_offset == 2


def test_a_record_at_a_wrong_offset_ends_the_log(tmp_path: Path) -> None:
    """A record that states another offset does not belong to this log."""
    filled(tmp_path, 10).crash()
    data = log_path(tmp_path).read_bytes()
    overwrite(log_path(tmp_path), 10 * SIZE, data[:SIZE])
    with opened(tmp_path) as it:
        assert it.recovered.reason == f"record with offset 0 found at {10 * SIZE}"
        assert numbers(it) == list(range(10))


def test_torn_unit_is_replaced(tmp_path: Path) -> None:
    """A torn unit is written again from the log."""
    filled(tmp_path, 60).crash()
    before = snapshot(tmp_path / "consumequeue")
    overwrite(queue_path(tmp_path, 0, 1), 3 * 20, UNIT.pack(0, SIZE, 0))
    overwrite(queue_path(tmp_path, 1, 0), 3 * 20, UNIT.pack(1 << 40, 0, 0))
    Opened(tmp_path).crash()
    assert snapshot(tmp_path / "consumequeue") == before


def test_stale_units_after_the_end_are_cleared(tmp_path: Path) -> None:
    """Units after a queue's end do not become valid when units are appended before them."""
    filled(tmp_path, 10).crash()
    overwrite(queue_path(tmp_path), 7 * 20, UNIT.pack(0, SIZE, 0))
    it = Opened(tmp_path)
    it.put(message(b"5" * 200), message(b"6" * 200))
    it.crash()
    with opened(tmp_path) as again:
        assert again.store.max_offset("T", 0) == 7


@pytest.mark.parametrize("break_it", [lambda root: None, lambda root: overwrite(log_path(root), 33 * SIZE + 90, b"??")])
def test_recovery_is_idempotent(tmp_path: Path, break_it: Callable[[Path], None]) -> None:
    """A second recovery changes nothing, nor does a third one after an interrupted first one."""
    filled(tmp_path, 40).crash()
    break_it(tmp_path)
    Opened(tmp_path).crash()
    once = snapshot(tmp_path)
    Opened(tmp_path).crash()
    assert snapshot(tmp_path) == once


def test_a_queue_that_begins_later_gets_filler_units(tmp_path: Path) -> None:
    """If a queue's first records are lost with their segment, filler units keep the others at their offsets."""
    filled(tmp_path, 2 * PER_SEGMENT).crash()
    log_path(tmp_path, 0).unlink()
    for queue_id in (0, 1):
        for path in queue_path(tmp_path, queue_id).parent.iterdir():
            path.unlink()
    with opened(tmp_path) as it:
        first = PER_SEGMENT // 2
        assert it.store.min_offset("T", 0) == first
        assert numbers(it) == list(range(PER_SEGMENT, 2 * PER_SEGMENT))
        assert it.store.get("T", 0, 0, 32).next_begin_offset == first


def test_segment_of_another_length_stops_the_start(tmp_path: Path) -> None:
    """The error contains both lengths, and no file is changed."""
    filled(tmp_path, 2 * PER_SEGMENT).crash()
    os.truncate(log_path(tmp_path, 0), 1000)
    with pytest.raises(StoreError, match="00000000000000000000 has 1000 bytes, the configured size is 65536"):
        MessageStore(config_of(tmp_path), Clock()).load()


def test_gap_stops_the_start(tmp_path: Path) -> None:
    """The error names the missing segment."""
    filled(tmp_path, 3 * PER_SEGMENT).crash()
    log_path(tmp_path, 1).unlink()
    with pytest.raises(StoreError, match="bytes 65536 to 131072 are missing, files 00000000000000065536 to 0"):
        MessageStore(config_of(tmp_path), Clock()).load()


def test_temporary_files_are_removed(tmp_path: Path) -> None:
    """An empty last segment and an incomplete one are left over from a power cut; other files are not touched."""
    filled(tmp_path, 10).crash()
    log_path(tmp_path, 1).write_bytes(b"")
    log_path(tmp_path, 2).with_suffix(".tmp").write_bytes(b"half")
    (tmp_path / f"commitlog.{offset_file_name(131_072)}.tmp").write_bytes(b"half")
    (tmp_path / "commitlog" / "README").write_text("hello")
    with opened(tmp_path) as it:
        assert numbers(it) == list(range(10))
    assert sorted(path.name for path in (tmp_path / "commitlog").iterdir()) == [offset_file_name(0), "README"]
    assert list(tmp_path.glob("*.tmp")) == []


def test_transactions_do_not_hide_the_end(tmp_path: Path) -> None:
    """Records without units after the last queued one belong to the log after a clean stop, too."""
    it = filled(tmp_path, 3)
    it.put(message(b"half", sys_flag=4), message(b"rolled back", sys_flag=12))
    end = it.store.max_physical_offset
    it.store.close()
    with opened(tmp_path) as again:
        assert (again.store.max_physical_offset, again.recovered.records) == (end, 3)
        assert numbers(again) == [0, 1, 2]


def test_a_torn_head_does_not_take_the_offset_of_a_message(tmp_path: Path) -> None:
    """A half message whose torn flags make it the first of its queue is skipped: other messages keep their units."""
    it = filled(tmp_path, 1)
    (half,) = it.put(message(b"half", sys_flag=4))
    it.put(message(b"%0200d" % 1))
    end = it.store.max_physical_offset
    it.crash()
    overwrite(log_path(tmp_path), half.physical_offset + SYS_FLAG_AT, bytes(4))
    queue_path(tmp_path).unlink()
    with opened(tmp_path) as again:
        assert again.store.max_physical_offset == end
        assert again.recovered.skipped == again.store.statistics().skipped_records == 1
        assert numbers(again) == [0, 1]


def test_a_canceled_start_leaves_the_store_unchanged(tmp_path: Path) -> None:
    """`should_stop` ends a recovery during its scan; the next one finds everything."""
    filled(tmp_path, 5_000).crash()
    segments = -(-5_000 // PER_SEGMENT)
    calls = iter([False] * (segments + 1))  # each segment is read once to find the beginning
    store = MessageStore(config_of(tmp_path), Clock())
    with pytest.raises(LoadStopped):
        store.load(lambda: next(calls, True))
    assert next(calls, None) is None
    with opened(tmp_path) as again:
        assert numbers(again) == list(range(5_000))
