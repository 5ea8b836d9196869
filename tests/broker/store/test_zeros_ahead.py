"""Zeros ahead of a SYNC_FLUSH log: which blocks are stored when, and what a failure to write them takes back."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.store.append import PutStatus
from protocol.disk import offset_file_name
from tests.harness.stores import SEGMENT_BYTES, Opened, message, opened


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
    with opened(root, sync=True, mapped_file_size_commit_log=1 << 20, **settings) as it:
        for request in it.store._allocator._requests.values():
            request.wanted.set()
            fd = request.made.result(timeout=10)
            os.ftruncate(fd, 0)
            os.posix_fallocate(fd, 0, 1 << 20)
        yield it


def test_zeros_go_ahead_into_blocks_that_are_only_reserved(tmp_path: Path) -> None:
    """Under SYNC_FLUSH a batch that passes what is stored has zeros behind it up to the end of a stretch; the next ones
    in that stretch have not, nor have those after a restart."""
    stretch = 256 << 10
    with reserved(tmp_path) as it:
        assert stored_bytes(tmp_path) == 0
        it.put(message(b"x" * 100_000))
        it.put(message(b"x" * 100_000))
        assert stored_bytes(tmp_path) == stretch
        it.put(message(b"x" * 100_000))
        assert stored_bytes(tmp_path) == 2 * stretch
        end = it.store.statistics().log.max_offset
        assert not any((tmp_path / "commitlog" / offset_file_name(0)).read_bytes()[end:])
    with opened(tmp_path, sync=True, mapped_file_size_commit_log=1 << 20) as it:
        it.put(message(b"x" * 100_000))
        assert len([path for path, *_ in it.disk.writes if path.endswith("/" + "0" * 20)]) == 1
        (rolled,) = it.put(message(b"x" * 700_000))
        assert rolled.physical_offset == 1 << 20


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
        assert stored_bytes(tmp_path) == 256 << 10
