"""The flusher: makes written bytes durable, in a thread that never waits for the event loop.

The loop submits a `Target`: an end, and the files that must be synced for it. The thread takes the newest target, syncs
its files, and only then publishes it as `done`, signaled by an eventfd that the loop watches. The target is read
*before* the sync, so bytes written meanwhile belong to the next target. One sync thus serves all commits that arrived
during the previous sync (group commit), and no commit is acknowledged by a sync that did not cover it.

Eager (SYNC_FLUSH): a submit wakes the thread. Paced (ASYNC_FLUSH): the thread runs every `interval_ms`, or at each
submit if the pace allows that. It skips a round with fewer than `least_pages` dirty pages, unless
`thorough_interval_ms` have passed since the last round with a sync.

After one failed sync the kernel counts the lost pages as clean, so another sync would succeed without meaning. The
thread therefore ends, `failure` holds the error, and the store becomes read-only. Source: docs/reference/disk.md,
"Flush".
"""

import logging
import os
import select
import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from skylarkmq.broker.store.files.disk import NO_DESCRIPTORS

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 4096
_OPEN_TRIES: Final = 100
_OPEN_PAUSE_S: Final = 0.1


class Syncable(Protocol):
    """A file for the flusher."""

    def sync(self) -> None:
        """Make everything written before the call durable. After an OSError the state is unknown."""


class Target(msgspec.Struct, frozen=True):
    """`end` is durable once `files` are synced. `timestamp` (ms) is the store time of the newest message below
    `end`."""

    end: int
    timestamp: int
    files: Sequence[Syncable]


class Pace(msgspec.Struct, frozen=True):
    """When a paced flusher syncs, in milliseconds and pages of 4 KiB. `is_woken`: a submit ends the interval."""

    interval_ms: int
    least_pages: int = 0
    thorough_interval_ms: int = 0
    is_woken: bool = False


class FlusherStatistics(msgspec.Struct, frozen=True):
    """`lag`: bytes submitted and not yet durable."""

    syncs: int
    lag: int
    failed: bool


