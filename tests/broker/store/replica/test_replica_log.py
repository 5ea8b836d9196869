"""A follower that gets the bytes of a log, in any pieces, ends with the log, queues and index of that log."""

import errno
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.replica.errors import DamagedReplicaError, ReplicaError
from skylarkmq.broker.store.replica.replica_log import ReplicaLog
from skylarkmq.protocol.record import BLANK_SIZE, Blank, parse
from tests.harness.golden_stores import GOLDEN_STORES, golden_store
from tests.harness.stores import Opened, TestDisk, message, opened

SMALL = 4_096


class Source:
    """The bytes of a log, and where it begins and ends."""

    def __init__(self, root: Path, end: int) -> None:
        files = sorted((root / "commitlog").iterdir())
        self.start, self.end = int(files[0].name), end
        self.data = b"".join(file.read_bytes() for file in files)[: end - self.start]

    def pieces(self, rng: Random, begin: int) -> Iterator[tuple[int, bytes]]:
        """Yield offsets and bytes from `begin` on: single bytes, halves of records, and more than a segment."""
        while begin < self.end:
            size = rng.choice((1, rng.randint(1, 300), rng.randint(1, 5_000), rng.randint(1, 100_000)))
            yield begin, self.data[begin - self.start : begin - self.start + size]
            begin += size


@contextmanager
def follower(root: Path, **settings: Any) -> Iterator[Opened]:
    """Open a store that follows; it has no messages of its own to be verified before it has followed."""
    with opened(root, is_follower=True, **settings) as it:
        yield it


def log_of(it: Opened) -> ReplicaLog:
    assert it.store.replica is not None
    return it.store.replica


def feed(replica: ReplicaLog, source: Source, rng: Random, *, until: int | None = None) -> None:
    """Append the bytes from the end of the follower on, and show all of them after most pieces."""
    for offset, data in source.pieces(rng, replica.end or source.start):
        replica.append(offset, data)
        if rng.random() < 0.7:
            replica.show(replica.end)
        if until is not None and replica.end >= until:
            break
    replica.show(replica.end)


def contents(root: Path) -> dict[str, bytes]:
    """Return the bytes of the queues that this store writes."""
    files = [path for path in (root / "consumequeue").rglob("*") if path.is_file() and "%LMQ%" not in str(path)]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def items(it: Opened) -> list[tuple[int, int, int, int]]:
    assert it.store._index is not None
    it.store._index.index.put_waiting()
    return [file.item(number) for file in it.store._index.index.files for number in range(1, file.header.next_item)]


def log_bytes(root: Path, source: Source) -> bytes:
    return Source(root, source.end).data


@pytest.fixture(params=GOLDEN_STORES, ids="-".join)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Source, Path, list[tuple[int, int, int, int]]]:
    """A golden log with queues and index that this store has made of the log alone."""
    root = tmp_path / "golden"
    version, name = request.param
    store = golden_store(version, name, root)
    for kind in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(root / kind, ignore_errors=True)
    (root / "abort").write_bytes(b"1")
    (root / "checkpoint").unlink(missing_ok=True)
    with opened(root) as it:
        expected = items(it)
    return Source(root, store.end), root, expected


def assert_equal(it: Opened, golden: tuple[Source, Path, list[tuple[int, int, int, int]]]) -> None:
    source, root, expected = golden
    assert (log_of(it).end, log_of(it).shown) == (source.end, source.end)
    assert log_bytes(it.root, source) == source.data
    assert contents(it.root) == contents(root)
    assert items(it) == expected


@pytest.mark.parametrize("seed", range(3))
def test_a_follower_ends_as_the_original(
    golden: tuple[Source, Path, list[tuple[int, int, int, int]]], tmp_path: Path, seed: int
) -> None:
    """Log, queues and index are those of the original, whatever the pieces are."""
    with follower(tmp_path / "follower") as it:
        feed(log_of(it), golden[0], Random(seed))
        assert_equal(it, golden)


@pytest.mark.parametrize("seed", range(3))
def test_a_restart_in_the_middle_changes_nothing(
    golden: tuple[Source, Path, list[tuple[int, int, int, int]]], tmp_path: Path, seed: int
) -> None:
    """A follower that is stopped or crashes several times, with half a record at the end, ends as the original."""
    rng, source = Random(f"restart {seed}"), golden[0]
    for _ in range(4):
        it = Opened(tmp_path / "follower", is_follower=True)
        until = rng.randint(source.start, source.end)
        feed(log_of(it), source, rng, until=until)
        if rng.random() < 0.5:
            it.store.close()
            assert not (it.root / "abort").exists()
        else:
            it.crash()
    with follower(tmp_path / "follower") as it:
        feed(log_of(it), source, rng)
        assert_equal(it, golden)


