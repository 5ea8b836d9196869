"""Preallocated index files: used when they exist, waited for while they are created, and not required."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.index.index import Index
from skylarkmq.broker.store.index.preallocation import PREALLOCATED_FILE
from skylarkmq.broker.store.index.search import SearchCriteria, run_now
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.log.running_flags import RunningFlags
from skylarkmq.protocol.disk import IndexLayout, index_hash
from tests.broker.store.index.matches import every_one
from tests.harness.stepped_helpers import SteppedCalls
from tests.harness.stores import Clock, TestDisk, message

LAYOUT = IndexLayout(5, 8)
"""Seven keys fill a file."""


class Parts:
    """An index, and the thread that creates its files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = TestDisk()
        self.helper = SteppedCalls()
        self.index = Index(root, LAYOUT, self.disk, Clock(), RunningFlags(lambda: None))
        self._sent = 0

    def add(self, count: int) -> None:
        """Add `count` messages with a key each."""
        appends: list[Append] = []
        for _ in range(count):
            append = message(properties=b"KEYS\x01k%d\x02" % self._sent)
            append.physical_offset = self._sent * 100
            appends.append(append)
            self._sent += 1
        self.index.add(appends)

    @property
    def files(self) -> list[str]:
        """Return all files, in the directory of the index and next to it."""
        directory = self.root / "index"
        inside = sorted(f"index/{one.name}" for one in directory.iterdir()) if directory.exists() else []
        return [one.name for one in self.root.iterdir() if one.is_file()] + inside

    def offsets(self) -> list[list[int]]:
        """Return the physical offsets of all items, file by file."""
        return [[file.item(n)[1] for n in range(1, file.header.next_item)] for file in self.index.files]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    it = Parts(tmp_path)
    yield it
    it.index.close()


def test_a_preallocated_file_is_used(parts: Parts) -> None:
    """It gets the name of an index file; the next one is created once this one is half full."""
    parts.index.preallocate_with(parts.helper)
    parts.helper.shutdown()
    assert parts.files == [PREALLOCATED_FILE]
    parts.add(3)
    parts.index.put_waiting()
    parts.helper.shutdown()
    assert [len(parts.files), parts.files[0][:6]] == [1, "index/"]
    parts.add(2)
    parts.index.put_waiting()
    parts.helper.shutdown()
    assert parts.files[0] == PREALLOCATED_FILE
    parts.add(4)
    parts.index.put_waiting()
    assert parts.offsets() == [[n * 100 for n in range(7)], [700, 800]]
    assert PREALLOCATED_FILE not in parts.files


def test_keys_wait_for_a_file_that_is_being_created(parts: Parts) -> None:
    """They are put as soon as it exists."""
    parts.index.preallocate_with(parts.helper)
    parts.add(2)
    parts.index.put_waiting(at_once=False)
    parts.index.step()
    assert (parts.index.waiting, parts.offsets()) == (2, [])
    parts.helper.shutdown()
    parts.index.step()
    assert (parts.index.waiting, parts.offsets()) == (0, [[0, 100]])


def test_a_search_does_not_wait_for_a_file(parts: Parts) -> None:
    """The file is then created at once, and the preallocated one is used later."""
    parts.index.preallocate_with(parts.helper)
    parts.add(2)
    wanted = SearchCriteria(index_hash("T#k1"), 9, 0, 1 << 62)
    assert run_now(parts.index.search(wanted, lambda fd, path, at, size: os.pread(fd, size, at), every_one)) == [100]
    parts.helper.shutdown()
    assert PREALLOCATED_FILE in parts.files


def test_after_a_failed_preallocation_the_file_is_created_on_demand(parts: Parts) -> None:
    """A temporarily full disk stops nothing."""

    def refuse(call: str, path: str) -> None:
        if call == "create_sparse" and path.endswith(PREALLOCATED_FILE):
            raise OSError(errno.ENOSPC, "no space")

    parts.disk.refuse = refuse
    parts.index.preallocate_with(parts.helper)
    parts.helper.shutdown()
    parts.add(2)
    parts.index.put_waiting(at_once=False)
    assert parts.offsets() == [[0, 100]]


@pytest.mark.parametrize("is_made", [True, False])
def test_an_unused_preallocated_file_is_removed(parts: Parts, is_made: bool) -> None:
    """An unused file is removed at the end, or never created; one of a killed process is replaced."""
    (parts.root / PREALLOCATED_FILE).write_bytes(b"left over")
    parts.index.preallocate_with(parts.helper)
    if is_made:
        parts.helper.shutdown()
        assert (parts.root / PREALLOCATED_FILE).stat().st_size == LAYOUT.size
    parts.index.close()
    assert (PREALLOCATED_FILE in parts.files) is not is_made