class Flusher:
    """One thread for one family of files. `pace` None: an eager flusher."""

    def __init__(self, name: str, durable: int = 0, pace: Pace | None = None) -> None:
        self._name = name
        self._pace = pace
        self._is_woken = pace is None or pace.is_woken
        self._submitted = self.done = Target(durable, 0, ())
        self.failure: OSError | None = None
        self.sync_s = 0.0
        """Duration of the last sync, including delays of the thread after it."""
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # readable: `done` or `failure` changed
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | (os.EFD_NONBLOCK if pace else 0))
        self._stopping = False
        self._is_urgent = False
        self._is_asleep = pace is not None  # an eager thread updates this, which saves wake-ups while it runs
        self._syncs = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name=f"skylark-{self._name}", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted is durable."""
        return self.done is self._submitted

    def set_pace(self, pace: Pace) -> None:
        """Change the pace, from the next round on. An eager flusher stays eager."""
        if self._pace is not None:
            self._pace = pace
            self._is_woken = pace.is_woken

    def submit(self, target: Target) -> None:
        """Request a sync of this target. It replaces a target that the thread has not taken, so it must cover that."""
        self._submitted = target
        if self._is_woken and self._is_asleep:
            os.eventfd_write(self._wake_fd, 1)

    def sync_here(self, target: Target) -> bool:
        """Sync this target in the caller's thread. Return whether it is durable. Only while `is_idle`."""
        self._submitted = target  # first: if the thread reads it now, it syncs once more, which is harmless
        is_synced = self._is_synced(target)
        if is_synced:
            self._syncs += 1
            self.done = target
        return is_synced

    def expedite(self) -> None:
        """Make a paced flusher sync at once, however little there is, because a caller waits for it."""
        self._is_urgent = True
        os.eventfd_write(self._wake_fd, 1)

    def keep_spinning(self, limit_us: int) -> None:
        """Spin up to `limit_us` for the next target instead of sleeping. Only the compiled flusher does."""

    def acknowledge(self) -> None:
        """Reset `event_fd`: it becomes readable again at the next announcement."""
        _drain(self.event_fd)

    def wait_idle(self) -> None:
        """Wait until everything submitted is durable, or the thread has failed. Only for a stop."""
        announced = select.poll()  # `select` refuses descriptors from 1024 on
        announced.register(self.event_fd, select.POLLIN)
        while not self.is_idle and self.failure is None and self._thread is not None:
            announced.poll()
            self.acknowledge()

    def stop(self) -> None:
        """Sync everything submitted and end the thread. `done` and `failure` are final afterwards."""
        self._stopping = True
        os.eventfd_write(self._wake_fd, 1)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Stop, and close the descriptors."""
        self.stop()
        os.close(self._wake_fd)
        os.close(self.event_fd)

    def statistics(self) -> FlusherStatistics:
        """Counts since the start."""
        return FlusherStatistics(self._syncs, self._submitted.end - self.done.end, self.failure is not None)

    # the thread

    def _run(self) -> None:
        if self._pace is None:
            self._run_eagerly()
        else:
            self._run_paced(self._pace)

    def _run_eagerly(self) -> None:
        while self.failure is None:
            stopping = self._stopping
            target = self._submitted
            if target is not self.done:
                self._sync(target)
            elif stopping:
                return
            else:
                self._sleep(target)

    def _sleep(self, target: Target) -> None:
        self._is_asleep = True
        if self._submitted is target and not self._stopping:
            os.eventfd_read(self._wake_fd)  # one call, and one wait for the interpreter, less than a poll
        self._is_asleep = False

    def _run_paced(self, pace: Pace) -> None:
        waiter = select.poll()
        waiter.register(self._wake_fd, select.POLLIN)
        synced_at = time.monotonic_ns()
        while self.failure is None:
            stopping = self._stopping
            urgent, self._is_urgent = self._is_urgent, False
            target = self._submitted
            age_ms = (time.monotonic_ns() - synced_at) // 1_000_000
            if target is not self.done and (stopping or urgent or self._is_due(target, age_ms)):
                self._sync(target)
                synced_at = time.monotonic_ns()
            if stopping:
                return
            pace = self._pace or pace
            waiter.poll(pace.interval_ms)
            _drain(self._wake_fd)

    def _is_due(self, target: Target, age_ms: int) -> bool:
        pace = self._pace
        if pace is None:
            return True
        pages = target.end // PAGE_BYTES - self.done.end // PAGE_BYTES
        return pages >= pace.least_pages or age_ms >= pace.thorough_interval_ms

    def _sync(self, target: Target) -> None:
        if self._is_synced(target):
            self._publish(target)

    def _is_synced(self, target: Target) -> bool:
        begun_s = time.monotonic()
        try:
            for file in target.files:
                _sync(file)
        except OSError as problem:
            self._fail(problem)
            return False
        self.sync_s = time.monotonic() - begun_s
        return True

    def _publish(self, target: Target) -> None:
        self._syncs += 1
        self.done = target
        os.eventfd_write(self.event_fd, 1)

    def _fail(self, problem: OSError) -> None:
        log.critical("sync failed, no more messages are acknowledged flusher=%s error=%s", self._name, problem)
        self.failure = problem
        os.eventfd_write(self.event_fd, 1)

    def __repr__(self) -> str:
        return f"<Flusher {self._name} durable={self.done.end}>"


def _sync(file: Syncable) -> None:
    """Sync a file. A file that cannot be opened for lack of descriptors has lost no data, so the sync is retried."""
    for _ in range(_OPEN_TRIES):
        try:
            file.sync()
        except OSError as problem:
            if problem.errno not in NO_DESCRIPTORS:
                raise
            log.warning("too many open files, sync waits file=%r", file)
            time.sleep(_OPEN_PAUSE_S)
        else:
            return
    file.sync()


def _drain(fd: int) -> None:
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        pass  # no announcement since