def source_of(root: Path, seed: int = 0, count: int = 200, segment: int = SMALL) -> Source:
    """Return the log of a store with messages of two topics, transactions among them."""
    rng = Random(seed)
    with opened(root, mapped_file_size_commit_log=segment) as it:
        for number in range(count):
            it.clock.now_ms += rng.choice((0, 1, 500))
            body = b"%d:" % number + rng.randbytes(rng.choice((0, 30, 400)))
            flags = rng.choices((0, 4, 8, 12), (8, 1, 1, 1))[0]
            it.put(message(body, rng.choice("TU"), rng.randint(0, 2), tag="a", sys_flag=flags))
        return Source(root, it.store.max_physical_offset)


def test_messages_are_refused(tmp_path: Path) -> None:
    """A follower takes no messages, singly or in batches; that is no failure of the store."""
    with follower(tmp_path) as it:
        assert it.put(message())[0].status is PutStatus.SERVICE_NOT_AVAILABLE
        batch = [message(), message()]
        it.store.put_batch(batch)
        it.store.put_alike(batch)
        assert {append.status for append in batch} == {PutStatus.SERVICE_NOT_AVAILABLE}
        assert not it.store.is_writable
        assert it.store.refusal_reasons() == ""
        assert log_of(it).end == 0


def test_only_a_follower_has_a_replica_log(tmp_path: Path) -> None:
    """A store that takes messages has none."""
    with opened(tmp_path) as it:
        assert it.store.replica is None


def test_arrivals_are_announced_as_on_the_original(tmp_path: Path) -> None:
    """Parked pulls of a follower wake up with the tags codes of the shown messages."""
    with opened(tmp_path / "master") as it:
        it.put(message(b"1", tag="a"), message(b"2", tag="b"))
        it.put(message(b"3", "U"))
        source, expected = Source(it.root, it.store.max_physical_offset), it.arrivals
    with follower(tmp_path / "follower") as it:
        log_of(it).append(0, source.data)
        assert it.arrivals == []
        log_of(it).show(source.end)
        assert sorted(it.arrivals) == sorted(expected)
        assert it.bodies() == [b"1", b"2"]


def test_records_above_the_limit_stay_invisible(tmp_path: Path) -> None:
    """`show` goes up to the last record that ends at or below the limit, and later calls continue there."""
    with opened(tmp_path / "master") as it:
        ends = [append.physical_offset + append.size for n in range(3) for append in it.put(message(b"%d" % n))]
        source = Source(it.root, ends[-1])
    with follower(tmp_path / "follower") as it:
        replica = log_of(it)
        replica.append(0, source.data)
        for limit, shown in ((ends[0] - 1, 0), (ends[0], 1), (ends[1] - 1, 1), (ends[2] + 100, 3)):
            replica.show(limit)
            assert it.store.max_offset("T", 0) == (shown or None)
            assert replica.shown == (ends[shown - 1] if shown else 0)


@pytest.mark.parametrize("is_sync", [False, True])
def test_synced_follows(tmp_path: Path, is_sync: bool) -> None:
    """Appended bytes are synced as configured, and every move of the synced end is announced."""
    source = source_of(tmp_path / "master", count=20)
    pace = {"flush_commit_log_least_pages": 0, "flush_interval_commit_log": 1}
    with follower(tmp_path / "follower", sync=is_sync, mapped_file_size_commit_log=SMALL, **pace) as it:
        replica, moves = log_of(it), list[int]()
        replica.on_synced(moves.append)
        replica.append(0, source.data)
        deadline = 10_000
        while moves[-1:] != [replica.end] and deadline:
            it.clock.now_ms += 10
            it.store.step(it.clock.now_ms)
            deadline -= 1
            time.sleep(0.001)
        assert replica.synced == replica.end == moves[-1]
        replica.show(replica.end)
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        assert log_of(it).synced == log_of(it).end == source.end


def test_a_failed_sync_is_announced_once(tmp_path: Path) -> None:
    disk = TestDisk()
    it = Opened(tmp_path, sync=True, disk=disk, is_follower=True)
    failures: list[OSError] = []
    log_of(it).on_failed(failures.append)

    def refuse(call: str, path: str) -> None:
        if call == "fdatasync":
            raise OSError(errno.EIO, "no disk")

    disk.refuse = refuse
    log_of(it).append(0, bytes(100))
    for _ in range(10_000):
        it.store.step(it.clock.now_ms)
        if failures:
            break
        time.sleep(0.001)
    it.store.step(it.clock.now_ms)
    assert len(failures) == 1
    assert log_of(it).synced == 0
    it.crash()


