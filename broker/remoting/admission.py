"""Admission: limits on the unanswered requests of each kind, and refusal of those above the limits.

A pool is a budget, not a set of threads. It counts the requests that were admitted and have no response yet (they wait
for a flush, a disk or a message), the memory that they retain, and how long requests waited before they were
dispatched. A request whose processor returns a response at once is never counted; a processor that defers its response
counts the request until the response is written. A request above the budget is refused with SYSTEM_BUSY before
anything was done for it, so a stored message never gets that response.

    too many requests or bytes      [OVERLOAD]             at once
    waited too long before the read [TIMEOUT_CLEAN_QUEUE]  when it is dispatched; [PCBUSY_CLEAN_QUEUE] if it waited
                                                           longer than `stall_ms`, as only a stalled disk causes
    pool suspended                  [OVERLOAD]...          when it has waited too long

A pool is suspended while more requests would make matters worse: sends, while too much is written and not flushed.
Requests that were already read are deferred until the pool resumes. They are then served in order of arrival. A request
that was deferred for `wait_ms` is refused. If `wait_ms` is None, no request is refused for waiting.

In the usual case one comparison admits a request, `pending < admit_limit`: `admit_limit` is the capacity, or NONE while
another condition has to be checked first.

Source: docs/reference/behaviour.md, "Flow control".
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.remoting.request_source import PausableSource
from skylarkmq.protocol.command import RemotingCommand

NONE: Final = -1
OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"
WAITED: Final = "[{cause}]broker busy, start flow control for a while, period in queue: {ms}ms, size of queue: {size}"
TIMEOUT: Final = "TIMEOUT_CLEAN_QUEUE"
STALLED: Final = "PCBUSY_CLEAN_QUEUE"
BARE_REQUEST_BYTES: Final = 1200
"""Memory of a waiting request without its fields and its body, measured with parked pulls."""


class PoolLimits(msgspec.Struct, frozen=True):
    """Limits of a pool besides the number of requests; None: no limit."""

    max_bytes: int = 48 * 1024 * 1024  # a pool without requests admits one of any size
    wait_ms: int | None = None  # requests that waited this long are refused
    stall_ms: int | None = None  # and those that waited this long for a disk


class PoolStatistics(msgspec.Struct, frozen=True):
    """Figures of a pool; counters are totals since the start."""

    name: str
    capacity: int
    pending: int
    rejected: int
    bytes: int = 0
    max_bytes: int = 0
    head_wait_ms: int = 0  # how long the oldest deferred request has waited
    rejected_by_requests: int = 0
    rejected_by_bytes: int = 0
    rejected_by_wait: int = 0


class DeferredRequest(NamedTuple):
    """A request that waits for its pool to resume, with its own copy of the data."""

    source: PausableSource
    command: RemotingCommand
    since_s: float
    size: int


class Pool:
    """A bound on the requests of one kind that wait for a response. Times are in seconds of the event loop's clock."""

    __slots__ = (
        "_bytes",
        "_deferred",
        "_late_ms",
        "_rejected_by_bytes",
        "_rejected_by_requests",
        "_rejected_by_wait",
        "_suspend_reason",
        "admit_limit",
        "capacity",
        "limits",
        "name",
        "pending",
    )

    def __init__(self, name: str, capacity: int, limits: PoolLimits = PoolLimits()) -> None:
        self.name = name
        self.limits = limits
        self.capacity = self.admit_limit = capacity
        self.pending = 0
        self._bytes = 0
        self._late_ms = 0
        self._suspend_reason: Callable[[], str] | None = None
        self._deferred: deque[DeferredRequest] = deque()
        self._rejected_by_requests = 0
        self._rejected_by_bytes = 0
        self._rejected_by_wait = 0

    def __repr__(self) -> str:
        return f"<Pool {self.name} {self.pending}/{self.capacity}>"

    def configure(self, capacity: int, limits: PoolLimits) -> None:
        """Use another budget from now on; admitted requests stay admitted."""
        self.capacity, self.limits = capacity, limits
        self._update_admit_limit()

    def statistics(self, now_s: float = 0.0) -> PoolStatistics:
        """Return the pool's figures at `now_s`."""
        return PoolStatistics(
            name=self.name,
            capacity=self.capacity,
            pending=self.pending,
            rejected=self._rejected_by_requests + self._rejected_by_bytes + self._rejected_by_wait,
            bytes=self._bytes,
            max_bytes=self.limits.max_bytes,
            head_wait_ms=max(int((now_s - self._deferred[0].since_s) * 1000), 0) if self._deferred else 0,
            rejected_by_requests=self._rejected_by_requests,
            rejected_by_bytes=self._rejected_by_bytes,
            rejected_by_wait=self._rejected_by_wait,
        )

    # ---------------------------------------------------------------------------------------------------------- budget

    def take(self, size: int) -> None:
        """Count a request that waits for its response and retains `size` bytes."""
        self.pending += 1
        self._bytes += size
        if self._bytes >= self.limits.max_bytes:
            self.admit_limit = NONE

    def release(self, size: int) -> None:
        """Stop counting a request: its response was written, or its source is closed."""
        self.pending -= 1
        self._bytes -= size
        if self.admit_limit == NONE:
            self._update_admit_limit()

    def refusal(self) -> str | None:
        """Return the remark with which a request that was not admitted is refused; None if it is deferred or admitted
        after all."""
        limits, pending = self.limits, self.pending
        if pending >= self.capacity:
            self._rejected_by_requests += 1
            return OVERLOAD
        if self._bytes >= limits.max_bytes:
            self._rejected_by_bytes += 1
            return f"{OVERLOAD}, {self._reason(f'waiting {self._bytes} bytes, limit {limits.max_bytes}')}"
        if self._late_ms:
            self._rejected_by_wait += 1
            is_stall = limits.stall_ms is not None and self._late_ms >= limits.stall_ms
            return WAITED.format(cause=STALLED if is_stall else TIMEOUT, ms=self._late_ms, size=pending)
        return None

    def _reason(self, usual: str) -> str:
        return usual if self._suspend_reason is None else self._suspend_reason()

    def _update_admit_limit(self) -> None:
        """Set `admit_limit` according to the conditions that admission depends on."""
        is_free = self._bytes < self.limits.max_bytes and not self._late_ms and self._suspend_reason is None
        self.admit_limit = self.capacity if is_free else NONE

    # ---------------------------------------------------------------------------------------------------------- waiting

    @property
    def max_wait_ms(self) -> int | None:
        """Return how many ms requests may wait before dispatch; None if there is no limit."""
        known = [ms for ms in (self.limits.wait_ms, self.limits.stall_ms) if ms is not None]
        return min(known) if known else None

    def note_read_delay(self, waited_ms: int) -> None:
        """Record that the requests dispatched from now on have waited `waited_ms` already; 0 ends this."""
        max_wait_ms = self.max_wait_ms
        self._late_ms = waited_ms if max_wait_ms is not None and waited_ms >= max_wait_ms else 0
        self._update_admit_limit()

    # ------------------------------------------------------------------------------------------------------------- shut

    @property
    def is_suspended(self) -> bool:
        """Return whether incoming requests are deferred."""
        return self._suspend_reason is not None

    def suspend(self, why: Callable[[], str]) -> None:
        """Admit no request until `resume`; `why` returns the reason for refusals of requests that waited too long."""
        self._suspend_reason = why
        self.admit_limit = NONE

    def resume(self) -> Iterator[DeferredRequest]:
        """Admit requests again; yield the deferred ones, which are no longer counted."""
        self._suspend_reason = None
        self._update_admit_limit()
        kept, self._deferred = self._deferred, deque()
        for request in kept:
            self.release(request.size)
            yield request

    def defer(self, source: PausableSource, command: RemotingCommand, now_s: float) -> None:
        """Let a request wait until the pool resumes."""
        size = memory_of(command)
        self.take(size)
        self._deferred.append(DeferredRequest(source, command.detached(), now_s, size))

    @property
    def due_s(self) -> float | None:
        """Return when the oldest deferred request will have waited too long; None: never."""
        wait_ms = self.limits.wait_ms
        return None if wait_ms is None or not self._deferred else self._deferred[0].since_s + wait_ms / 1000

    def take_overdue(self, now_s: float) -> tuple[list[DeferredRequest], str]:
        """Return the requests that have waited too long by `now_s`, and the remark for their responses."""
        requests: list[DeferredRequest] = []
        while (due_s := self.due_s) is not None and due_s <= now_s:
            request = self._deferred.popleft()
            self.release(request.size)
            requests.append(request)
        self._rejected_by_wait += len(requests)
        return requests, f"{OVERLOAD}, {self._reason('waited too long')}" if requests else ""


def memory_of(command: RemotingCommand) -> int:
    """Return the bytes that a waiting request retains; its fields count twice: raw and decoded."""
    return BARE_REQUEST_BYTES + 2 * command.ext_bytes + len(command.body)
