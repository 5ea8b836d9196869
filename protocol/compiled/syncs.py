"""One file synced again and again, by a thread that does not need the interpreter for it.

Whoever submits (one thread, which has the interpreter) stores where the file ends; the syncing thread takes that,
syncs, only then stores it as done, and announces it. All of it is whole numbers, read and stored at once and in order:
an end before its timestamp, read the other way round, so that a timestamp never belongs to more than is synced;
`is_leaving` before the end of a file that is not ours, so that such an end is never taken.

Who is known to submit again soon, because one sender waits for each sync (`stay_awake`), is waited for without sleep,
for a while: to be woken takes half as long as a sync. Whoever else wants the CPU has it meanwhile.

The interpreted way is broker.store.flush.flusher, which also says what is done with it.
"""

import cython
from cython.cimports.libc.errno import EINTR, errno
from cython.cimports.libc.stdint import uint64_t
from cython.cimports.posix.time import CLOCK_MONOTONIC, clock_gettime, timespec
from cython.cimports.posix.unistd import fdatasync, read, write


@cython.final
@cython.cclass
class Syncs:
    """`wake_fd` is a blocking eventfd that ends the thread's sleep, `event_fd` the one that announces.

    Everything below `end` was durable before.
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
        """Have everything below `end` synced; `fd` -1: it takes more than a sync of one file."""
        if fd != self.fd:
            atomic_write(cython.address(self.is_leaving), 1)
        atomic_write(cython.address(self.awake_ns), 0)
        atomic_write(cython.address(self.submitted_end), end)
        atomic_write(cython.address(self.submitted_timestamp), timestamp)
        if atomic_read(cython.address(self.is_asleep)):
            tell(self.wake_fd)

    def stay_awake(self, limit_us: cython.longlong):
        """Behind the sync of what was submitted last, wait so long for more before going to sleep."""
        atomic_write(cython.address(self.awake_ns), limit_us * 1000)

    def leave(self):
        """Have `run` return."""
        atomic_write(cython.address(self.is_leaving), 1)
        tell(self.wake_fd)

    def turn_to(self, fd: cython.int):
        """From now on `run` syncs this file."""
        self.fd = fd
        atomic_write(cython.address(self.is_leaving), 0)

    def run(self) -> int:
        """Sync what is submitted until something else is; an errno if a sync failed, which is the last one then."""
        problem: cython.int
        with cython.nogil:
            problem = self.sync_on()
        return problem

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def sync_on(self) -> cython.int:
        end: cython.longlong
        timestamp: cython.longlong
        begun_ns: cython.longlong
        while True:
            timestamp = atomic_read(cython.address(self.submitted_timestamp))
            end = atomic_read(cython.address(self.submitted_end))
            if atomic_read(cython.address(self.is_leaving)):
                return 0
            if end == self.done_end:
                if not self.comes_soon(end):
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
    def comes_soon(self, end: cython.longlong) -> cython.bint:
        """Wait awake, if that was asked for, until something is submitted; whether it was."""
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
        tell(self.event_fd)

    def synced(self, end: cython.longlong, timestamp: cython.longlong):
        """Somebody else has synced everything below `end`."""
        self.publish(end, timestamp)

    def done(self) -> tuple:
        """`(end, timestamp, number of syncs, how long the last one took in ns)`; each of them is true."""
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
def tell(event_fd: cython.int) -> cython.void:
    one: uint64_t = 1
    while write(event_fd, cython.address(one), 8) < 0 and errno == EINTR:
        pass
