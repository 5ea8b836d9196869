"""The compiled flusher: the same guarantees as those of Flusher, on real files."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.flush import compiled_flusher
from skylarkmq.broker.store.flush.compiled_flusher import CompiledFlusher
from skylarkmq.broker.store.flush.flusher import Target

pytestmark = pytest.mark.skipif(not compiled_flusher.is_available, reason="the compiled module is not built")

SIZE = 4096


class UnsyncableFile:
    """A file whose syncs fail."""

    def sync(self) -> None:
        raise OSError(errno.EIO, "no disk")


Make = Callable[[int], MappedFile]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Return a function that creates the segment with a given number."""
    made: list[MappedFile] = []

    def make(number: int) -> MappedFile:
        disk = Disk()
        path = str(tmp_path / f"{number}")
        made.append(MappedFile(path, number * SIZE, SIZE, disk.create(path, SIZE), disk))
        return made[-1]

    yield make
    for segment in made:
        segment.close()


@pytest.fixture
def flusher() -> Iterator[CompiledFlusher]:
    flusher = CompiledFlusher("test")
    flusher.start()
    yield flusher
    flusher.close()


def test_targets_become_durable_in_order(flusher: CompiledFlusher, make: Make) -> None:
    """After each wait exactly the submitted end is durable, with its timestamp."""
    segment = make(0)
    for end in range(1, 500):
        flusher.submit(Target(end, 1000 + end, [segment]))
        flusher.wait_idle()
        assert (flusher.done.end, flusher.done.timestamp) == (end, 1000 + end)
    assert flusher.statistics().syncs == 499
    assert flusher.statistics().lag == 0


def test_a_target_is_synced_before_compiled_code_has_its_end(flusher: CompiledFlusher, make: Make) -> None:
    """The thread may take a target of two files, and sync it, between the two statements of `submit`."""
    segments = [make(0), make(1)]
    flusher._submitted = Target(10, 1, segments)
    flusher._compiled_syncs.interrupt()
    while flusher._compiled_syncs.done()[0] != 10:
        time.sleep(0.001)
    time.sleep(0.05)  # in which the thread would sync no file at all
    flusher._compiled_syncs.submit(10, 1, -1)
    flusher.submit(Target(20, 2, segments[1:]))
    flusher.wait_idle()
    assert (flusher.failure, flusher.done.end) == (None, 20)


def test_targets_are_synced_while_spinning_or_asleep(flusher: CompiledFlusher, make: Make) -> None:
    """No target is lost, whether the thread spins or sleeps. A spinning thread may take an end before its timestamp is
    stored, and then publishes the previous timestamp."""
    segment = make(0)
    for end in range(1, 300):
        flusher.submit(Target(end, end, [segment]))
        flusher.keep_spinning((end % 3) * 400)
        flusher.wait_idle()
        assert flusher.done.end == end
        assert flusher.done.timestamp in {end - 1, end}
    assert flusher.statistics().syncs == 299


def test_a_spinning_thread_can_be_stopped(flusher: CompiledFlusher, make: Make) -> None:
    """A stop does not wait for the spin limit."""
    flusher.submit(Target(1, 1, [make(0)]))
    flusher.keep_spinning(60_000_000)
    flusher.wait_idle()
    flusher.stop()
    assert flusher.done.end == 1


def test_the_newest_target_wins(flusher: CompiledFlusher, make: Make) -> None:
    """However fast targets arrive, the last one becomes durable, with no more syncs than targets."""
    segment = make(0)
    for end in range(1, 2000):
        flusher.submit(Target(end, end, [segment]))
    flusher.wait_idle()
    assert flusher.done.end == 1999
    assert flusher.statistics().syncs <= 1999


def test_targets_that_span_segments(flusher: CompiledFlusher, make: Make) -> None:
    """A target that spans segments syncs all of them, and the thread continues with the last."""
    old, new = make(0), make(1)
    for begin in range(0, 400, 4):
        flusher.submit(Target(begin + 1, 0, [old]))
        flusher.submit(Target(begin + 2, 0, [old, new]))
        flusher.submit(Target(begin + 3, 0, [new]))
        flusher.wait_idle()
        flusher.submit(Target(begin + 4, 0, [new]))
        flusher.wait_idle()
        assert flusher.done.end == begin + 4
        old, new = new, old


def test_a_failure_is_final(flusher: CompiledFlusher, make: Make) -> None:
    """After a failed sync no target becomes durable, however many are submitted."""
    segment = make(0)
    flusher.submit(Target(1, 0, [segment]))
    flusher.wait_idle()
    spoilt, good = segment.fd, make(1)
    reading, writing = os.pipe()
    segment.fd = writing  # a pipe cannot be synced
    flusher.submit(Target(2, 0, [segment]))
    flusher.wait_idle()
    flusher.submit(Target(3, 0, [good]))
    flusher.stop()
    segment.fd = spoilt
    os.close(reading)
    os.close(writing)
    assert flusher.failure is not None
    assert flusher.statistics().failed
    assert flusher.done.end == 1


def test_syncs_of_the_caller_and_of_the_thread_alternate(flusher: CompiledFlusher, make: Make) -> None:
    """Compiled code does not see the syncs of the caller's thread: the next target is durable all the same, once."""
    segment = make(0)
    for end in range(1, 200, 2):
        assert flusher.is_idle
        assert flusher.sync_here(Target(end, end, [segment]))
        assert (flusher.is_idle, flusher.done.end, flusher.done.timestamp) == (True, end, end)
        flusher.submit(Target(end + 1, end + 1, [segment]))
        flusher.wait_idle()
        assert (flusher.done.end, flusher.done.timestamp) == (end + 1, end + 1)
    assert flusher.statistics().syncs == 200


def test_a_failure_in_the_callers_thread_is_final(flusher: CompiledFlusher, make: Make) -> None:
    """The sleeping thread syncs no target that is submitted later."""
    segment = make(0)
    assert flusher.sync_here(Target(1, 0, [segment]))
    assert not flusher.sync_here(Target(2, 0, [UnsyncableFile()]))
    flusher.submit(Target(3, 0, [segment]))
    flusher.stop()
    assert flusher.failure is not None
    assert flusher.done.end == 1


def test_a_deleted_segment_cannot_fail(flusher: CompiledFlusher, make: Make) -> None:
    """A deleted segment needs no durability."""
    segment = make(0)
    reading, writing = os.pipe()
    spoilt, segment.fd = segment.fd, writing
    segment.is_deleted = True
    flusher.submit(Target(1, 0, [segment]))
    flusher.wait_idle()
    segment.fd = spoilt
    os.close(reading)
    os.close(writing)
    assert flusher.failure is None
    assert flusher.done.end == 1


def test_stop_syncs_submitted_targets(flusher: CompiledFlusher, make: Make) -> None:
    """A stop syncs submitted targets and ends the thread."""
    segment = make(0)
    for end in range(1, 100):
        flusher.submit(Target(end, 0, [segment]))
    flusher.stop()
    assert flusher.done.end == 99
    assert flusher.is_idle


def test_stop_without_a_target(flusher: CompiledFlusher) -> None:
    """A stop without any target returns at once."""
    flusher.stop()
    assert flusher.failure is None
