"""Arrivals: pulls that found nothing and wait for a message, each for as long as its consumer asked.

A pull is parked in the same synchronous step in which the queue was seen to be empty: no message slips in between.
It is woken by the first message of its queue whose tags code or properties it accepts, within the turn of the append,
or at its deadline. Either way it is taken out first and then resumed: it runs once more as a whole and answers,
whatever comes. Properties are read from the log, and only if somebody waits who chooses by them.

    _queues        topic, queue id -> its parked pulls, in the order in which they came: what an arrival looks at
    _connections   connection -> its parked pulls: what goes when a client goes
    _deadlines     heap of (deadline, number, pull): one timer stands at the earliest, however many are parked

    _watchers      topic -> who of the broker's own parts hears of all that arrives there

A queue on which nobody waits costs an arrival two lookups. Pulls that were woken stay in the heap until their deadline
comes up, or until they are more than half of it. A parked pull holds a place in its pool, and memory.

Source: docs/formats.md, "Long polling".
"""

import heapq
from asyncio import TimerHandle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from broker.remoting.admission import Pool
from broker.remoting.connection import Connection

MAX_WAIT_MS: Final = 24 * 3600 * 1000
"""More than any client waits; keeps timers within what an event loop accepts."""
SWEEP_THRESHOLD: Final = 256

K = TypeVar("K")

Watcher = Callable[[int, int, Sequence[int]], None]
"""`(queue id, the queue's new max offset, tags codes of the new units)`"""


class Timers(Protocol):
    """What is wanted of an event loop."""

    def time(self) -> float:
        """Seconds of a steady clock."""

    def call_at(self, when: float, callback: Callable[[], Any], /) -> TimerHandle:
        """Call `callback` at that time of the clock."""


class ParkedPull(msgspec.Struct, eq=False):
    """A pull of `queue_offset` that waits; `matches` tests tags codes, None takes every message.

    One that chooses by properties has `looks` instead, which is told the first offset and the number of messages to
    look at; its `queue_offset` moves on behind those that it does not want.
    """

    connection: Connection
    topic: str
    queue_id: int
    queue_offset: int
    matches: Callable[[int], bool] | None
    resume: Callable[[], None]
    size: int = 0  # bytes of memory
    looks: Callable[[int, int], bool] | None = None
    is_parked: bool = False
    group: str = ""


class ArrivalsStatistics(msgspec.Struct, frozen=True):
    """Parked pulls at one moment; the others are totals since the start."""

    parked: int
    queues: int
    woken: int
    expired: int
    dropped: int


class Arrivals:
    """Parked pulls of all queues."""

    def __init__(self, timers: Timers, pool: Pool) -> None:
        self._timers = timers
        self._pool = pool
        self._queues: dict[tuple[str, int], dict[ParkedPull, None]] = {}
        self._connections: dict[Connection, dict[ParkedPull, None]] = {}
        self._watchers: dict[str, Watcher] = {}
        self._deadlines: list[tuple[float, int, ParkedPull]] = []
        self._number = 0
        self._parked = 0
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0
        self._woken = 0
        self._expired = 0
        self._dropped = 0
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<Arrivals parked={self._parked} queues={len(self._queues)}>"

    def statistics(self) -> ArrivalsStatistics:
        """The figures now."""
        return ArrivalsStatistics(
            parked=self._parked,
            queues=len(self._queues),
            woken=self._woken,
            expired=self._expired,
            dropped=self._dropped,
        )

    def park(self, pull: ParkedPull, wait_ms: int) -> None:
        """Let `pull` wait for up to `wait_ms`."""
        pull.is_parked = True
        self._parked += 1
        self._pool.take(pull.size)
        self._queues.setdefault((pull.topic, pull.queue_id), {})[pull] = None
        self._connections.setdefault(pull.connection, {})[pull] = None
        deadline = self._timers.time() + min(wait_ms, MAX_WAIT_MS) / 1000
        self._number += 1
        heapq.heappush(self._deadlines, (deadline, self._number, pull))
        if self._timer is None or deadline < self._timer_at:
            self._set_timer()

    def watch(self, topic: str, watcher: Watcher) -> None:
        """Tell `watcher` of every arrival in a topic, within its turn; it puts nothing before that has ended."""
        self._watchers[topic] = watcher

    def arrived(self, topic: str, queue_id: int, max_offset: int, tags_codes: Sequence[int]) -> None:
        """Messages with these tags codes are new in a queue, which now ends before `max_offset`: wake who wants one."""
        watcher = self._watchers.get(topic)
        if watcher is not None:
            watcher(queue_id, max_offset, tags_codes)
        waiting = self._queues.get((topic, queue_id))
        if waiting is None:
            return
        wanted = [pull for pull in waiting if pull.queue_offset < max_offset and _accepts(pull, tags_codes, max_offset)]
        self._woken += len(wanted)
        self._resume(wanted)

    def wake(self, topic: str, queue_id: int, group: str) -> None:
        """Something else than a message has come for a group in a queue: resume its pulls there."""
        wanted = [pull for pull in self._queues.get((topic, queue_id), ()) if pull.group == group]
        self._woken += len(wanted)
        self._resume(wanted)

    def forget(self, connection: Connection) -> None:
        """A connection is gone, and so are its pulls: nothing is answered."""
        dropped = list(self._connections.get(connection, ()))
        self._dropped += len(dropped)
        for pull in dropped:
            self._take_out(pull)

    def close(self) -> None:
        """Resume every pull, so that it is answered before the broker stops, and have no more parked."""
        self.is_closed = True
        self._resume([pull for waiting in list(self._queues.values()) for pull in waiting])
        self._deadlines.clear()
        self._set_timer()

    def _resume(self, pulls: Iterable[ParkedPull]) -> None:
        for pull in pulls:
            if pull.is_parked:
                self._take_out(pull)
                pull.resume()

    def _take_out(self, pull: ParkedPull) -> None:
        pull.is_parked = False
        self._parked -= 1
        self._pool.give_back(pull.size)
        _remove(self._queues, (pull.topic, pull.queue_id), pull)
        _remove(self._connections, pull.connection, pull)
        if len(self._deadlines) > SWEEP_THRESHOLD + 2 * self._parked:
            self._deadlines = [entry for entry in self._deadlines if entry[2].is_parked]
            heapq.heapify(self._deadlines)

    def _set_timer(self) -> None:
        """Have `_expire` called at the earliest deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines:
            self._timer_at = self._deadlines[0][0]
            self._timer = self._timers.call_at(self._timer_at, self._expire)

    def _expire(self) -> None:
        now = self._timers.time()
        due: list[ParkedPull] = []
        while self._deadlines and (self._deadlines[0][0] <= now or not self._deadlines[0][2].is_parked):
            pull = heapq.heappop(self._deadlines)[2]
            if pull.is_parked:
                due.append(pull)
        self._expired += len(due)
        self._resume(due)
        self._set_timer()


def _accepts(pull: ParkedPull, tags_codes: Sequence[int], max_offset: int) -> bool:
    matches = pull.matches
    if matches is not None:
        return any(map(matches, tags_codes))
    if pull.looks is None or pull.looks(pull.queue_offset, max_offset - pull.queue_offset):
        return True
    pull.queue_offset = max_offset
    return False


def _remove(table: dict[K, dict[ParkedPull, None]], key: K, pull: ParkedPull) -> None:
    pulls = table[key]
    del pulls[pull]
    if not pulls:
        del table[key]
