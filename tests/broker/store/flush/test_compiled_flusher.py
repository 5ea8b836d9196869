"""The flusher without the interpreter: the same promises as any flusher's, on real files."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.flush import compiled_flusher
from skylarkmq.broker.store.flush.compiled_flusher import CompiledFlusher
from skylarkmq.broker.store.flush.flusher import Target
from skylarkmq.broker.store.log.mapped_file import MappedFile

pytestmark = pytest.mark.skipif(not compiled_flusher.is_available, reason="its leaf is not built")

SIZE = 4096
Make = Callable[[int], MappedFile]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes the segment of that number."""
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


def test_targets_become_durable_in_their_order(flusher: CompiledFlusher, make: Make) -> None:
    """Each end that was waited for is done, with its timestamp, and nothing beyond it."""
    segment = make(0)
    for end in range(1, 500):
        flusher.submit(Target(end, 1000 + end, [segment]))
        flusher.wait_idle()
        assert (flusher.done.end, flusher.done.timestamp) == (end, 1000 + end)
    assert flusher.statistics().syncs == 499
    assert flusher.statistics().lag == 0


def test_who_is_awaited_is_synced_like_any_other(flusher: CompiledFlusher, make: Make) -> None:
    """Whether the thread is awake when a target comes, or has waited in vain and sleeps, nothing is lost. One that is
    awake may take an end before its timestamp is there; then that is the one before."""
    segment = make(0)
    for end in range(1, 300):
        flusher.submit(Target(end, end, [segment]))
        flusher.keep_spinning((end % 3) * 400)
        flusher.wait_idle()
        assert flusher.done.end == end
        assert flusher.done.timestamp in {end - 1, end}
    assert flusher.statistics().syncs == 299


def test_a_thread_that_is_awake_can_be_stopped(flusher: CompiledFlusher, make: Make) -> None:
    """However long it was to wait."""
    flusher.submit(Target(1, 1, [make(0)]))
    flusher.keep_spinning(60_000_000)
    flusher.wait_idle()
    flusher.stop()
    assert flusher.done.end == 1


def test_newest_target_wins(flusher: CompiledFlusher, make: Make) -> None:
    """However fast targets come, the last one gets done, with no more syncs than targets."""
    segment = make(0)
    for end in range(1, 2000):
        flusher.submit(Target(end, end, [segment]))
    flusher.wait_idle()
    assert flusher.done.end == 1999
    assert flusher.statistics().syncs <= 1999


def test_segments_follow_each_other(flusher: CompiledFlusher, make: Make) -> None:
    """A target that spans segments syncs all of them, and the thread goes on with the last."""
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


def test_failure_is_final(flusher: CompiledFlusher, make: Make) -> None:
    """After a failed sync nothing becomes durable any more, however often it is asked for."""
    segment = make(0)
    flusher.submit(Target(1, 0, [segment]))
    flusher.wait_idle()
    spoilt, good = segment.fd, make(1)
    reading, writing = os.pipe()
    segment.fd = writing  # which cannot be synced
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


def test_a_deleted_segment_fails_nobody(flusher: CompiledFlusher, make: Make) -> None:
    """Of a segment that is deleted nothing needs to last."""
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


def test_close_syncs_what_was_submitted(flusher: CompiledFlusher, make: Make) -> None:
    """A stop does what was submitted, and is the end of the thread."""
    segment = make(0)
    for end in range(1, 100):
        flusher.submit(Target(end, 0, [segment]))
    flusher.stop()
    assert flusher.done.end == 99
    assert flusher.is_idle


def test_a_thread_that_has_nothing_to_do_ends(flusher: CompiledFlusher) -> None:
    """A stop without any target waits for nothing."""
    flusher.stop()
    assert flusher.failure is None
