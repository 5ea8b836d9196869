"""Zero fill of a SYNC_FLUSH log: which blocks are written when, and how its failures roll back a batch."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skylarkmq.broker.store.files.zero_fill import IDLE_MS
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.protocol.disk import offset_file_name
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.stores import SEGMENT_BYTES, Opened, message, opened

LOG = 1 << 20
STRETCH = 256 << 10


def test_a_batch_is_padded_to_the_end_of_its_block(tmp_path: Path) -> None:
    """Under SYNC_FLUSH a write ends with its block or its segment, so that no block is read first."""
    with opened(tmp_path, sync=True) as it:
        for request in it.store._parts._allocator._requests.values():
            request.made.result(timeout=WAIT_LIMIT_S)
        appends = [message(b"x" * 300, queue_id=number % 2) for number in range(7)]
        for append in appends:
            it.put(append)
        writes = [(begin, size) for path, begin, size in it.disk.writes if "commitlog" in path]
        ends = [begin + size for begin, size in writes if size < SEGMENT_BYTES]  # one write created the segment
        assert len(ends) == len(appends)
        assert all(end % 4096 == 0 or end == SEGMENT_BYTES for end in ends)
        assert [append.physical_offset + append.size for append in appends][-1] == it.store.statistics().log.max_offset


def stored_bytes(root: Path) -> int:
    """Return how many bytes at the beginning of the first segment are written; later blocks are only reserved."""
    with (root / "commitlog" / offset_file_name(0)).open("rb") as file:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE)


@contextmanager
def reserved(root: Path, **settings: Any) -> Iterator[Opened]:
    """Yield a SYNC_FLUSH store whose first segment has no zero fill."""
    with opened(root, sync=True, mapped_file_size_commit_log=LOG, **settings) as it:
        for request in it.store._parts._allocator._requests.values():
            request.wanted.set()
            fd = request.made.result(timeout=WAIT_LIMIT_S)
            os.ftruncate(fd, 0)
            os.posix_fallocate(fd, 0, LOG)
        yield it


def test_a_batch_in_reserved_blocks_writes_a_stretch_of_zeros(tmp_path: Path) -> None:
    """Under SYNC_FLUSH a batch that passes the written blocks adds zeros up to the end of a stretch. Later batches in
    that stretch add none, nor do batches after a restart."""
    with reserved(tmp_path) as it:
        assert stored_bytes(tmp_path) == 0
        it.put(message(b"x" * 100_000))
        it.put(message(b"x" * 100_000))
        assert stored_bytes(tmp_path) == STRETCH
        it.put(message(b"x" * 100_000))
        assert stored_bytes(tmp_path) == 2 * STRETCH
        end = it.store.statistics().log.max_offset
        assert not any((tmp_path / "commitlog" / offset_file_name(0)).read_bytes()[end:])
    with opened(tmp_path, sync=True, mapped_file_size_commit_log=LOG) as it:
        it.put(message(b"x" * 100_000))
        assert len([path for path, *_ in it.disk.writes if path.endswith("/" + "0" * 20)]) == 1
        (rolled,) = it.put(message(b"x" * 700_000))
        assert rolled.physical_offset == LOG


def test_a_failed_zero_fill_rolls_back_its_batch(tmp_path: Path) -> None:
    """The zeros are part of the batch's write: if they fail, the batch is rolled back."""
    with reserved(tmp_path) as it:
        writes = iter(range(2))

        def refuse(call: str, path: str) -> None:
            if call == "pwrite" and path.endswith("/" + "0" * 20) and next(writes, None) == 1:
                raise OSError(errno.EIO, "injected")

        it.disk.refuse = refuse
        (lost,) = it.put(message(b"lost"))
        (kept,) = it.put(message(b"kept" * 2_000))
        assert (lost.status, kept.physical_offset, kept.queue_offset) == (PutStatus.UNKNOWN_ERROR, 0, 0)
        assert stored_bytes(tmp_path) == STRETCH


def rest(it: Opened, ms: int = IDLE_MS + 1) -> None:
    """Let `ms` milliseconds pass without an append."""
    it.store.step(it.clock.now_ms)
    it.clock.now_ms += ms
    it.store.step(it.clock.now_ms)


def wait_stored(root: Path, size: int) -> None:
    until_s = time.monotonic() + WAIT_LIMIT_S
    while stored_bytes(root) < size:
        assert time.monotonic() < until_s, stored_bytes(root)
        time.sleep(0.005)


def log_writes(it: Opened) -> list[tuple[int, int]]:
    """Return position and size of each write to the log."""
    return [(at, size) for path, at, size in it.disk.writes if "/commitlog/" in path]


def bodies_of(it: Opened) -> list[bytes]:
    """Return all bodies once they are on disk."""
    until_s = time.monotonic() + WAIT_LIMIT_S
    while not it.store.flush.is_settled():
        assert time.monotonic() < until_s
        it.store.step(it.clock.now_ms)
    return it.bodies()


