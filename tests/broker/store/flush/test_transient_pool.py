"""The transient store pool: bytes in a buffer are neither visible nor flushed before they are in the file."""

import threading
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.files.disk import Data
from skylarkmq.broker.store.flush.transient_pool import PooledFile, TransientPool
from skylarkmq.broker.store.log.append import PutStatus
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.stores import SEGMENT_BYTES, Opened, TestDisk, message, opened

BIG = b"x" * (SEGMENT_BYTES - 200)  # one to a segment


class PoolDisk(TestDisk):
    """Writes of the committer into the log wait for `go`; writes of the loop do not, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()
        self.waiting = threading.Event()
        self.loops_writes = 0

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        if threading.current_thread().name == "skylark-log-committer":
            if not self.go.is_set():
                self.waiting.set()
            assert self.go.wait(WAIT_LIMIT_S)
        elif threading.current_thread() is threading.main_thread():
            self.loops_writes += 1
        super().pwrite(fd, data, at)


def pooled(root: Path, **settings: Any) -> Any:
    """Open a store with two buffers whose committer runs at once."""
    defaults: dict[str, Any] = {"transient_store_pool_size": 2, "commit_commit_log_least_pages": 0}
    return opened(root, transient_store_pool_enable=True, **defaults | settings)


def wait_committed(it: Opened) -> None:
    """Wait until the committer has written all submitted ranges, then run a step of the store."""
    committer = it.store._durability.log._committer
    assert committer is not None
    committer.wait_idle()
    it.store.step(it.clock.now_ms)


def pool_of(it: Opened) -> TransientPool:
    pool = it.store._parts._allocator._kind
    assert isinstance(pool, TransientPool)
    return pool


def test_a_message_is_acknowledged_before_it_is_visible(tmp_path: Path) -> None:
    """Under ASYNC_FLUSH a message is acknowledged in its buffer, and visible once the committer has written it."""
    disk = PoolDisk()
    disk.go.clear()
    with pooled(tmp_path, disk=disk) as it:
        disk.loops_writes = 0
        (append,) = it.put(message())
        assert append.status is PutStatus.PUT_OK
        assert (it.bodies(), it.arrivals, disk.loops_writes) == ([], [], 0)
        assert (it.store.statistics().commit_lag, it.store.statistics().free_buffers) == (append.size, 1)
        assert it.store.record_at(append.physical_offset) is None
        assert disk.waiting.wait(WAIT_LIMIT_S)
        disk.go.set()
        wait_committed(it)
        assert it.arrivals == [("T", 0, 1, (0,))]
        assert it.bodies() == [b"hello"]
        assert it.store.record_at(append.physical_offset) is not None


def test_sync_flush_waits_for_the_commit_and_the_sync(tmp_path: Path) -> None:
    """Under SYNC_FLUSH the status is settled after the commit and the sync that follows it."""
    disk = PoolDisk()
    disk.syncs.clear()
    with pooled(tmp_path, sync=True, disk=disk) as it:
        (append,) = it.put(message())
        wait_committed(it)
        assert disk.sync_started.wait(WAIT_LIMIT_S)
        assert {append.status} == {PutStatus.PENDING}
        assert it.bodies() == []
        disk.syncs.set()
        flusher = it.store._durability.log._flusher
        assert flusher is not None
        flusher.wait_idle()
        it.store.step(it.clock.now_ms)
        assert append.status is PutStatus.PUT_OK
        assert it.bodies() == [b"hello"]


def test_a_clean_stop_writes_all_buffers(tmp_path: Path) -> None:
    """Buffers of several segments are written and flushed at a stop, and the stop is clean."""
    with pooled(tmp_path, commit_interval_commit_log=60_000, commit_commit_log_thorough_interval=600_000) as it:
        for number in range(3):
            it.put(message(b"%d" % number + BIG), message(b"small"))
    assert not (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert [len(body) for body in again.bodies()] == [len(BIG) + 1, 5] * 3


def test_buffered_messages_are_lost_with_the_process(tmp_path: Path) -> None:
    """A process that dies loses its buffers from the first unwritten byte on, and nothing else."""
    it = Opened(tmp_path, transient_store_pool_enable=True, commit_commit_log_least_pages=0)
    it.put(message(b"written"))
    wait_committed(it)
    (segment,) = it.store._log.files.segments
    assert isinstance(segment, PooledFile)
    it.store._durability.log._committer.close()  # type: ignore[union-attr]  # the process has ended
    it.store._durability.log._committer = None
    it.store.put(message(b"in a buffer"))
    it.store._log.commit()
    it.crash()
    with opened(tmp_path) as again:
        assert again.bodies() == [b"written"]
        assert again.recovered.cleared_bytes == 0


def test_full_segments_return_their_buffers(tmp_path: Path) -> None:
    """A full segment returns its buffer once it is written; its old bytes never reach another file."""
    with pooled(tmp_path) as it:
        for number in range(5):
            it.put(message(b"%d" % number + BIG))
            wait_committed(it)
        statistics = pool_of(it).statistics()
        assert (statistics.buffers, statistics.free, statistics.unbuffered_segments) == (2, 1, 0)
        (append,) = it.put(message(b"s" * 500))
        wait_committed(it)
        last = it.store._log.files.segments[-1]
        assert append.physical_offset == last.start
        assert bytes(last.view[append.size :]) == bytes(SEGMENT_BYTES - append.size)
        assert [body[:1] for body in it.bodies()] == [b"0", b"1", b"2", b"3", b"4", b"s"]


@pytest.mark.parametrize("fails_fast", [False, True])
def test_segments_without_a_free_buffer(tmp_path: Path, fails_fast: bool) -> None:
    """Without a free buffer, segments are written directly and in order; or sends are busy until one is returned."""
    disk = PoolDisk()
    disk.go.clear()
    with pooled(tmp_path, disk=disk, fast_fail_if_no_buffer_in_store_pool=fails_fast) as it:
        it.put(message(b"0" + BIG))
        it.put(message(b"1" + BIG))
        (append,) = it.put(message(b"2" + BIG))
        if fails_fast:
            assert append.status is PutStatus.SYSTEM_BUSY
            assert not it.store.is_writable
        else:
            assert append.status is PutStatus.PUT_OK
            assert pool_of(it).statistics().unbuffered_segments == 1
        assert it.bodies() == []
        disk.go.set()
        wait_committed(it)
        assert it.store.is_writable
        (append,) = it.put(message(b"3" + BIG))
        assert append.status is PutStatus.PUT_OK
        wait_committed(it)
        assert [body[:1] for body in it.bodies()] == ([b"0", b"1", b"3"] if fails_fast else [b"0", b"1", b"2", b"3"])
    with opened(tmp_path) as again:
        assert len(again.bodies()) == (3 if fails_fast else 4)


def test_a_pool_of_one_buffer_does_not_deadlock(tmp_path: Path) -> None:
    """A pool whose only buffer is in use refuses no message, because waiting would not free a buffer."""
    with pooled(tmp_path, transient_store_pool_size=1, fast_fail_if_no_buffer_in_store_pool=True) as it:
        assert it.put(message())[0].status is PutStatus.PUT_OK
        assert it.put(message())[0].status is PutStatus.PUT_OK


def test_a_failed_batch_is_removed_from_the_buffer(tmp_path: Path) -> None:
    """If a batch over two segments fails in the second, nothing of it remains in the buffer of the first."""
    with pooled(tmp_path, transient_store_pool_size=1) as it:
        it.put(message(b"kept"))

        def refuse(call: str, path: str) -> None:
            if call == "pwrite" and path.endswith(f"{SEGMENT_BYTES:020d}"):
                raise OSError(5, "injected")

        it.disk.refuse = refuse
        appends = it.put(message(b"gone"), message(BIG))
        assert {append.status for append in appends} == {PutStatus.UNKNOWN_ERROR}
        it.disk.refuse = lambda call, path: None
        it.put(message(b"next"))
        wait_committed(it)
        assert it.bodies() == [b"kept", b"next"]
    with opened(tmp_path) as again:
        assert again.bodies() == [b"kept", b"next"]


def test_a_failed_commit_makes_the_store_read_only(tmp_path: Path) -> None:
    """After a buffer that cannot be written the store is read-only, and `abort` stays."""
    with pooled(tmp_path) as it:

        def refuse(call: str, path: str) -> None:
            if call == "pwrite" and "/commitlog/" in path:
                raise OSError(5, "injected")

        it.disk.refuse = refuse
        it.put(message())
        wait_committed(it)
        assert not it.store.is_writable
        assert it.put(message())[0].status is PutStatus.SERVICE_NOT_AVAILABLE
        assert it.bodies() == []
    assert (tmp_path / "abort").exists()