def test_a_failed_write_moves_nothing(tmp_path: Path) -> None:
    """After a full disk, in the second of two segments, the follower continues where it was."""
    source = source_of(tmp_path / "master", count=40)
    disk = TestDisk()
    with follower(tmp_path / "follower", disk=disk, mapped_file_size_commit_log=SMALL) as it:
        replica = log_of(it)
        replica.append(0, source.data[:1_000])

        def refuse(call: str, path: str) -> None:
            if call == "pwrite" and path.endswith(f"{SMALL:020d}"):
                raise OSError(errno.ENOSPC, "full")

        disk.refuse = refuse
        with pytest.raises(OSError, match="full"):
            replica.append(1_000, source.data[1_000 : 2 * SMALL])
        assert replica.end == 1_000
        assert not any((it.root / "commitlog" / f"{0:020d}").read_bytes()[1_000:])
        disk.refuse = lambda call, path: None
        feed(replica, source, Random(0))
        assert log_bytes(it.root, source) == source.data


def test_zeros_behind_a_blank_may_be_left_out(tmp_path: Path) -> None:
    """The next segment may begin right after the 8 bytes of a blank; queues and log are the same."""
    source = source_of(tmp_path / "master")
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        replica = log_of(it)
        for begin in range(0, source.end, SMALL):
            data = source.data[begin : begin + SMALL]
            at = 0
            while not isinstance(found := parse(memoryview(data), at), Blank) and at + 8 < len(data):
                at += getattr(found, "size", len(data))
            replica.append(begin, data[: at + BLANK_SIZE] if isinstance(found, Blank) else data)
            replica.show(replica.end)
        assert replica.end == replica.shown == source.end
        assert log_bytes(it.root, source) == source.data
        assert contents(it.root) == contents(tmp_path / "master")


def test_bytes_that_do_not_continue_the_log_are_refused(tmp_path: Path) -> None:
    """A gap, an overlap, or a next segment without a blank before it changes nothing."""
    source = source_of(tmp_path / "master", count=30)
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        replica = log_of(it)
        with pytest.raises(ReplicaError, match="from 100 on do not continue the log, which ends at 0"):
            replica.append(100, b"x")
        replica.append(0, source.data[:100])
        for offset in (0, 99, 101, SMALL, 2 * SMALL):
            with pytest.raises(ReplicaError, match="do not continue the log, which ends at 100"):
                replica.append(offset, b"x")
        feed(replica, source, Random(0))


def test_an_empty_log_begins_at_any_segment(tmp_path: Path) -> None:
    """Also if the store was started before and has empty segments, and again after a restart."""
    source = source_of(tmp_path / "master")
    with opened(tmp_path / "follower", mapped_file_size_commit_log=SMALL):
        pass
    begin = 2 * SMALL
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        it.must_be_consistent = False  # the queues begin in the middle
        replica = log_of(it)
        replica.append(begin, source.data[begin : begin + 500])
        assert (replica.min_offset, replica.end) == (begin, begin + 500)
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        it.must_be_consistent = False
        assert log_of(it).min_offset == begin
        feed(log_of(it), source, Random(1))
        assert log_of(it).shown == source.end


def test_damage_is_found_before_it_is_shown(tmp_path: Path) -> None:
    """A record whose body does not match its CRC is not dispatched, as a recovery would end the log there."""
    with opened(tmp_path / "master") as it:
        first, second, _ = it.put(message(b"1"), message(b"2" * 50), message(b"3"))
        source = Source(it.root, it.store.max_physical_offset)
    data = bytearray(source.data)
    data[second.physical_offset + 100] ^= 1
    with follower(tmp_path / "follower") as it:
        it.must_be_consistent = False
        log_of(it).append(0, bytes(data))
        with pytest.raises(DamagedReplicaError) as problem:
            log_of(it).show(source.end)
        assert problem.value.at == second.physical_offset == log_of(it).shown
        assert it.bodies() == [b"1"]
        assert first.size == second.physical_offset


def test_zeros_are_no_record(tmp_path: Path) -> None:
    with follower(tmp_path) as it:
        log_of(it).append(0, bytes(200))
        with pytest.raises(DamagedReplicaError):
            log_of(it).show(200)


def test_a_follower_becomes_a_master(tmp_path: Path) -> None:
    """After a restart with the other role the queues continue after the last offsets."""
    source = source_of(tmp_path / "master")
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        feed(log_of(it), source, Random(3))
    with opened(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        end = it.store.max_offset("T", 0)
        (append,) = it.put(message(b"new"))
        assert append.queue_offset == end
        assert append.physical_offset >= source.end
