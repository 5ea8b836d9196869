"""Repeated syncs of one file, by a thread that does not need the interpreter for them.

The submitting thread, which has the interpreter, stores the end of the file. The syncing thread loads it, syncs, stores
it as done afterward, and signals that. All shared values are whole numbers that are loaded and stored atomically and in
order: an end is stored before its timestamp and loaded after it, so a timestamp never belongs to more than is synced;
`is_leaving` is stored before the end in another file, so such an end is never used for this file.

If another submission is expected soon, because one producer waits for each sync (`keep_spinning`), the thread spins for
a while instead of sleeping: a wake-up takes half as long as a sync. It yields the CPU to other threads meanwhile.

The pure-Python version, which also documents the use of this module, is broker/store/flush/flusher.py.
"""

import cython
from cython.cimports.libc.errno import EINTR, errno
from cython.cimports.libc.stdint import uint64_t
from cython.cimports.posix.time import CLOCK_MONOTONIC, clock_gettime, timespec
from cython.cimports.posix.unistd import fdatasync, read, write


@cython.final
@cython.cclass
class Syncs:
    """`wake_fd` is a blocking eventfd that wakes the thread, `event_fd` is the eventfd that signals a finished sync.

    Everything below `end` is durable already.
    """

    wake_fd = cython.declare(cython.int)
    event_fd = cython.declare(cython.int)
    fd = cython.declare(cython.int)
    submitted_end = cython.declare(cython.longlong)
    submitted_timestamp = cython.declare(cython.longlong)
    done_end = cython.declare(cython.longlong)
    done_timestamp = cython.declare(cython.longlong)
    is_leaving = cython.declare(cython.longlong)
    is_asleep = cython.declare(cython.longlong)
    awake_ns = cython.declare(cython.longlong)
    syncs = cython.declare(cython.longlong)
    took_ns = cython.declare(cython.longlong)

    def __init__(self, wake_fd: cython.int, event_fd: cython.int, end: cython.longlong):
        self.wake_fd = wake_fd
        self.event_fd = event_fd
        self.fd = -1
        self.submitted_end = self.done_end = end
        self.submitted_timestamp = self.done_timestamp = 0
        self.is_leaving = self.is_asleep = self.awake_ns = 0
        self.syncs = self.took_ns = 0

    def submit(self, end: cython.longlong, timestamp: cython.longlong, fd: cython.int):
        """Request a sync of everything below `end`; `fd` -1: that takes more than a sync of one file."""
        if fd != self.fd:
            atomic_write(cython.address(self.is_leaving), 1)
        atomic_write(cython.address(self.awake_ns), 0)
        atomic_write(cython.address(self.submitted_end), end)
        atomic_write(cython.address(self.submitted_timestamp), timestamp)
        if atomic_read(cython.address(self.is_asleep)):
            signal_eventfd(self.wake_fd)

    def keep_spinning(self, limit_us: cython.longlong):
        """Spin for up to `limit_us` after the last submitted sync before the thread sleeps."""
        atomic_write(cython.address(self.awake_ns), limit_us * 1000)

    def interrupt(self):
        """Make `run` return."""
        atomic_write(cython.address(self.is_leaving), 1)
        signal_eventfd(self.wake_fd)

    def set_file(self, fd: cython.int):
        """Make `run` sync this file from now on."""
        self.fd = fd
        atomic_write(cython.address(self.is_leaving), 0)

    def run(self) -> int:
        """Sync what is submitted until `interrupt` or another file; return 0, or the errno of a failed sync, which
        is the last one then."""
        problem: cython.int
        with cython.nogil:
            problem = self.sync_until_interrupted()
        return problem

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def sync_until_interrupted(self) -> cython.int:
        end: cython.longlong
        timestamp: cython.longlong
        begun_ns: cython.longlong
        while True:
            timestamp = atomic_read(cython.address(self.submitted_timestamp))
            end = atomic_read(cython.address(self.submitted_end))
            if atomic_read(cython.address(self.is_leaving)):
                return 0
            if end <= self.done_end:  # below it: another thread has synced an end that `submit` is about to store
                if not self.spin_for_submission(end):
                    self.sleep(end)
                continue
            begun_ns = now_ns()
            while fdatasync(self.fd) != 0:
                if errno != EINTR:
                    return errno
            atomic_write(cython.address(self.took_ns), now_ns() - begun_ns)
            self.publish(end, timestamp)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def spin_for_submission(self, end: cython.longlong) -> cython.bint:
        """Spin for up to `awake_ns` until something is submitted; return whether something was."""
        until: cython.longlong = now_ns() + atomic_read(cython.address(self.awake_ns))
        while now_ns() < until:
            if atomic_read(cython.address(self.submitted_end)) != end or atomic_read(cython.address(self.is_leaving)):
                return True
            sched_yield()
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def sleep(self, end: cython.longlong) -> cython.void:
        count: uint64_t = 0
        atomic_write(cython.address(self.is_asleep), 1)
        if atomic_read(cython.address(self.submitted_end)) == end and not atomic_read(cython.address(self.is_leaving)):
            read(self.wake_fd, cython.address(count), 8)
        atomic_write(cython.address(self.is_asleep), 0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def publish(self, end: cython.longlong, timestamp: cython.longlong) -> cython.void:
        self.syncs += 1
        atomic_write(cython.address(self.done_end), end)
        atomic_write(cython.address(self.done_timestamp), timestamp)
        signal_eventfd(self.event_fd)

    def mark_synced(self, end: cython.longlong, timestamp: cython.longlong):
        """Record that another thread has synced everything below `end`."""
        self.publish(end, timestamp)

    def done(self) -> tuple:
        """Return `(end, timestamp, number of syncs, duration of the last one in ns)`; each value is valid on its
        own."""
        end: cython.longlong = atomic_read(cython.address(self.done_end))
        timestamp: cython.longlong = atomic_read(cython.address(self.done_timestamp))
        return end, timestamp, self.syncs, atomic_read(cython.address(self.took_ns))

    def __repr__(self):
        return f"<Syncs fd={self.fd} done={self.done_end} submitted={self.submitted_end}>"


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def now_ns() -> cython.longlong:
    now: timespec
    clock_gettime(CLOCK_MONOTONIC, cython.address(now))
    return now.tv_sec * 1000000000 + now.tv_nsec


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def signal_eventfd(event_fd: cython.int) -> cython.void:
    one: uint64_t = 1
    while write(event_fd, cython.address(one), 8) < 0 and errno == EINTR:
        pass
