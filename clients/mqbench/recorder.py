"""Latencies of a run, and the intervals that are shown while the load runs.

Counting a latency must cost nothing compared with sending a message, so latencies are collected and counted some
thousand at a time. Every INTERVAL_NS, the finished interval of the time line is passed to `on_interval`.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from skylarkmq.clients.mqbench.histogram import PERCENTILES, Histogram, Ints, middle_of

INTERVAL_NS: Final = 250_000_000
FOLD_AT: Final = 8192  # latencies
SHOWN: Final = (50.0, 99.0)


class Interval(msgspec.Struct, frozen=True):
    """A quarter of a second: its end (seconds since the start), messages, latencies in ns."""

    at_s: float
    seconds: float
    messages: int
    p50_ns: int
    p99_ns: int
    max_ns: int


OnInterval = Callable[[Interval], None]


def ignore_interval(_: Interval) -> None:
    """Ignore the interval."""


class Recorder:
    """Measurements of a run. It counts only between `begin` and `end`; times come from the clock of `now_ns`."""

    def __init__(self, on_interval: OnInterval = ignore_interval) -> None:
        self.histogram = Histogram()
        self.timeline: list[Interval] = []
        self.messages = 0
        self.requests = 0
        self.begun_ns = self.ended_ns = 0
        self._on_interval = on_interval
        self._recording = False
        self._kept: list[Ints] = []
        self._kept_count = 0
        self._interval_ns = 0
        self._before = (self.histogram.counts.copy(), 0)

    def __repr__(self) -> str:
        return f"<Recorder {self.messages} messages>"

    def begin(self, now_ns: int) -> None:
        """Start counting."""
        self.begun_ns = self._interval_ns = now_ns
        self._recording = True

    def end(self, now_ns: int) -> None:
        """Stop counting."""
        self._recording = False
        self.ended_ns = now_ns
        self._fold()
        if self.messages > self._before[1]:
            self._close_interval(now_ns)

    def record(self, now_ns: int, latencies_ns: Ints, messages: int) -> None:
        """Record responses; `messages` is the number of accepted or received messages."""
        if not self._recording:
            return
        self.messages += messages
        self.requests += len(latencies_ns)
        self._kept.append(latencies_ns)
        self._kept_count += len(latencies_ns)
        if now_ns - self._interval_ns >= INTERVAL_NS:
            self._fold()
            self._close_interval(now_ns)
        elif self._kept_count >= FOLD_AT:
            self._fold()

    def _fold(self) -> None:
        if self._kept:
            self.histogram.add(np.concatenate(self._kept))
            self._kept.clear()
            self._kept_count = 0

    def _close_interval(self, now_ns: int) -> None:
        counts, messages = self._before
        here = Histogram()
        here.counts = self.histogram.counts - counts
        used = np.flatnonzero(here.counts)
        here.largest_ns = middle_of(int(used[-1])) if len(used) else 0
        p50, p99 = here.percentiles(SHOWN)
        interval = Interval(
            at_s=(now_ns - self.begun_ns) / 1e9,
            seconds=(now_ns - self._interval_ns) / 1e9,
            messages=self.messages - messages,
            p50_ns=p50,
            p99_ns=p99,
            max_ns=here.largest_ns,
        )
        self._before = (self.histogram.counts.copy(), self.messages)
        self._interval_ns = now_ns
        self.timeline.append(interval)
        self._on_interval(interval)


class Figures(msgspec.Struct):
    """Measurements of a run: `messages` that were not rejected, within `seconds`; `loader_cpu_s`: CPU of the loader.

    `latency` is the latency of requests: of sends from their due time, of pulls from the time of the request.
    `end_to_end`, for consumers that follow: from a message's born time, in whole milliseconds, to its arrival.
    """

    seconds: float
    requests: int
    messages: int
    body_bytes: int
    latency: Histogram
    timeline: list[Interval]
    loader_cpu_s: float
    refused: dict[int, int]
    remark: str = ""
    end_to_end: Histogram | None = None

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / max(self.seconds, 1e-9)

    @property
    def mb_per_s(self) -> float:
        """Millions of bytes per second: of bodies for sends, of whole records for reads."""
        return self.body_bytes / max(self.seconds, 1e-9) / 1e6

    def to_json(self) -> dict[str, object]:
        """Return the figures in the format of `--json`: microseconds, and rates per second."""
        figures: dict[str, object] = {
            "seconds": round(self.seconds, 3),
            "requests": self.requests,
            "messages": self.messages,
            "messages_per_s": round(self.rate, 1),
            "mb_per_s": round(self.mb_per_s, 3),
            "latency_us": latencies(self.latency),
            "end_to_end_us": None if self.end_to_end is None else latencies(self.end_to_end),
            "refused": {str(code): count for code, count in self.refused.items()},
            "remark": self.remark,
            "loader_cpu_us_per_message": round(self.loader_cpu_s / max(1, self.messages) * 1e6, 3),
            "loader_busy": round(self.loader_cpu_s / max(self.seconds, 1e-9), 3),
        }
        figures["timeline"] = [
            {
                "at_s": round(interval.at_s, 3),
                "messages_per_s": round(interval.messages / max(interval.seconds, 1e-9), 1),
                "p50_us": interval.p50_ns / 1000,
                "p99_us": interval.p99_ns / 1000,
                "max_us": interval.max_ns / 1000,
            }
            for interval in self.timeline
        ]
        return figures


def latencies(histogram: Histogram) -> dict[str, float]:
    """Return mean, percentiles and maximum in microseconds, by name (`p99.9`)."""
    values = zip(PERCENTILES, histogram.percentiles(), strict=True)
    figures = {"mean": round(histogram.mean_ns / 1000, 3)}
    figures |= {f"p{percent:g}": value / 1000 for percent, value in values}
    return figures | {"max": histogram.largest_ns / 1000}


def merged(parts: list[Figures]) -> Figures:
    """Combine the figures of several concurrent processes.

    Counts and histograms are exact; the percentiles of the time line come from the slowest process.
    """
    first, *others = parts
    for part in others:
        first.seconds = max(first.seconds, part.seconds)
        first.requests += part.requests
        first.messages += part.messages
        first.body_bytes += part.body_bytes
        first.latency.merge(part.latency)
        first.loader_cpu_s += part.loader_cpu_s
        first.remark = first.remark or part.remark
        for code, count in part.refused.items():
            first.refused[code] = first.refused.get(code, 0) + count
        if first.end_to_end is not None and part.end_to_end is not None:
            first.end_to_end.merge(part.end_to_end)
    first.timeline = [combined(list(at)) for at in zip(*(part.timeline for part in parts), strict=False)]
    return first


def combined(intervals: list[Interval]) -> Interval:
    """Combine the same quarter of a second of several processes."""
    return Interval(
        at_s=max(interval.at_s for interval in intervals),
        seconds=max(interval.seconds for interval in intervals),
        messages=sum(interval.messages for interval in intervals),
        p50_ns=max(interval.p50_ns for interval in intervals),
        p99_ns=max(interval.p99_ns for interval in intervals),
        max_ns=max(interval.max_ns for interval in intervals),
    )