def is_filling() -> bool:
    return any(thread.name == "skylark-zeros" for thread in threading.enumerate())


class Gate:
    """Stops the fill thread before each write."""

    def __init__(self, it: Opened) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.problem: OSError | None = None
        self._may_sync: Callable[[], bool] = lambda: True
        it.disk.refuse = self._refuse

    def wait_in_sync_for(self, condition: Callable[[], bool]) -> None:
        """Hold the fill thread between a write and the next one until `condition` is true."""
        self._may_sync = condition

    def _refuse(self, call: str, _path: str) -> None:
        if threading.current_thread().name != "skylark-zeros":
            return
        if call == "fdatasync":
            until_s = time.monotonic() + WAIT_LIMIT_S
            while not self._may_sync():
                assert time.monotonic() < until_s
                time.sleep(0.001)
        if call == "pwrite":
            self.reached.set()
            assert self.opened.wait(WAIT_LIMIT_S)
            if self.problem is not None:
                raise self.problem


def test_an_idle_log_is_filled_to_the_end_of_its_segment(tmp_path: Path) -> None:
    """Later batches write no more zeros, and all messages are intact."""
    with reserved(tmp_path) as it:
        it.put(message(b"first"))
        rest(it)
        wait_stored(tmp_path, LOG)
        del it.disk.writes[:]
        it.put(*(message(b"x" * 100_000) for _ in range(3)))
        assert len(log_writes(it)) == 1
        assert bodies_of(it) == [b"first", *[b"x" * 100_000] * 3]
        end = it.store.statistics().log.max_offset
        assert not any((tmp_path / "commitlog" / offset_file_name(0)).read_bytes()[end:])


def test_occasional_appends_prevent_the_idle_fill(tmp_path: Path) -> None:
    """Half a second without an append is not enough, nor is a second with one."""
    with reserved(tmp_path) as it:
        for _ in range(3):
            it.put(message())
            rest(it, IDLE_MS - 1)
        assert (is_filling(), stored_bytes(tmp_path)) == (False, STRETCH)


def test_a_batch_waits_for_at_most_one_stretch(tmp_path: Path) -> None:
    """The thread finishes its current stretch and writes no zeros over later records."""
    with reserved(tmp_path) as it:
        it.put(message(b"first"))
        gate = Gate(it)
        rest(it)
        assert gate.reached.wait(WAIT_LIMIT_S)
        idle = it.store._log._zeros._idle
        gate.wait_in_sync_for(lambda: idle is not None and idle._is_stopped)
        bodies = [bytes([number]) * 100_000 for number in range(7)]
        threading.Timer(0.2, gate.opened.set).start()
        it.put(*(message(body) for body in bodies))
        assert [at for at, size in log_writes(it) if size == STRETCH] == [STRETCH]
        assert bodies_of(it) == [b"first", *bodies]
    with opened(tmp_path, sync=True, mapped_file_size_commit_log=LOG) as it:
        assert it.bodies() == [b"first", *bodies]
        assert not is_filling()


def test_the_idle_fill_stops_at_a_roll(tmp_path: Path) -> None:
    """A batch that rolls ends the segment with a blank, and no zeros are written after it."""
    with reserved(tmp_path) as it:
        it.put(message(b"x" * 100_000))
        gate = Gate(it)
        rest(it)
        assert gate.reached.wait(WAIT_LIMIT_S)
        gate.opened.set()
        bodies = [bytes([number]) * 400_000 for number in range(6)]
        for body in bodies:
            it.put(message(body))
        assert bodies_of(it) == [b"x" * 100_000, *bodies]


def test_a_failed_idle_fill_is_retried_after_the_next_append(tmp_path: Path) -> None:
    """The store continues without the zeros and tries again after the next append."""
    with reserved(tmp_path) as it:
        it.put(message(b"first"))
        gate = Gate(it)
        gate.problem = OSError(errno.EIO, "injected")
        gate.opened.set()
        rest(it)
        assert gate.reached.wait(WAIT_LIMIT_S)
        it.put(message(b"kept"))
        assert bodies_of(it) == [b"first", b"kept"]
        assert it.store.is_writable
        gate.problem = None
        rest(it)
        wait_stored(tmp_path, LOG)
        assert bodies_of(it) == [b"first", b"kept"]


def test_close_ends_the_fill_thread(tmp_path: Path) -> None:
    """After the close no thread writes to the directory, and no descriptor stays open."""
    with reserved(tmp_path) as it:
        it.put(message())
        gate = Gate(it)
        rest(it)
        assert gate.reached.wait(WAIT_LIMIT_S)
        threading.Timer(0.05, gate.opened.set).start()
    assert not is_filling()
    names = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink() and entry.exists()]
    assert not [name for name in names if str(tmp_path) in name]
