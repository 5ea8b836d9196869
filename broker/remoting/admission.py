"""Admission: how much unanswered work of a kind there may be, and who is told to come back later.

A pool is a budget, not threads: requests that were admitted and are not answered yet (they wait for a flush, a disk, a
message), the memory that they keep, and how long requests have waited before they were looked at. What a processor
answers at once never counts; whoever defers an answer takes a place until it is given. A request beyond the budget is
refused with SYSTEM_BUSY before anything was done: what is stored is never answered so.

    too many, or too much memory    [OVERLOAD]             at once
    waited too long, read late      [TIMEOUT_CLEAN_QUEUE]  when it is looked at; after a stall as long as only a disk
                                    [PCBUSY_CLEAN_QUEUE]   makes one
    shut out                        [OVERLOAD]...          when it has waited too long

A pool is shut while its requests would only make matters worse: sends, while the disk is too far behind. What was read
by then is kept and waits for the pool to open; it is done in the order in which it came, or refused when it has waited
for `wait_ms`. Without `wait_ms` nobody is refused for waiting.

One comparison admits in the usual case, `held < places`: `places` is the capacity, or NONE while something else has to
be asked first.

Source: docs/formats.md, "Flow control".
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol.command import RemotingCommand

NONE: Final = -1
OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"
WAITED: Final = "[{cause}]broker busy, start flow control for a while, period in queue: {ms}ms, size of queue: {size}"
TIMEOUT: Final = "TIMEOUT_CLEAN_QUEUE"
STALLED: Final = "PCBUSY_CLEAN_QUEUE"
BARE_REQUEST_BYTES: Final = 1200
"""What a waiting request keeps in memory without its fields and its body, measured with parked pulls."""


class PoolLimits(msgspec.Struct, frozen=True):
    """What a pool's requests may cost besides their number; None: as long as they like."""

    max_bytes: int = 48 * 1024 * 1024  # one request always fits
    wait_ms: int | None = None  # who waited as long is refused
    stall_ms: int | None = None  # and who waited as long as this has waited for a disk


class PoolStatistics(msgspec.Struct, frozen=True):
    """A pool at one moment; counters are totals since the start."""

    name: str
    capacity: int
    held: int
    rejected: int
    bytes: int = 0
    max_bytes: int = 0
    head_wait_ms: int = 0  # how long the first of those that are kept waits
    rejected_by_requests: int = 0
    rejected_by_bytes: int = 0
    rejected_by_wait: int = 0


class Kept(NamedTuple):
    """A request that waits for its pool to open, with memory of its own."""

    connection: Connection
    command: RemotingCommand
    since_s: float
    size: int


