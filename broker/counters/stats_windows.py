"""Recent growth of the counters of each topic and group: three windows over counters that other modules keep.

    minute   7 samples, 10 s apart        hour   7 samples, 10 min apart        day   25 samples, 1 h apart

A window is the difference between its newest sample and its oldest: a sum, a rate per second, an average per call. A
counter that appears for the first time counts as 0 in the samples before, so that its first minute is included.

A walk over all counters begins every 10 s. Each step processes a part of it, so that no step takes long. The walk
stores the current sum of each counter. It removes a counter that no longer exists (its topic was deleted), and restarts
one that has become smaller. Counters beyond MOST_SERIES are not sampled.

Source: docs/reference/wire.md, "Statistics of topics and groups".
"""

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

import msgspec

log = logging.getLogger(__name__)

MOST_SERIES: Final = 20_000
"""Each takes about 1 KB."""
ROWS_PER_STEP: Final = 200
"""Takes about 0.25 ms; with ten steps a second this is enough for MOST_SERIES."""
SAMPLE_MS: Final = 10_000


class Sums(NamedTuple):
    """Totals of a counter since the start."""

    messages: int
    bytes: int = 0
    calls: int = 0


class Window(NamedTuple):
    """One window: its number of samples, and the number of walks between two of them."""

    samples: int
    walks: int


MINUTE: Final = Window(7, 1)
HOUR: Final = Window(7, 60)
DAY: Final = Window(25, 360)
WINDOWS: Final = (MINUTE, HOUR, DAY)

_WIDTH: Final = len(Sums._fields)
_FIRST_INDEX: Final = {MINUTE: 0, HOUR: MINUTE.samples, DAY: MINUTE.samples + HOUR.samples}
_SAMPLES: Final = sum(window.samples for window in WINDOWS)
_ZEROS: Final = array("q", [0]) * (_SAMPLES * _WIDTH)


class Growth(NamedTuple):
    """The growth of a counter within `elapsed_ms`; 0 ms if there are not two samples yet."""

    sums: Sums
    elapsed_ms: int

    def per_second(self, amount: int) -> float:
        """Return `amount` as a rate."""
        return amount * 1000 / self.elapsed_ms if self.elapsed_ms > 0 else 0.0

    def per_call(self, amount: int) -> float:
        """Return the average of `amount` per call."""
        return amount / self.sums.calls if self.sums.calls > 0 else 0.0


NO_GROWTH: Final = Growth(Sums(0), 0)


class StatsWindowsStatistics(msgspec.Struct, frozen=True):
    """`series`: sampled counters; `walks` since the start; `left_out`: counters not sampled by the last walk."""

    series: int
    walks: int
    left_out: int


