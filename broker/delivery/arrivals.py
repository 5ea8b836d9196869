"""Arrivals: pulls that found nothing and wait for a message, each for as long as its consumer asked.

A pull is parked in the same synchronous step in which the queue was seen to be empty: no message slips in between.
It is woken by the first message of its queue whose tags code or properties it accepts, within the turn of the append,
or at its deadline. Either way it is taken out first and then resumed: it runs once more as a whole and answers,
whatever comes. Properties are read from the log, and only if somebody waits who chooses by them.

    _queues        topic, queue id -> its parked pulls, in the order in which they came: what an arrival looks at
    _connections   connection -> its parked pulls: what goes when a client goes
    _deadlines     time (ms) -> pulls whose wait ends then; _times, a heap, has these times, and one timer stands at the
                   earliest, however many are parked

    _watchers      topic -> who of the broker's own parts hears of all that arrives there

A queue on which nobody waits costs an arrival two lookups. Waits end at multiples of a power of two, up to a 256th of a
wait late: so thousands of idle pulls end some hundred at a time and not one by one, each for a turn of the loop. Pulls
that were woken keep their place there until it is time, or until they are more than half of all. Many that go on
together do so SLICE_PULLS in a turn. A parked pull holds a place in its pool, and memory.

Source: docs/formats.md, "Long polling".
"""

import heapq
from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final, Protocol, TypeVar

import msgspec

from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.connection import Connection

MAX_WAIT_MS: Final = 24 * 3600 * 1000
"""More than any client waits; keeps timers within what an event loop accepts."""
SWEEP_THRESHOLD: Final = 256
SLICE_PULLS: Final = 32
"""Pulls that go on in one turn: about a millisecond."""

_WAIT_PARTS: Final = 256

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
        self.topics: dict[str, int] = {}
        """Topics of which `arrived` has to be told, with the number of queues that are waited for, and of watchers."""
        self._deadlines: dict[int, list[ParkedPull]] = {}
        self._times: list[int] = []
        self._kept = 0  # pulls in `_deadlines`, parked or not
        self._parked = 0
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0
        self._line: deque[ParkedPull] = deque()  # what goes on in the next turns
        self._turn: TimerHandle | None = None
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
        waiting = self._queues.get((pull.topic, pull.queue_id))
        if waiting is None:
            waiting = self._queues[pull.topic, pull.queue_id] = {}
            self.topics[pull.topic] = self.topics.get(pull.topic, 0) + 1
        waiting[pull] = None
        self._connections.setdefault(pull.connection, {})[pull] = None
        self._kept += 1
        due_ms = end_of_wait(self._now_ms(), min(wait_ms, MAX_WAIT_MS))
        together = self._deadlines.get(due_ms)
        if together is not None:
            together.append(pull)
            return
        self._deadlines[due_ms] = [pull]
        heapq.heappush(self._times, due_ms)
        if self._timer is None or due_ms < self._timer_at_ms:
            self._set_timer()

    def watch(self, topic: str, watcher: Watcher) -> None:
        """Tell `watcher` of every arrival in a topic, within its turn; it puts nothing before that has ended."""
        self._watchers[topic] = watcher
        self.topics[topic] = self.topics.get(topic, 0) + 1

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
        for waiting in list(self._queues.values()):
            for pull in list(waiting):
                self._go_on(pull)
        self._deadlines.clear()
        self._times.clear()
        self._kept = 0
        self._line.clear()
        if self._turn is not None:
            self._turn.cancel()
        self._set_timer()

    def _resume(self, pulls: Sequence[ParkedPull]) -> None:
        """Have pulls go on: now, or if they are many, in this turn and the next ones."""
        for pull in pulls[:SLICE_PULLS]:
            self._go_on(pull)
        if len(pulls) > SLICE_PULLS:
            self._line.extend(pulls[SLICE_PULLS:])
            self._have_a_turn()

    def _have_a_turn(self) -> None:
        if self._turn is None:
            self._turn = self._timers.call_at(self._timers.time(), self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        line = self._line
        for _ in range(min(SLICE_PULLS, len(line))):
            self._go_on(line.popleft())
        if line:
            self._have_a_turn()

    def _go_on(self, pull: ParkedPull) -> None:
        if pull.is_parked:
            self._take_out(pull)
            pull.resume()

    def _take_out(self, pull: ParkedPull) -> None:
        pull.is_parked = False
        self._parked -= 1
        self._pool.give_back(pull.size)
        if _remove(self._queues, (pull.topic, pull.queue_id), pull):
            self.topics[pull.topic] -= 1
            if not self.topics[pull.topic]:
                del self.topics[pull.topic]
        _remove(self._connections, pull.connection, pull)
        if self._kept > SWEEP_THRESHOLD + 2 * self._parked:
            self._sweep()

    def _sweep(self) -> None:
        """Forget the deadlines of those that wait no more."""
        left = {time: [pull for pull in pulls if pull.is_parked] for time, pulls in self._deadlines.items()}
        self._deadlines = {time: pulls for time, pulls in left.items() if pulls}
        self._times = sorted(self._deadlines)
        self._kept = sum(map(len, self._deadlines.values()))

    def _now_ms(self) -> float:
        return round(self._timers.time() * 1000, 3)

    def _set_timer(self) -> None:
        """Have `_expire` called when the next waits end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._times:
            self._timer_at_ms = self._times[0]
            self._timer = self._timers.call_at(self._timer_at_ms / 1000, self._expire)

    def _expire(self) -> None:
        now_ms, due = self._now_ms(), []
        while self._times and self._times[0] <= now_ms:
            together = self._deadlines.pop(heapq.heappop(self._times))
            self._kept -= len(together)
            due += [pull for pull in together if pull.is_parked]
        self._expired += len(due)
        self._resume(due)
        self._set_timer()


def end_of_wait(now_ms: float, wait_ms: int) -> int:
    """When a wait that begins now is over, ms: no earlier, and no more than a 256th of it and 1 ms later."""
    step = 1 << max((wait_ms // _WAIT_PARTS).bit_length() - 1, 0)
    return -(-ceil(now_ms + wait_ms) // step) * step


def _accepts(pull: ParkedPull, tags_codes: Sequence[int], max_offset: int) -> bool:
    matches = pull.matches
    if matches is not None:
        return any(map(matches, tags_codes))
    if pull.looks is None or pull.looks(pull.queue_offset, max_offset - pull.queue_offset):
        return True
    pull.queue_offset = max_offset
    return False


def _remove(table: dict[K, dict[ParkedPull, None]], key: K, pull: ParkedPull) -> bool:
    """Take a pull out; whether that was the last one there."""
    pulls = table[key]
    del pulls[pull]
    if not pulls:
        del table[key]
    return not pulls
