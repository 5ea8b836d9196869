"""A follower that gets the bytes of a log, in any pieces, ends with the log, queues and index of that log."""

import asyncio
import errno
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skylarkmq.broker.store.files.record_rules import has_unit
from skylarkmq.broker.store.files.zero_fill import STRETCH_BYTES
from skylarkmq.broker.store.flush.follower_flush import FEW_BYTES
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.replica import log_dispatch
from skylarkmq.broker.store.replica.errors import DamagedReplicaError, ReplicaError
from skylarkmq.broker.store.replica.replica_log import ReplicaLog
from skylarkmq.protocol.record import BLANK_SIZE, Blank, Record, iterate, parse
from tests.broker.store.files.test_zero_fill import LOG, reserved
from tests.harness.golden_stores import GOLDEN_STORES, golden_store
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.rounds import rounds
from tests.harness.store_check import assert_consistent
from tests.harness.stores import Clock, Opened, TestDisk, config_of, message, opened
from tests.harness.waiting import until

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
    assert it.store._parts.index is not None
    it.store._parts.index.index.put_waiting()
    return [
        file.item(number) for file in it.store._parts.index.index.files for number in range(1, file.header.next_item)
    ]


def log_bytes(root: Path, source: Source) -> bytes:
    return Source(root, source.end).data


@pytest.fixture(params=GOLDEN_STORES, ids="-".join, scope="module")
def golden(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Source, Path, list[tuple[int, int, int, int]]]:
    """A golden log with queues and index that this store has made of the log alone. No test changes it."""
    root = tmp_path_factory.mktemp("golden")
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


@pytest.mark.parametrize("seed", range(rounds(3)))
def test_a_follower_ends_as_the_original(
    golden: tuple[Source, Path, list[tuple[int, int, int, int]]], tmp_path: Path, seed: int
) -> None:
    """Log, queues and index are those of the original, whatever the pieces are."""
    with follower(tmp_path / "follower") as it:
        feed(log_of(it), golden[0], Random(seed))
        assert_equal(it, golden)