class _Series:
    """The samples of one counter; `since`: the walk from which on it counts, `seen`: the last walk that found it."""

    __slots__ = ("samples", "seen", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.seen = since
        self.samples = array("q", _ZEROS)

    def at(self, at: int) -> Sums:
        return Sums(*self.samples[at * _WIDTH : (at + 1) * _WIDTH])


SEPARATOR: Final = "@"

Key = tuple[str, str]
"""The source of a counter, and its name in the source: `topic`, or `topic@group`."""


class StatsWindows:
    """Windows over all counters of `sources`: each source returns an iterable of (name, current totals)."""

    def __init__(self, sources: Mapping[str, Callable[[], Iterable[tuple[str, Sums]]]]) -> None:
        self._sources = sources
        self._series: dict[Key, _Series] = {}
        self._walk: Iterator[tuple[Key, Sums]] | None = None
        self._walks = 0
        self._met = 0  # counters that the current walk has sampled
        self._last = 0  # index of the first sum of the previous walk's sample
        self._indexes: list[int] = []  # the same for the samples of the current walk
        self._times = [0] * _SAMPLES
        self._due_ms = 0
        self._left_out = 0
        self._was_full = False

    def __repr__(self) -> str:
        return f"<StatsWindows series={len(self._series)} walks={self._walks}>"

    def statistics(self) -> StatsWindowsStatistics:
        """Return the current figures."""
        return StatsWindowsStatistics(len(self._series), self._walks, self._left_out)

    # --------------------------------------------------------------------------------------------------------- samples

    def step(self, now_ms: int) -> None:
        """Continue the walk, or begin one that is due. `now_ms` never decreases."""
        if self._walk is None:
            if now_ms < self._due_ms:
                return
            self._begin(now_ms)
        assert self._walk is not None
        rows = list(islice(self._walk, ROWS_PER_STEP))
        for key, sums in rows:
            self._note(key, sums)
        if len(rows) < ROWS_PER_STEP:
            self._end()

    def _begin(self, now_ms: int) -> None:
        self._due_ms = now_ms + SAMPLE_MS
        self._left_out = 0
        self._met = 0
        indexes = _sample_indexes(self._walks)
        self._indexes = [index * _WIDTH for index in indexes]
        self._last = _sample_index(MINUTE, self._walks - 1) * _WIDTH
        for index in indexes:
            self._times[index] = now_ms
        self._walk = self._all_rows()

    def _all_rows(self) -> Iterator[tuple[Key, Sums]]:
        for source, rows in self._sources.items():
            for name, sums in rows():
                yield (source, name), sums

    def _note(self, key: Key, sums: Sums) -> None:
        series = self._series.get(key)
        if series is None or sums[0] < series.samples[self._last]:
            if series is None and len(self._series) >= MOST_SERIES:
                self._left_out += 1
                return
            series = self._series[key] = _Series(self._walks - 1)
        self._met += 1
        series.seen = self._walks
        samples = series.samples
        for index in self._indexes:
            samples[index], samples[index + 1], samples[index + 2] = sums

    def _end(self) -> None:
        self._walk = None
        if self._met != len(self._series):
            for key in [key for key, series in self._series.items() if series.seen != self._walks]:
                del self._series[key]
        self._walks += 1
        if bool(self._left_out) != self._was_full:
            self._was_full = bool(self._left_out)
            if self._was_full:
                log.warning("statistics are not kept for all series=%d left_out=%d", MOST_SERIES, self._left_out)

    # --------------------------------------------------------------------------------------------------------- windows

    def growth(self, source: str, name: str, window: Window = MINUTE) -> Growth | None:
        """Return the growth of a counter within a window; None if there is no such counter."""
        series = self._series.get((source, name))
        if series is None:
            return None
        newest = series.seen // window.walks * window.walks
        oldest = max(newest - (window.samples - 1) * window.walks, series.since // window.walks * window.walks, 0)
        if oldest >= newest:
            return NO_GROWTH
        first, last = (_sample_index(window, walk) for walk in (oldest, newest))
        difference = (end - begin for begin, end in zip(series.at(first), series.at(last), strict=True))
        return Growth(Sums(*difference), self._times[last] - self._times[first])

    def remove_topic(self, topic: str) -> None:
        """Remove the counters of a deleted topic and of groups in it at once; the next walk would do so later."""
        prefix = topic + SEPARATOR
        for key in [key for key in self._series if key[1] == topic or key[1].startswith(prefix)]:
            del self._series[key]

    def remove_group(self, group: str) -> None:
        """Remove the counters of a deleted group."""
        suffix = SEPARATOR + group
        for key in [key for key in self._series if key[1] == group or key[1].endswith(suffix)]:
            del self._series[key]


def _sample_index(window: Window, walk: int) -> int:
    """Return the index of a walk's sample in a window."""
    return _FIRST_INDEX[window] + walk // window.walks % window.samples


def _sample_indexes(walk: int) -> list[int]:
    """Return the indexes of a walk's samples, one for each window that takes one."""
    return [_sample_index(window, walk) for window in WINDOWS if walk % window.walks == 0]
