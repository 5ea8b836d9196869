"""Arrivals: pulls that found no message and wait for one, each for as long as its consumer requested.

A pull is parked in the same synchronous step in which its queue was found empty, so no message can arrive in between.
It wakes up at the first message of its queue whose tags code or properties match, within the event-loop iteration of
the append, or at its deadline. In both cases the pull is first removed and then resumed: it runs once more from the
start and sends its response, with or without messages. Properties are read from the log, and only if a waiting pull
filters by properties.

    _queues        topic, queue id -> parked pulls in the order of parking; an arrival checks these
    _sources       source -> its parked pulls, which are removed when the source closes
    _deadlines     time (ms) -> pulls whose wait ends then; `_times` is a heap of these times, and a single timer is set
                   for the earliest one
    _watchers      topic -> a part of the broker that is notified of all arrivals in it

For a queue without a waiting pull an arrival costs two lookups. Waits end at multiples of a power of two, at most a
256th of the wait late. So thousands of idle pulls end a few hundred at a time, and not one per event-loop iteration. A
pull that was woken stays in `_deadlines` until its deadline, or until such pulls are more than half of all. If many
pulls are resumed at once, each iteration resumes SLICE_PULLS of them. A parked pull counts in its request pool, with
its memory.

Source: docs/reference/wire.md, "Long polling".
"""

import heapq
from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, Final, Protocol, TypeVar

import msgspec

from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.request_source import RequestSource

MAX_WAIT_MS: Final = 24 * 3600 * 1000
"""Longer than any client waits, and within the range of an event loop's timers."""
SWEEP_THRESHOLD: Final = 256
SLICE_PULLS: Final = 32
"""Pulls that are resumed per event-loop iteration, which takes about a millisecond."""

_WAIT_PARTS: Final = 256

K = TypeVar("K")

Watcher = Callable[[int, int, Sequence[int]], None]
"""`(queue id, new max offset of the queue, tags codes of the new units)`"""


class Timers(Protocol):
    """The methods of an event loop that parked pulls need."""

    def time(self) -> float:
        """Return the seconds of a steady clock."""

    def call_at(self, when: float, callback: Callable[[], Any], /) -> TimerHandle:
        """Call `callback` at `when` (seconds of that clock)."""


class ParkedQuota(Protocol):
    """Counts parked pulls by client (`broker/access/counted_quotas.py`)."""

    def begin_parked(self, parked: Mapping[RequestSource, int]) -> None:
        """Begin to count with these numbers of parked pulls."""

    def park(self, source: RequestSource) -> None:
        """Count a pull that is about to be parked. Raises RequestError if its client has too many."""

    def unpark(self, source: RequestSource) -> None:
        """Stop counting a parked pull."""


class ParkedPull(msgspec.Struct, eq=False):
    """A waiting pull of `queue_offset`; `matches` tests tags codes, None accepts every message.

    A pull that filters by properties has `has_wanted` instead. It is called with the first offset and the number of
    messages to test. If none matches, `queue_offset` moves past them.
    """

    source: RequestSource
    topic: str
    queue_id: int
    queue_offset: int
    matches: Callable[[int], bool] | None
    resume: Callable[[], None]
    size: int = 0  # bytes of memory
    has_wanted: Callable[[int, int], bool] | None = None
    is_parked: bool = False
    group: str = ""


