"""A scrape: collects all values and writes them as text without blocking the event loop.

    collectors ─▶ steps ─▶ Gathered (by metric, folded beyond the limit) ─▶ pieces of text

Both halves run in slices: after SLICE_S they yield to the event loop. prometheus_client's encoders, which support both
formats, write the text, a few samples at a time. If a collector fails, the rest of its metrics is left out and the
failure is counted; the scrape continues.

A metric has at most `limit` series. Further ones are aggregated into one overflow series, with `__overflow__` as the
value of every label that distinguishes series: their sum, or their maximum where a sum has no meaning. The first series
keep their own labels.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from time import perf_counter
from typing import Final

import msgspec
from prometheus_client import Metric
from prometheus_client.registry import Collector as LibraryCollector
from prometheus_client.utils import floatToGoString

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.ops.catalogue import CATALOGUE, NATIVE, OURS, Kind, Row
from skylarkmq.broker.ops.steps import Collector, Value
from skylarkmq.broker.store.files.cold_reads import ColdRead

SLICE_S: Final = 0.0005
PIECE_SAMPLES: Final = 32
MAX_FETCHES: Final = 256
OVERFLOW: Final = "__overflow__"
TOTAL: Final = "_total"

OWN_NAMES: Final = frozenset(row.name for row in OURS)
"""Metrics without a limit: the number of their series depends on pools, checks and metrics only."""

Encode = Callable[[LibraryCollector], bytes]
Labels = dict[str, str]
Series = dict[tuple[str, ...], float | Histogram]

log = logging.getLogger(__name__)


class ScrapeStatistics(msgspec.Struct, frozen=True):
    """Figures of the last scrape; `failures` and `folded` (by metric) are totals since the start."""

    samples: int
    seconds: float
    hold_seconds: float
    failures: int
    folded: Mapping[str, int]


class Slices:
    """Measures how long a task has run since it last yielded to the event loop; `longest_s`: the longest such time."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self.longest_s = 0.0

    def is_over(self) -> bool:
        """Return whether the task should yield."""
        return perf_counter() - self._began > SLICE_S

    async def wait(self, what: Awaitable[object]) -> None:
        """Yield to the event loop until `what` is done."""
        self.longest_s = max(self.longest_s, perf_counter() - self._began)
        await what
        self._began = perf_counter()


class Scrape:
    """Runs the collectors of one broker.

    `constants`: the values of labels that scopes name; `extra`: the labels of metricsLabel.
    """

    def __init__(
        self,
        collectors: Sequence[Collector],
        constants: Mapping[str, str],
        extra: Mapping[str, str],
        *,
        limit: int,
        hidden: frozenset[str] = frozenset(),
        library: Iterable[LibraryCollector] = (),
        fetch: Callable[[ColdRead], Awaitable[None]],
    ) -> None:
        self._collectors = (*collectors, self._own_values)
        self._library = tuple(library)
        self._limit = limit
        self._hidden = hidden
        self._fetch = fetch
        self._constants = {
            row.name: {name: constants[name] for name in row.scope.labels} | dict(extra if row.scope in NATIVE else {})
            for row in CATALOGUE.values()
        }
        self._folded: dict[str, int] = {}
        self._failures = 0
        self._last = (0, 0.0, 0.0)

    def __repr__(self) -> str:
        return f"<Scrape collectors={len(self._collectors)} samples={self._last[0]}>"

    def statistics(self) -> ScrapeStatistics:
        """Return the current figures."""
        return ScrapeStatistics(*self._last, self._failures, dict(self._folded))

    async def pieces(self, encode: Encode, pack: Callable[[bytes], bytes] = bytes) -> list[bytes]:
        """Return the whole text in pieces, each passed through `pack`."""
        began, slices = perf_counter(), Slices()
        gathered = await self._gather(slices)
        pieces: list[bytes] = []
        samples = 0
        for text, count in self._texts(gathered, encode):
            pieces.append(pack(text))
            samples += count
            if slices.is_over():
                await slices.wait(asyncio.sleep(0))
        await slices.wait(asyncio.sleep(0))
        self._last = (samples, perf_counter() - began, slices.longest_s)
        return pieces

    # ---------------------------------------------------------------------------------------------------------- gather

    async def _gather(self, slices: Slices) -> "Gathered":
        gathered = Gathered(self._limit)
        for collector in self._collectors:
            try:
                await self._run(collector, gathered, slices)
            except Exception:
                self._failures += 1
                log.exception("metrics left out collector=%r", collector)
        for name, count in gathered.folded.items():
            self._folded[name] = self._folded.get(name, 0) + count
        return gathered

    async def _run(self, collector: Collector, gathered: "Gathered", slices: Slices) -> None:
        fetches = 0
        for step in collector():
            if isinstance(step, ColdRead):
                fetches += 1
                if fetches <= MAX_FETCHES:
                    await slices.wait(self._fetch(step))
            elif step is not None and step.name not in self._hidden:
                gathered.add(step)
            if slices.is_over():
                await slices.wait(asyncio.sleep(0))

    def _own_values(self) -> Iterator[Value]:
        samples, seconds, hold_seconds = self._last
        yield Value("skylark_scrape_samples", (), samples)
        yield Value("skylark_scrape_seconds", (), seconds)
        yield Value("skylark_scrape_hold_seconds", (), hold_seconds)
        yield Value("skylark_scrape_failures_total", (), self._failures)
        for name, count in list(self._folded.items()):
            yield Value("skylark_scrape_folded_total", (name,), count)

    # ------------------------------------------------------------------------------------------------------------ text

    def _texts(self, gathered: "Gathered", encode: Encode) -> Iterator[tuple[bytes, int]]:
        """Yield pieces of text with the number of samples in each."""
        end = encode(EncoderInput())
        for name, row in CATALOGUE.items():
            series = gathered.series.get(name)
            if series is None:
                continue
            head = encode(EncoderInput(empty_metric(row))).removesuffix(end)
            yield head, 0
            for metric in pieces_of(row, self._constants[name], series):
                text = encode(EncoderInput(metric))
                yield text[len(head) : len(text) - len(end)], len(metric.samples)
        for collector in self._library:
            metrics = tuple(collector.collect())
            yield encode(EncoderInput(*metrics)).removesuffix(end), sum(len(metric.samples) for metric in metrics)
        yield end, 0


