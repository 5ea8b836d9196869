"""The flusher: submitted targets become durable at its pace, and a failure is final."""

import errno
import threading

import pytest

from skylarkmq.broker.store.flush.flusher import Flusher, Pace, Target
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.many_descriptors import many_descriptors


class File:
    """Counts its syncs; each sync waits for `go`."""

    def __init__(self, problem: OSError | None = None) -> None:
        self.problem = problem
        self.syncs = 0
        self.started = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def sync(self) -> None:
        self.started.set()
        assert self.go.wait(WAIT_LIMIT_S)
        self.syncs += 1
        if self.problem is not None:
            raise self.problem


@pytest.fixture
def file() -> File:
    return File()


def test_the_newest_target_wins(file: File) -> None:
    """Targets submitted during a sync share one more sync, that of the newest."""
    flusher = Flusher("test")
    flusher.start()
    file.go.clear()
    flusher.submit(Target(100, 1, [file]))
    assert file.started.wait(WAIT_LIMIT_S)
    for end in range(200, 1000, 100):
        flusher.submit(Target(end, 1, [file]))
    assert flusher.done.end == 0
    assert flusher.statistics().lag == 900
    file.go.set()
    flusher.wait_idle()
    assert (flusher.done.end, file.syncs) == (900, 2)
    flusher.close()


def test_a_failure_is_final(file: File) -> None:
    """After a failed sync no target becomes durable, however many are submitted."""
    flusher = Flusher("test", durable=50)
    flusher.start()
    flusher.submit(Target(100, 1, [File(OSError(errno.EIO, "injected"))]))
    flusher.wait_idle()
    flusher.submit(Target(200, 2, [file]))
    flusher.stop()
    assert flusher.failure is not None
    assert flusher.statistics().failed
    assert (flusher.done.end, file.syncs) == (50, 0)
    flusher.close()


def test_stop_syncs_submitted_targets(file: File) -> None:
    """A stop syncs targets that a slow pace has not reached."""
    flusher = Flusher("test", pace=Pace(60_000, least_pages=4, thorough_interval_ms=600_000))
    flusher.start()
    flusher.submit(Target(1, 1, [file]))
    flusher.stop()
    assert (flusher.done.end, file.syncs) == (1, 1)
    flusher.close()


@pytest.mark.parametrize(
    ("end", "age_ms", "is_due"),
    [(3 * 4096, 0, False), (4 * 4096, 0, True), (1, 9_999, False), (1, 10_000, True)],
)
def test_pace_skips_small_rounds(end: int, age_ms: int, is_due: bool) -> None:
    """A round with less than the least pages is skipped, but not for longer than the thorough interval."""
    flusher = Flusher("test", pace=Pace(500, least_pages=4, thorough_interval_ms=10_000))
    assert flusher._is_due(Target(end, 0, ()), age_ms) is is_due
    flusher.close()


def test_a_paced_flusher_syncs_without_a_wake_up(file: File) -> None:
    """It syncs at every interval."""
    flusher = Flusher("test", pace=Pace(1))
    flusher.start()
    flusher.submit(Target(10, 1, [file]))
    flusher.wait_idle()
    assert flusher.done.end == 10
    flusher.close()


def test_a_stop_works_with_many_open_files(file: File) -> None:
    """A broker with a thousand segments or connections has more than `select` takes."""
    with many_descriptors():
        flusher = Flusher("test")
        flusher.start()
        flusher.submit(Target(10, 1, [file]))
        flusher.wait_idle()
        assert (flusher.done.end, file.syncs) == (10, 1)
        flusher.close()