@pytest.mark.parametrize("seed", range(rounds(3)))
def test_runs_of_records_give_the_same(
    golden: tuple[Source, Path, list[tuple[int, int, int, int]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """Also if all records are read as runs, each of which ends where a record has another layout."""
    monkeypatch.setattr(log_dispatch, "RUN_FROM_BYTES", 1)
    with follower(tmp_path / "follower") as it:
        feed(log_of(it), golden[0], Random(seed))
        assert_equal(it, golden)


@pytest.mark.parametrize("seed", range(rounds(3)))
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
            assert (it.root / "abort").exists() == (log_of(it).shown < log_of(it).end)
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
        assert it.store.flags.reasons() == ""
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


@pytest.mark.parametrize(("records", "size"), [(7, 1 << 30), (1 << 30, 3_000)])
def test_a_slice_shows_some_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int, size: int) -> None:
    """It ends after a number of records or bytes; together the slices show everything, and then there is no more."""
    monkeypatch.setattr(log_dispatch, "SLICE_RECORDS", records)
    monkeypatch.setattr(log_dispatch, "SLICE_BYTES", size)
    source = source_of(tmp_path / "source")
    with follower(tmp_path / "copy", mapped_file_size_commit_log=SMALL) as it:
        replica, ends = log_of(it), [0]
        replica.append(source.start, source.data)
        while not replica.show_slice(source.end):
            assert ends[-1] < replica.shown <= ends[-1] + 3 * SMALL
            ends.append(replica.shown)
        assert replica.shown == source.end
        assert len(ends) > 3
        assert replica.show_slice(source.end)


@pytest.mark.parametrize("is_sync", [False, True])
def test_synced_follows(tmp_path: Path, is_sync: bool) -> None:
    """Appended bytes are synced as configured, and every move of the synced end is announced."""
    source = source_of(tmp_path / "master", count=20)
    pace = {"flush_commit_log_least_pages": 0, "flush_interval_commit_log": 1}
    with follower(tmp_path / "follower", sync=is_sync, mapped_file_size_commit_log=SMALL, **pace) as it:
        replica, moves = log_of(it), list[int]()
        replica.on_synced(moves.append)
        replica.append(0, source.data)
        end_s = time.monotonic() + WAIT_LIMIT_S
        while moves[-1:] != [replica.end] and time.monotonic() < end_s:
            it.clock.now_ms += 10
            it.store.step(it.clock.now_ms)
            time.sleep(0.001)
        assert replica.synced == replica.end == moves[-1]
        replica.show(replica.end)
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        assert log_of(it).synced == log_of(it).end == source.end


async def test_appends_of_one_iteration_have_one_sync(tmp_path: Path) -> None:
    """Few bytes are synced by the loop at the end of the iteration, many by the flusher."""
    source = source_of(tmp_path / "master", count=600, segment=1 << 20)
    disk, moves = TestDisk(), list[int]()
    with follower(
        tmp_path / "f", sync=True, disk=disk, loop=asyncio.get_running_loop(), mapped_file_size_commit_log=1 << 20
    ) as it:
        replica = log_of(it)
        replica.on_synced(moves.append)
        threads: set[str] = set()
        disk.refuse = lambda call, _: threads.add(threading.current_thread().name) if call == "fdatasync" else None
        replica.append(0, source.data[:1_000])
        replica.append(1_000, source.data[1_000:3_000])
        assert (moves, threads) == ([], set())
        await asyncio.sleep(0)
        assert (moves, threads) == ([3_000], {threading.main_thread().name})
        threads.clear()
        replica.append(3_000, source.data[3_000:])
        synced = asyncio.Event()
        replica.on_synced(lambda end: synced.set() if end == source.end else None)
        await synced.wait()
        assert len(source.data) - 3_000 > FEW_BYTES
        assert threading.main_thread().name not in threads
        replica.show(replica.end)


async def test_a_failed_sync_of_the_loop_acknowledges_nothing(tmp_path: Path) -> None:
    """The failure is announced once, and no later byte counts as synced."""
    disk, failures, moves, failed = TestDisk(), list[OSError](), list[int](), asyncio.Event()
    it = Opened(tmp_path, sync=True, disk=disk, is_follower=True, loop=asyncio.get_running_loop())

    def on_failed(failure: OSError) -> None:
        failures.append(failure)
        failed.set()

    log_of(it).on_failed(on_failed)
    log_of(it).on_synced(moves.append)

    def refuse(call: str, path: str) -> None:
        if call == "fdatasync":
            raise OSError(errno.EIO, "no disk")

    disk.refuse = refuse
    log_of(it).append(0, bytes(100))
    await failed.wait()
    disk.refuse = lambda call, path: None
    log_of(it).append(100, bytes(100))
    await asyncio.sleep(0.01)
    it.store.step(it.clock.now_ms)
    assert (len(failures), moves, log_of(it).synced) == (1, [], 0)
    it.crash()


async def test_bytes_are_appended_and_synced_in_one_call(tmp_path: Path) -> None:
    """Unless they are many, or do not continue the log, or earlier ones are not synced: then nothing is appended."""
    source = source_of(tmp_path / "master", count=600, segment=1 << 20)
    moves = list[int]()
    with follower(
        tmp_path / "f", sync=True, loop=asyncio.get_running_loop(), mapped_file_size_commit_log=1 << 20
    ) as it:
        replica = log_of(it)
        replica.on_synced(moves.append)
        assert replica.append_synced(0, source.data[:1_000])
        assert (replica.end, replica.synced) == (1_000, 1_000)
        assert not replica.append_synced(1_001, b"x")
        assert not replica.append_synced(1_000, source.data[1_000 : 2_000 + FEW_BYTES])
        assert (replica.end, replica.synced) == (1_000, 1_000)
        await asyncio.sleep(0.01)
        assert moves == []
        replica.append(1_000, source.data[1_000:2_000])
        assert not replica.append_synced(2_000, source.data[2_000:3_000])
        replica.append(2_000, source.data[2_000:])
        await until(lambda: moves[-1:] == [source.end])
        replica.show(replica.end)


async def test_a_failed_sync_in_one_call_has_no_errno(tmp_path: Path) -> None:
    """A disk that is full is not as it was after a failed sync, but after a failed write."""
    disk, failures = TestDisk(), list[OSError]()
    it = Opened(tmp_path, sync=True, disk=disk, is_follower=True, loop=asyncio.get_running_loop())
    log_of(it).on_failed(failures.append)

    def refuse(call: str, path: str) -> None:
        if call == "fdatasync":
            raise OSError(errno.ENOSPC, "no space")

    disk.refuse = refuse
    with pytest.raises(OSError, match="cannot be synced") as caught:
        log_of(it).append_synced(0, bytes(100))
    assert caught.value.errno is None
    await until(lambda: failures)
    assert not log_of(it).append_synced(100, bytes(100))
    assert log_of(it).synced == 0
    it.crash()


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
    end_s = time.monotonic() + WAIT_LIMIT_S
    while not failures and time.monotonic() < end_s:
        it.store.step(it.clock.now_ms)
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


def test_a_large_piece_is_written_as_it_is(tmp_path: Path) -> None:
    """With zeros to the end of its block. Only a small piece is followed by a stretch of zeros."""
    body = bytes(STRETCH_BYTES)
    with opened(tmp_path / "source", mapped_file_size_commit_log=LOG) as it:
        large = [it.put(message(body)) for _ in range(3)][-1][0]
        it.put(message(b"small" * 1_000))
        source = Source(it.root, it.store.max_physical_offset)
    first, last = large.size, large.physical_offset + large.size
    with reserved(tmp_path / "copy", is_follower=True) as it:
        replica = log_of(it)
        it.disk.writes.clear()
        replica.append(0, source.data[:first])
        replica.append(first, memoryview(source.data)[first:last])
        replica.append(last, source.data[last:])
        written = [(at, size) for path, at, size in it.disk.writes if path.endswith("/" + "0" * 20)]
        assert written[:4] == [(0, first), (first, -first % 4096), (first, last - first), (last, -last % 4096)]
        assert written[4][0] == last
        assert sum(written[5]) % STRETCH_BYTES == 0
        replica.show(source.end)
        assert it.bodies() == [body, body, body, b"small" * 1_000]


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


# truncation


def test_a_truncated_log_continues_as_if_the_rest_had_never_come(tmp_path: Path) -> None:
    """Later segments are unlinked, later bytes are zeros, all is synced, and other bytes may follow."""
    source, other = source_of(tmp_path / "master"), source_of(tmp_path / "other", seed=1)
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        replica = log_of(it)
        replica.append(0, source.data)
        for end in (source.end - 1, 3 * SMALL, 3 * SMALL - 10, SMALL + 1, 500):
            replica.truncate(end)
            assert (replica.end, replica.synced) == (end, end)
            files = sorted((it.root / "commitlog").iterdir())
            assert [file.name for file in files] == [f"{n * SMALL:020d}" for n in range(max(-(-end // SMALL), 1))]
            data = b"".join(file.read_bytes() for file in files)
            assert data[:end] == source.data[:end]
            assert not any(data[end:])
        replica.truncate(0)
        feed(replica, other, Random(2))
        assert contents(it.root) == contents(tmp_path / "other")
    assert log_bytes(tmp_path / "follower", other) == other.data


def test_no_truncation_below_what_was_shown(tmp_path: Path) -> None:
    """Consumers may have read it. Nor does a truncation extend the log."""
    source = source_of(tmp_path / "master", count=20)
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        replica = log_of(it)
        replica.append(0, source.data)
        replica.show(1_000)
        shown = replica.shown
        assert 0 < shown <= 1_000
        for end in (0, shown - 1, source.end + 1):
            with pytest.raises(ReplicaError, match=f"cannot end at {end}"):
                replica.truncate(end)
        replica.truncate(shown)
        feed(replica, source, Random(0))


def test_an_empty_log_is_truncated_to_another_begin(tmp_path: Path) -> None:
    source = source_of(tmp_path / "master")
    with follower(tmp_path / "follower", mapped_file_size_commit_log=SMALL) as it:
        it.must_be_consistent = False  # the queues begin in the middle
        replica = log_of(it)
        replica.append(0, source.data[: SMALL + 100])
        replica.truncate(0)
        replica.truncate(2 * SMALL)
        assert (replica.min_offset, replica.end, replica.synced) == (0, 2 * SMALL, 2 * SMALL)
        feed(replica, source, Random(4))
        assert min(int(file.name) for file in (it.root / "commitlog").iterdir()) == 2 * SMALL


async def test_no_synced_end_above_a_truncation(tmp_path: Path) -> None:
    """With a loop and a slow disk: after a truncation only new bytes are announced."""
    source = source_of(tmp_path / "master")
    moves: list[int] = []
    synced = asyncio.Event()

    def on_synced(end: int) -> None:
        moves.append(end)
        if end == 1_500:
            synced.set()

    with follower(tmp_path / "f", sync=True, loop=asyncio.get_running_loop(), mapped_file_size_commit_log=SMALL) as it:
        replica = log_of(it)
        replica.on_synced(on_synced)
        replica.append(0, source.data)
        replica.truncate(700)
        moves.clear()
        replica.append(700, source.data[700:1_500])
        await synced.wait()
        assert max(moves) == 1_500
        feed(replica, source, Random(5))


# the committed mark


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_follower_shows_nothing_above_the_mark(tmp_path: Path, seed: int, is_clean: bool) -> None:
    """After a restart only what is committed is visible; the rest follows by `show`, in queues and index."""
    rng = Random(seed)
    source = source_of(tmp_path / "master", seed)
    with opened(tmp_path / "master", mapped_file_size_commit_log=SMALL) as it:
        expected = items(it)
    mark = rng.randint(0, source.end)
    it = Opened(tmp_path / "f", is_follower=True, mapped_file_size_commit_log=SMALL)
    log_of(it).append(0, source.data)
    log_of(it).show(rng.choice((mark, rng.randint(0, mark))))
    it.store.close() if is_clean else it.crash()
    store = MessageStore(it.store._config, it.clock)
    recovered = store.load(show_to=mark)
    store.start()
    replica = store.replica
    assert replica is not None
    assert (replica.end, replica.shown) == (source.end, recovered.shown)
    ends = [record.physical_offset + record.size for record in iterate_log(source)]
    assert recovered.shown == max((end for end in ends if end <= mark), default=0)
    visible = sum(queue.end for queue in store.queues.by_key.values())
    assert visible == sum(has_unit(record.sys_flag) for record in iterate_log(source, recovered.shown))
    replica.show(source.end)
    assert contents(it.root) == contents(tmp_path / "master")
    it.store = store
    assert items(it) == expected
    store.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_master_numbers_messages_after_its_whole_log(tmp_path: Path, seed: int) -> None:
    """Queue offsets and store times continue after records that are not committed, and are shown before new ones."""
    rng = Random(seed)
    root = tmp_path / "master"
    source = source_of(root, seed)
    (root / "abort").write_bytes(b"1")
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()
    clock = Clock(now_ms=1)
    store = MessageStore(config_of(root, mapped_file_size_commit_log=SMALL), clock)
    mark = rng.randint(0, source.end)
    assert store.load(show_to=mark).shown <= mark
    store.start()
    records = list(iterate_log(source))
    count = sum(one.topic == "T" and one.queue_id == 0 and has_unit(one.sys_flag) for one in records)
    new = message(b"new")
    store.put(new)
    store.hidden_tail.show_recovered()
    assert (store.max_offset("T", 0), new.queue_offset) == (count + 1, count)
    assert new.store_timestamp == records[-1].store_timestamp
    store.hidden_tail.show_recovered()
    store.close()
    assert_consistent(root, config_of(root, mapped_file_size_commit_log=SMALL))


def test_a_blank_at_the_end_survives_a_restart(tmp_path: Path) -> None:
    """Zeros after a blank may be acknowledged: the log still ends with its segment, on a follower and on a leader."""
    source = source_of(tmp_path / "master")
    it = Opened(tmp_path / "f", is_follower=True, mapped_file_size_commit_log=SMALL)
    log_of(it).append(0, source.data[:SMALL])
    log_of(it).show(SMALL)
    it.crash()
    with follower(tmp_path / "f", mapped_file_size_commit_log=SMALL) as it:
        assert (log_of(it).end, log_of(it).shown) == (SMALL, SMALL)
    store = MessageStore(config_of(tmp_path / "f", mapped_file_size_commit_log=SMALL), it.clock)
    assert store.load(show_to=SMALL).end == SMALL
    store.start()
    new = message(b"new")
    store.put(new)
    store.commit()
    assert new.physical_offset == SMALL
    store.close()
    assert_consistent(tmp_path / "f", config_of(tmp_path / "f", mapped_file_size_commit_log=SMALL))


def iterate_log(source: Source, end: int | None = None) -> Iterator[Record]:
    """Yield the records of a log of small segments that end at or below `end`."""
    for begin in range(0, source.end, SMALL):
        for record in iterate(source.data[begin : begin + SMALL]):
            if isinstance(record, Record) and begin + record.position + record.size <= (end or source.end):
                yield record


@pytest.mark.parametrize("has_record_behind", [False, True])
def test_a_blank_above_the_mark_can_be_truncated_after_a_restart(tmp_path: Path, has_record_behind: bool) -> None:
    """It is not shown: the leader that wrote it may have lost it, and has another record there now."""
    source = source_of(tmp_path / "master")
    ends = [record.physical_offset + record.size for record in iterate_log(source)]
    last = max(end for end in ends if end <= SMALL)
    assert last < SMALL
    it = Opened(tmp_path / "f", is_follower=True, mapped_file_size_commit_log=SMALL)
    end = min(end for end in ends if end > SMALL) if has_record_behind else SMALL
    log_of(it).append(0, source.data[:end])
    log_of(it).show(last)
    it.crash()
    store = MessageStore(it.store._config, it.clock)
    recovered = store.load(show_to=last)
    assert (recovered.end, recovered.shown) == (end, last)
    store.start()
    assert store.replica is not None
    store.replica.truncate(last)
    store.replica.append(last, source.data[last:])
    store.replica.show(source.end)
    assert contents(it.root) == contents(tmp_path / "master")
    store.close()