class Gathered:
    """The series of each metric by their labels. `folded`: how many series were merged into the overflow series."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.series: dict[str, Series] = {}
        self.folded: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Gathered metrics={len(self.series)}>"

    def add(self, value: Value) -> None:
        """Add a value. A histogram is copied, since it keeps changing."""
        name, labels, amount = value
        series = self.series.get(name)
        if series is None:
            series = self.series[name] = {}
        if isinstance(amount, Histogram):
            amount = amount.plus(())
        if len(series) < self._limit or name in OWN_NAMES:
            series[labels] = amount
        else:
            self.folded[name] = self.folded.get(name, 0) + 1
            labels = (OVERFLOW,) * len(labels)
            known = series.get(labels)
            series[labels] = amount if known is None else folded(CATALOGUE[name], known, amount)


def folded(row: Row, known: float | Histogram, amount: float | Histogram) -> float | Histogram:
    """Return two series merged into one."""
    if isinstance(known, Histogram) and isinstance(amount, Histogram):
        return known.plus((amount,))
    assert not isinstance(known, Histogram)
    assert not isinstance(amount, Histogram)
    return max(known, amount) if row.is_peak else known + amount


class EncoderInput(LibraryCollector):
    """Passes metrics to an encoder."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._metrics


def empty_metric(row: Row) -> Metric:
    """Return a metric without samples."""
    return Metric(row.name.removesuffix(TOTAL) if row.kind is Kind.COUNTER else row.name, row.help, row.kind.value)


def pieces_of(row: Row, constants: Labels, series: Series) -> Iterator[Metric]:
    """Yield a metric's samples in pieces; the samples of one histogram stay together."""
    metric = empty_metric(row)
    for values, amount in series.items():
        labels = constants | dict(zip(row.labels, values, strict=True))
        if isinstance(amount, Histogram):
            add_histogram(metric, labels, amount)
        else:
            metric.add_sample(row.name, labels, amount)
        if len(metric.samples) >= PIECE_SAMPLES:
            yield metric
            metric = empty_metric(row)
    if metric.samples:
        yield metric


@cache
def bound_text(bound: float) -> str:
    """Return a bound as the value of the label `le`."""
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]  # untyped in the library
    return text


def add_histogram(metric: Metric, labels: Labels, buckets: Histogram) -> None:
    """Add the samples of one histogram: cumulative counts by bound, the total count, and the sum."""
    count = 0
    for bound, more in zip((*buckets.bounds, float("inf")), buckets.counts, strict=True):
        count += more
        metric.add_sample(metric.name + "_bucket", labels | {"le": bound_text(bound)}, count)
    metric.add_sample(metric.name + "_count", labels, count)
    metric.add_sample(metric.name + "_sum", labels, buckets.total)
