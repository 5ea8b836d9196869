"""Zeros ahead of a SYNC_FLUSH log: which blocks are stored when, and what a failure to write them takes back."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.log.zero_fill import IDLE_MS
from skylarkmq.protocol.disk import offset_file_name
from tests.harness.stores import SEGMENT_BYTES, Opened, message, opened

LIMIT_S = 10.0
LOG = 1 << 20
STRETCH = 256 << 10


def test_a_batch_fills_its_last_block_where_zeros_were_written(tmp_path: Path) -> None:
    """Under SYNC_FLUSH a write ends with its block or its segment, so that no block has to be read before it."""
    with opened(tmp_path, sync=True) as it:
        for request in it.store._allocator._requests.values():
            request.made.result(timeout=10)
        appends = [message(b"x" * 300, queue_id=number % 2) for number in range(7)]
        for append in appends:
            it.put(append)
        writes = [(begin, size) for path, begin, size in it.disk.writes if "commitlog" in path]
        ends = [begin + size for begin, size in writes if size < SEGMENT_BYTES]  # one made the segment
        assert len(ends) == len(appends)
        assert all(end % 4096 == 0 or end == SEGMENT_BYTES for end in ends)
        assert [append.physical_offset + append.size for append in appends][-1] == it.store.statistics().log.max_offset


def stored_bytes(root: Path) -> int:
    """How many bytes at the beginning of the first segment are stored; blocks behind are only reserved."""
    with (root / "commitlog" / offset_file_name(0)).open("rb") as file:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE)


@contextmanager
def reserved(root: Path, **settings: Any) -> Iterator[Opened]:
    """A SYNC_FLUSH store, of whose first segment nothing was written beforehand."""
    with opened(root, sync=True, mapped_file_size_commit_log=LOG, **settings) as it:
        for request in it.store._allocator._requests.values():
            request.wanted.set()
            fd = request.made.result(timeout=10)
            os.ftruncate(fd, 0)
            os.posix_fallocate(fd, 0, LOG)
        yield it


def test_zeros_go_ahead_into_blocks_that_are_only_reserved(tmp_path: Path) -> None:
    """Under SYNC_FLUSH a batch that passes what is stored has zeros behind it up to the end of a stretch; the next ones
    in that stretch have not, nor have those after a restart."""
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


def test_zeros_that_cannot_be_written_take_their_batch_back(tmp_path: Path) -> None:
    """What was to go ahead belongs to the batch's write: if it fails, the batch has never been."""
    with reserved(tmp_path) as it:
        writes = iter(range(2))

        def refuse(call: str, path: str) -> None:
            if call == "pwrite" and path.endswith("/" + "0" * 20) and next(writes, None) == 1:
                raise OSError(errno.EIO, "told to")

        it.disk.refuse = refuse
        (lost,) = it.put(message(b"lost"))
        (kept,) = it.put(message(b"kept" * 2_000))
        assert (lost.status, kept.physical_offset, kept.queue_offset) == (PutStatus.UNKNOWN_ERROR, 0, 0)
        assert stored_bytes(tmp_path) == STRETCH


def rest(it: Opened, ms: int = IDLE_MS + 1) -> None:
    """Nobody appends for so long."""
    it.store.step(it.clock.now_ms)
    it.clock.now_ms += ms
    it.store.step(it.clock.now_ms)


def wait_stored(root: Path, size: int) -> None:
    until_s = time.monotonic() + LIMIT_S
    while stored_bytes(root) < size:
        assert time.monotonic() < until_s, stored_bytes(root)
        time.sleep(0.005)


def log_writes(it: Opened) -> list[tuple[int, int]]:
    """Place and size of each."""
    return [(at, size) for path, at, size in it.disk.writes if "/commitlog/" in path]


