"""How much came and went lately, of each topic and group: three windows over counters that are kept elsewhere.

    minute   7 samples, 10 s apart        hour   7 samples, 10 min apart        day   25 samples, 1 h apart

What a window says is the difference between its newest sample and its oldest: a sum, a rate per second, an average per
call. A counter that is met for the first time was 0 at the samples before, so that its first minute is told too.

Every 10 s a walk over all counters begins, and each step takes a part of it, so that no step is long. A walk that meets
a counter with another sum than before notes it; one that is not met any more (its topic was deleted) is forgotten, and
one that has become smaller begins again. Counters beyond MOST_SERIES are not sampled.

Source: docs/formats.md, "Statistics of topics and groups".
"""

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

import msgspec

log = logging.getLogger(__name__)

MOST_SERIES: Final = 20_000
"""About a kilobyte each."""
ROWS_PER_STEP: Final = 200
"""About a quarter of a millisecond; with ten steps a second enough for MOST_SERIES."""
SAMPLE_MS: Final = 10_000


class Sums(NamedTuple):
    """A counter's totals since the start."""

    messages: int
    bytes: int = 0
    calls: int = 0


class Level(NamedTuple):
    """One window: how many samples, and how many walks from one to the next."""

    samples: int
    walks: int


MINUTE: Final = Level(7, 1)
HOUR: Final = Level(7, 60)
DAY: Final = Level(25, 360)
LEVELS: Final = (MINUTE, HOUR, DAY)

_WIDTH: Final = len(Sums._fields)
_PLACES: Final = {MINUTE: 0, HOUR: MINUTE.samples, DAY: MINUTE.samples + HOUR.samples}
_SAMPLES: Final = sum(level.samples for level in LEVELS)
_ZEROS: Final = array("q", [0]) * (_SAMPLES * _WIDTH)


class Growth(NamedTuple):
    """How much a counter grew within a window of that many ms; 0 ms: there are not two samples yet."""

    sums: Sums
    elapsed_ms: int

    def per_second(self, amount: int) -> float:
        """`amount` of it as a rate."""
        return amount * 1000 / self.elapsed_ms if self.elapsed_ms > 0 else 0.0

    def per_call(self, amount: int) -> float:
        """`amount` of it for each call."""
        return amount / self.sums.calls if self.sums.calls > 0 else 0.0


NO_GROWTH: Final = Growth(Sums(0), 0)


class StatsWindowsStatistics(msgspec.Struct, frozen=True):
    """`series`: counters that are sampled; `walks` since the start; `left_out` by the last walk."""

    series: int
    walks: int
    left_out: int


class _Series:
    """The samples of one counter; `since` the walk before which there are none."""

    __slots__ = ("samples", "seen", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.seen = since
        self.samples = array("q", _ZEROS)

    def at(self, at: int) -> Sums:
        return Sums(*self.samples[at * _WIDTH : (at + 1) * _WIDTH])


SEPARATOR: Final = "@"

Key = tuple[str, str]
"""The source of a counter, and its name there: `topic`, or `topic@group`."""


class StatsWindows:
    """Windows over all counters of `sources`: by source a call that walks over (name, totals) of the moment."""

    def __init__(self, sources: Mapping[str, Callable[[], Iterable[tuple[str, Sums]]]]) -> None:
        self._sources = sources
        self._series: dict[Key, _Series] = {}
        self._walk: Iterator[tuple[Key, Sums]] | None = None
        self._walks = 0
        self._met = 0  # counters that the walk has noted
        self._last = 0  # where the first sum of the walk before stands, and those of this one
        self._places: list[int] = []
        self._times = [0] * _SAMPLES
        self._due_ms = 0
        self._left_out = 0
        self._was_full = False

    def __repr__(self) -> str:
        return f"<StatsWindows series={len(self._series)} walks={self._walks}>"

    def statistics(self) -> StatsWindowsStatistics:
        """The figures now."""
        return StatsWindowsStatistics(len(self._series), self._walks, self._left_out)

    # --------------------------------------------------------------------------------------------------------- samples

    def step(self, now_ms: int) -> None:
        """Go on with the walk, or begin one if it is due. `now_ms` never goes back."""
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
        places = _places(self._walks)
        self._places = [place * _WIDTH for place in places]
        self._last = _place(MINUTE, self._walks - 1) * _WIDTH
        for place in places:
            self._times[place] = now_ms
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
        for place in self._places:
            samples[place], samples[place + 1], samples[place + 2] = sums

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

    def growth(self, source: str, name: str, level: Level = MINUTE) -> Growth | None:
        """What a window says of a counter; None if there is no such counter."""
        series = self._series.get((source, name))
        if series is None:
            return None
        newest = series.seen // level.walks * level.walks
        oldest = max(newest - (level.samples - 1) * level.walks, series.since // level.walks * level.walks, 0)
        if oldest >= newest:
            return NO_GROWTH
        first, last = (_place(level, walk) for walk in (oldest, newest))
        difference = (end - begin for begin, end in zip(series.at(first), series.at(last), strict=True))
        return Growth(Sums(*difference), self._times[last] - self._times[first])

    def remove_topic(self, topic: str) -> None:
        """Forget the counters of a deleted topic, and of groups in it, at once; the next walk would."""
        prefix = topic + SEPARATOR
        for key in [key for key in self._series if key[1] == topic or key[1].startswith(prefix)]:
            del self._series[key]

    def remove_group(self, group: str) -> None:
        """The same for a deleted group."""
        suffix = SEPARATOR + group
        for key in [key for key in self._series if key[1] == group or key[1].endswith(suffix)]:
            del self._series[key]


def _place(level: Level, walk: int) -> int:
    """Where a walk's sample of a window stands."""
    return _PLACES[level] + walk // level.walks % level.samples


def _places(walk: int) -> list[int]:
    """Where a walk's samples stand: of each window that takes one."""
    return [_place(level, walk) for level in LEVELS if walk % level.walks == 0]
