"""Warm-up: only the newest segment is locked in memory; a failure to lock it logs a warning."""

import ctypes
import logging
import mmap
import resource
from pathlib import Path

import numpy as np
import pytest

from skylarkmq.broker.store.files import locked_memory
from tests.harness.stores import SEGMENT_BYTES, message, opened

BIG = b"x" * (SEGMENT_BYTES - 150)


def locked_kib(memory: memoryview) -> int:
    """Return how much of a mapping is locked, according to the kernel."""
    address = np.frombuffer(memory, np.uint8).ctypes.data
    begins = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split(" ", 1)[0]
        if "-" in first and ":" not in first:
            low, high = (int(part, 16) for part in first.split("-"))
            begins = low <= address < high
        elif begins and first == "Locked:":
            return int(line.split()[1])
    raise AssertionError("no such mapping")


def test_the_newest_segment_is_locked(tmp_path: Path) -> None:
    """A segment is locked while it receives appends, and unlocked once the log has switched to the next one."""
    with opened(tmp_path, warm_maped_file_enable=True) as it:
        it.put(message(b"first"))
        warm_up = it.store._parts._allocator._kind
        warm_up._thread.join()  # type: ignore[attr-defined]  # a WarmUp
        (first,) = it.store._log.files.segments
        assert locked_kib(first.view) > 0
        it.put(message(BIG))
        warm_up._thread.join()  # type: ignore[attr-defined]
        first, second = it.store._log.files.segments
        assert locked_kib(first.view) == 0
        assert locked_kib(second.view) > 0
        assert repr(warm_up) == f"<WarmUp locked={SEGMENT_BYTES}>"
        assert it.bodies() == [b"first", BIG]


def test_a_failed_lock_logs_a_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Memory that cannot be locked is used unlocked."""

    class Libc:
        def madvise(self, *_: object) -> int:
            return 0

        def mlock(self, *_: object) -> int:
            ctypes.set_errno(12)
            return -1

    monkeypatch.setattr(locked_memory, "_libc", Libc())
    memory = memoryview(mmap.mmap(-1, mmap.PAGESIZE))
    with caplog.at_level(logging.WARNING):
        assert not locked_memory.lock(memory, "a buffer")
    (record,) = caplog.records
    assert "name=a buffer bytes=4096 error=Cannot allocate memory (see RLIMIT_MEMLOCK)" in record.getMessage()


def test_lock_and_unlock(caplog: pytest.LogCaptureFixture) -> None:
    """Memory within the limit is locked until it is unlocked."""
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] in range(mmap.PAGESIZE):
        pytest.skip("this process may not lock memory")
    memory = memoryview(mmap.mmap(-1, mmap.PAGESIZE))
    assert locked_memory.lock(memory, "a page")
    assert locked_kib(memory) == 4
    locked_memory.unlock(memory)
    assert locked_kib(memory) == 0
    assert not caplog.records