def bodies_of(it: Opened) -> list[bytes]:
    """All that were put, once they are on disk."""
    until_s = time.monotonic() + LIMIT_S
    while not it.store.is_settled():
        assert time.monotonic() < until_s
        it.store.step(it.clock.now_ms)
    return it.bodies()


def is_filling() -> bool:
    return any(thread.name == "skylark-zeros" for thread in threading.enumerate())


class Gate:
    """Stops the thread that fills, each time that it is about to write."""

    def __init__(self, it: Opened) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.problem: OSError | None = None
        it.disk.refuse = self._refuse

    def _refuse(self, call: str, _path: str) -> None:
        if call == "pwrite" and threading.current_thread().name == "skylark-zeros":
            self.reached.set()
            assert self.opened.wait(LIMIT_S)
            if self.problem is not None:
                raise self.problem


def test_a_segment_is_filled_while_nobody_appends(tmp_path: Path) -> None:
    """To its end, and no batch takes zeros with it any more; messages are what they were."""
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


def test_who_appends_now_and_then_is_left_alone(tmp_path: Path) -> None:
    """Half a second is not enough, and neither is a second with an append in it."""
    with reserved(tmp_path) as it:
        for _ in range(3):
            it.put(message())
            rest(it, IDLE_MS - 1)
        assert (is_filling(), stored_bytes(tmp_path)) == (False, STRETCH)


def test_a_batch_waits_for_no_more_than_a_stretch(tmp_path: Path) -> None:
    """The thread has written what it was at, and nothing behind that: the records are behind it, and stay."""
    with reserved(tmp_path) as it:
        it.put(message(b"first"))
        gate = Gate(it)
        rest(it)
        assert gate.reached.wait(LIMIT_S)
        threading.Timer(0.05, gate.opened.set).start()
        bodies = [bytes([number]) * 100_000 for number in range(7)]
        it.put(*(message(body) for body in bodies))
        assert [at for at, size in log_writes(it) if size == STRETCH] == [STRETCH]
        assert bodies_of(it) == [b"first", *bodies]
    with opened(tmp_path, sync=True, mapped_file_size_commit_log=LOG) as it:
        assert it.bodies() == [b"first", *bodies]
        assert not is_filling()


def test_a_segment_that_is_left_is_not_filled_on(tmp_path: Path) -> None:
    """A batch that goes on in the next one closes it with a blank, behind which nothing is written."""
    with reserved(tmp_path) as it:
        it.put(message(b"x" * 100_000))
        gate = Gate(it)
        rest(it)
        assert gate.reached.wait(LIMIT_S)
        gate.opened.set()
        bodies = [bytes([number]) * 400_000 for number in range(6)]
        for body in bodies:
            it.put(message(body))
        assert bodies_of(it) == [b"x" * 100_000, *bodies]


def test_zeros_that_cannot_be_written_while_nobody_appends(tmp_path: Path) -> None:
    """They are not missed: the store goes on as if nobody had tried, and tries again after the next append."""
    with reserved(tmp_path) as it:
        it.put(message(b"first"))
        gate = Gate(it)
        gate.problem = OSError(errno.EIO, "told to")
        gate.opened.set()
        rest(it)
        assert gate.reached.wait(LIMIT_S)
        it.put(message(b"kept"))
        assert bodies_of(it) == [b"first", b"kept"]
        assert it.store.is_writable
        gate.problem = None
        rest(it)
        wait_stored(tmp_path, LOG)
        assert bodies_of(it) == [b"first", b"kept"]


def test_a_store_that_closes_ends_the_thread(tmp_path: Path) -> None:
    """Nobody writes to a directory that may be somebody else's by now; no descriptor stays."""
    with reserved(tmp_path) as it:
        it.put(message())
        gate = Gate(it)
        rest(it)
        assert gate.reached.wait(LIMIT_S)
        threading.Timer(0.05, gate.opened.set).start()
    assert not is_filling()
    names = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink() and entry.exists()]
    assert not [name for name in names if str(tmp_path) in name]