class ArrivalsStatistics(msgspec.Struct, frozen=True):
    """Parked pulls, and their queues; the others are totals since the start."""

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
        self._sources: dict[RequestSource, dict[ParkedPull, None]] = {}
        self._watchers: dict[str, Watcher] = {}
        self.topics: dict[str, int] = {}
        """Topics for which `arrived` must be called; the value counts the queues with waiting pulls, and watchers."""
        self._deadlines: dict[int, list[ParkedPull]] = {}
        self._times: list[int] = []
        self._kept = 0  # pulls in `_deadlines`, parked or not
        self._parked = 0
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0
        self._wait_queue: deque[ParkedPull] = deque()  # resumed in the next iterations
        self._iteration: TimerHandle | None = None
        self._woken = 0
        self._expired = 0
        self._dropped = 0
        self._quota: ParkedQuota | None = None
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<Arrivals parked={self._parked} queues={len(self._queues)}>"

    def statistics(self) -> ArrivalsStatistics:
        """Return the current figures."""
        return ArrivalsStatistics(
            parked=self._parked,
            queues=len(self._queues),
            woken=self._woken,
            expired=self._expired,
            dropped=self._dropped,
        )

    def park(self, pull: ParkedPull, wait_ms: int) -> None:
        """Park `pull` for up to `wait_ms`. Raises RequestError if a quota does not permit it."""
        if self._quota is not None:
            self._quota.park(pull.source)
        pull.is_parked = True
        self._parked += 1
        self._pool.take(pull.size)
        waiting = self._queues.get((pull.topic, pull.queue_id))
        if waiting is None:
            waiting = self._queues[pull.topic, pull.queue_id] = {}
            self.topics[pull.topic] = self.topics.get(pull.topic, 0) + 1
        waiting[pull] = None
        self._sources.setdefault(pull.source, {})[pull] = None
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

    def limit(self, quota: ParkedQuota | None) -> None:
        """Let `quota` count the parked pulls from now on; None: they are not counted."""
        if quota is not None:
            quota.begin_parked({source: len(pulls) for source, pulls in self._sources.items()})
        self._quota = quota

    def watch(self, topic: str, watcher: Watcher) -> None:
        """Call `watcher` for every arrival in a topic, in the same iteration, in which it must not put messages."""
        self._watchers[topic] = watcher
        self.topics[topic] = self.topics.get(topic, 0) + 1

    def arrived(self, topic: str, queue_id: int, max_offset: int, tags_codes: Sequence[int]) -> None:
        """Wake the pulls that match new messages with these tags codes, in a queue that now ends at `max_offset`."""
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
        """Resume the pulls of a group in a queue, for a reason other than a message."""
        wanted = [pull for pull in self._queues.get((topic, queue_id), ()) if pull.group == group]
        self._woken += len(wanted)
        self._resume(wanted)

    def forget(self, source: RequestSource) -> None:
        """Drop the pulls of a closed source, without a response."""
        dropped = list(self._sources.get(source, ()))
        self._dropped += len(dropped)
        for pull in dropped:
            self._remove(pull)

    def close(self) -> None:
        """Resume every pull, so that its response is written before the broker stops, and park no more."""
        self.is_closed = True
        for waiting in list(self._queues.values()):
            for pull in list(waiting):
                self._resume_one(pull)
        self._deadlines.clear()
        self._times.clear()
        self._kept = 0
        self._wait_queue.clear()
        if self._iteration is not None:
            self._iteration.cancel()
        self._set_timer()

    def _resume(self, pulls: Sequence[ParkedPull]) -> None:
        """Resume pulls: the first SLICE_PULLS now, the others in the next iterations."""
        for pull in pulls[:SLICE_PULLS]:
            self._resume_one(pull)
        if len(pulls) > SLICE_PULLS:
            self._wait_queue.extend(pulls[SLICE_PULLS:])
            self._schedule()

    def _schedule(self) -> None:
        if self._iteration is None:
            self._iteration = self._timers.call_at(self._timers.time(), self._resume_slice)

    def _resume_slice(self) -> None:
        self._iteration = None
        waiting = self._wait_queue
        for _ in range(min(SLICE_PULLS, len(waiting))):
            self._resume_one(waiting.popleft())
        if waiting:
            self._schedule()

    def _resume_one(self, pull: ParkedPull) -> None:
        if pull.is_parked:
            self._remove(pull)
            pull.resume()

    def _remove(self, pull: ParkedPull) -> None:
        pull.is_parked = False
        self._parked -= 1
        self._pool.release(pull.size)
        if self._quota is not None:
            self._quota.unpark(pull.source)
        if _discard(self._queues, (pull.topic, pull.queue_id), pull):
            self.topics[pull.topic] -= 1
            if not self.topics[pull.topic]:
                del self.topics[pull.topic]
        _discard(self._sources, pull.source, pull)
        if self._kept > SWEEP_THRESHOLD + 2 * self._parked:
            self._sweep()

    def _sweep(self) -> None:
        """Remove the deadlines of pulls that no longer wait."""
        left = {time: [pull for pull in pulls if pull.is_parked] for time, pulls in self._deadlines.items()}
        self._deadlines = {time: pulls for time, pulls in left.items() if pulls}
        self._times = sorted(self._deadlines)
        self._kept = sum(map(len, self._deadlines.values()))

    def _now_ms(self) -> float:
        return round(self._timers.time() * 1000, 3)

    def _set_timer(self) -> None:
        """Set the timer for the next deadline."""
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
    """Return when a wait that begins now ends, ms: not early, and at most a 256th of the wait and 1 ms late."""
    step = 1 << max((wait_ms // _WAIT_PARTS).bit_length() - 1, 0)
    return -(-ceil(now_ms + wait_ms) // step) * step


def _accepts(pull: ParkedPull, tags_codes: Sequence[int], max_offset: int) -> bool:
    matches = pull.matches
    if matches is not None:
        return any(map(matches, tags_codes))
    if pull.has_wanted is None or pull.has_wanted(pull.queue_offset, max_offset - pull.queue_offset):
        return True
    pull.queue_offset = max_offset
    return False


def _discard(table: dict[K, dict[ParkedPull, None]], key: K, pull: ParkedPull) -> bool:
    """Remove a pull from the entry of a key. Returns whether the entry is gone now."""
    pulls = table[key]
    del pulls[pull]
    if not pulls:
        del table[key]
    return not pulls