class Pool:
    """A bound on the requests of some kind that wait for their answers. Times are of the loop's clock."""

    __slots__ = (
        "_bytes",
        "_kept",
        "_late_ms",
        "_rejected_by_bytes",
        "_rejected_by_requests",
        "_rejected_by_wait",
        "_why_shut",
        "capacity",
        "held",
        "limits",
        "name",
        "places",
    )

    def __init__(self, name: str, capacity: int, limits: PoolLimits = PoolLimits()) -> None:
        self.name = name
        self.limits = limits
        self.capacity = self.places = capacity
        self.held = 0
        self._bytes = 0
        self._late_ms = 0
        self._why_shut: Callable[[], str] | None = None
        self._kept: deque[Kept] = deque()
        self._rejected_by_requests = 0
        self._rejected_by_bytes = 0
        self._rejected_by_wait = 0

    def __repr__(self) -> str:
        return f"<Pool {self.name} {self.held}/{self.capacity}>"

    def configure(self, capacity: int, limits: PoolLimits) -> None:
        """Another budget from now on; who is in stays in."""
        self.capacity, self.limits = capacity, limits
        self._look()

    def statistics(self, now_s: float = 0.0) -> PoolStatistics:
        """The pool's figures at `now_s`."""
        return PoolStatistics(
            name=self.name,
            capacity=self.capacity,
            held=self.held,
            rejected=self._rejected_by_requests + self._rejected_by_bytes + self._rejected_by_wait,
            bytes=self._bytes,
            max_bytes=self.limits.max_bytes,
            head_wait_ms=max(int((now_s - self._kept[0].since_s) * 1000), 0) if self._kept else 0,
            rejected_by_requests=self._rejected_by_requests,
            rejected_by_bytes=self._rejected_by_bytes,
            rejected_by_wait=self._rejected_by_wait,
        )

    # ---------------------------------------------------------------------------------------------------------- budget

    def take(self, size: int) -> None:
        """A request waits for its answer, and keeps `size` bytes meanwhile."""
        self.held += 1
        self._bytes += size
        if self._bytes >= self.limits.max_bytes:
            self.places = NONE

    def give_back(self, size: int) -> None:
        """It was answered, or nobody wants the answer any more."""
        self.held -= 1
        self._bytes -= size
        if self.places == NONE:
            self._look()

    def refusal(self) -> str | None:
        """Why a request that found no place is refused now; None: it is to be kept, or it may come in after all."""
        limits, held = self.limits, self.held
        if held >= self.capacity:
            self._rejected_by_requests += 1
            return OVERLOAD
        if self._bytes >= limits.max_bytes:
            self._rejected_by_bytes += 1
            return f"{OVERLOAD}, {self._reason(f'waiting {self._bytes} bytes, limit {limits.max_bytes}')}"
        if self._late_ms:
            self._rejected_by_wait += 1
            is_stall = limits.stall_ms is not None and self._late_ms >= limits.stall_ms
            return WAITED.format(cause=STALLED if is_stall else TIMEOUT, ms=self._late_ms, size=held)
        return None

    def _reason(self, usual: str) -> str:
        return usual if self._why_shut is None else self._why_shut()

    def _look(self) -> None:
        """Set `places` by what has to be asked."""
        is_free = self._bytes < self.limits.max_bytes and not self._late_ms and self._why_shut is None
        self.places = self.capacity if is_free else NONE

    # ---------------------------------------------------------------------------------------------------------- waiting

    @property
    def patience_ms(self) -> int | None:
        """How long requests may wait before they are looked at; None: for ever."""
        known = [ms for ms in (self.limits.wait_ms, self.limits.stall_ms) if ms is not None]
        return min(known) if known else None

    def read_late(self, waited_ms: int) -> None:
        """What is dispatched now has waited so long already. 0: it has not."""
        patience_ms = self.patience_ms
        self._late_ms = waited_ms if patience_ms is not None and waited_ms >= patience_ms else 0
        self._look()

    # ------------------------------------------------------------------------------------------------------------- shut

    @property
    def is_shut(self) -> bool:
        """Whether what comes is kept."""
        return self._why_shut is not None

    def shut(self, why: Callable[[], str]) -> None:
        """Let nothing in until `open`; `why` is asked when somebody has waited too long."""
        self._why_shut = why
        self.places = NONE

    def open(self) -> Iterator[Kept]:
        """Let requests in again; yields those that were kept, which have left the pool by then."""
        self._why_shut = None
        self._look()
        kept, self._kept = self._kept, deque()
        for request in kept:
            self.give_back(request.size)
            yield request

    def keep(self, connection: Connection, command: RemotingCommand, now_s: float) -> None:
        """Let a request wait for the pool to open."""
        size = memory_of(command)
        self.take(size)
        self._kept.append(Kept(connection, command.detached(), now_s, size))

    @property
    def due_s(self) -> float | None:
        """When the first of those kept will have waited too long; None: never."""
        wait_ms = self.limits.wait_ms
        return None if wait_ms is None or not self._kept else self._kept[0].since_s + wait_ms / 1000

    def overdue(self, now_s: float) -> tuple[list[Kept], str]:
        """Those who have waited too long by `now_s`, and what they are told."""
        requests: list[Kept] = []
        while (due_s := self.due_s) is not None and due_s <= now_s:
            request = self._kept.popleft()
            self.give_back(request.size)
            requests.append(request)
        self._rejected_by_wait += len(requests)
        return requests, f"{OVERLOAD}, {self._reason('waited too long')}" if requests else ""


def memory_of(command: RemotingCommand) -> int:
    """Bytes that a request keeps while it waits; its fields stand there twice, as they came and decoded."""
    return BARE_REQUEST_BYTES + 2 * command.ext_bytes + len(command.body)
