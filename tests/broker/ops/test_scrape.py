"""Scrapes with fake collectors: folding, failures, cold reads, slices, and the text."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.ops import scrape as scrape_module
from skylarkmq.broker.ops.catalogue import CATALOGUE
from skylarkmq.broker.ops.scrape import OVERFLOW, PIECE_SAMPLES, Scrape
from skylarkmq.broker.ops.steps import Collector, Step, Value, retry_cold_reads
from skylarkmq.broker.store.files.cold_reads import ColdRead, Range

CONSTANTS = {name: "x" for row in CATALOGUE.values() for name in row.scope.labels}
COLD = ColdRead(Range("/queue", 0, 20))
SUMMED, PEAK, HISTOGRAM = (
    "rocketmq_producer_offset",
    "rocketmq_group_get_latency_by_storetime",
    "rocketmq_message_size",
)


async def never(cold: ColdRead) -> None:
    raise AssertionError(cold)


def scrape_of(*collectors: Collector, limit: int = 1_000, fetch: Any = never, **fields: Any) -> Scrape:
    return Scrape(collectors, CONSTANTS, {}, limit=limit, fetch=fetch, **fields)


async def values(scrape: Scrape, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric by the values of some labels."""
    text = b"".join(await scrape.pieces(generate_latest)).decode()
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.parametrize(("limit", "folded"), [(4, 0), (3, 1), (1, 3)])
async def test_series_beyond_the_limit_are_summed(limit: int, folded: int) -> None:
    """At the limit nothing is folded; beyond it the first series stay, and the overall sum is unchanged."""
    amounts = {f"t{number}": 10**number for number in range(4)}
    scrape = scrape_of(lambda: iter(Value(SUMMED, (name,), amount) for name, amount in amounts.items()), limit=limit)
    told = await values(scrape, SUMMED, "topic")
    assert sum(told.values()) == 1_111
    assert len(told) == limit + (folded > 0)
    assert ((OVERFLOW,) in told) == (folded > 0)
    assert scrape.statistics().folded.get(SUMMED, 0) == folded


async def test_peaks_beyond_the_limit_are_folded_to_the_maximum() -> None:
    """The oldest age of many groups is the maximum."""
    ages = [Value(PEAK, ("t", f"g{number}"), age) for number, age in enumerate((5, 70, 900, 30))]
    told = await values(scrape_of(lambda: iter(ages), limit=1), PEAK, "topic", "group")
    assert told == {("t", "g0"): 5, (OVERFLOW, OVERFLOW): 900}


async def test_histograms_are_folded_bucket_by_bucket() -> None:
    """Counts and sums are added up."""
    sizes = []
    for size in (10, 2_000, 3_000):
        buckets = Histogram((1_024, 4_096))
        buckets.note(size)
        sizes.append(buckets)
    steps = [Value(HISTOGRAM, (f"t{number}", "normal", "false"), size) for number, size in enumerate(sizes)]
    scrape = scrape_of(lambda: iter(steps), limit=1)
    told = await values(scrape, HISTOGRAM + "_bucket", "topic", "le")
    assert told[OVERFLOW, "1024.0"] == 0
    assert told[OVERFLOW, "4096.0"] == told[OVERFLOW, "+Inf"] == 2
    assert (await values(scrape, HISTOGRAM + "_sum", "topic"))[OVERFLOW,] == 5_000


async def test_a_failed_collector_affects_only_its_own_metrics() -> None:
    """Its earlier values and those of other collectors are exported; the failure is counted."""

    def failing() -> Iterator[Step]:
        yield Value(SUMMED, ("t",), 1)
        raise RuntimeError("broken")

    scrape = scrape_of(failing, lambda: iter([Value(PEAK, ("t", "g"), 2)]))
    assert await values(scrape, SUMMED, "topic") == {("t",): 1}
    assert await values(scrape, PEAK, "topic") == {("t",): 2}
    assert scrape.statistics().failures == 2
    assert "collectors=3" in repr(scrape)


async def test_a_collector_continues_after_a_cold_read() -> None:
    """Other work runs meanwhile, and the collector continues where it was."""
    fetched: list[ColdRead] = []

    async def fetch(cold: ColdRead) -> None:
        fetched.append(cold)

    def read() -> int:
        if not fetched:
            raise COLD
        return 7

    def collector() -> Iterator[Step]:
        value = yield from retry_cold_reads(read)
        assert value is not None
        yield Value(SUMMED, ("t",), value)

    assert await values(scrape_of(collector, fetch=fetch), SUMMED, "topic") == {("t",): 7}
    assert fetched == [COLD]


async def test_a_value_is_left_out_after_repeated_cold_reads() -> None:
    """After the maximum number of attempts."""

    async def fetch(_cold: ColdRead) -> None:
        """Fetch nothing."""

    def read() -> int:
        raise COLD

    def collector() -> Iterator[Step]:
        value = yield from retry_cold_reads(read)
        yield Value(SUMMED, ("t",), -1 if value is None else value)

    assert await values(scrape_of(collector, fetch=fetch), SUMMED, "topic") == {("t",): -1}


async def test_a_scrape_yields_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """With slices of length 0, every step and every piece of text yields to other work."""
    monkeypatch.setattr(scrape_module, "SLICE_S", 0.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    steps = [Value(SUMMED, (f"t{number}",), 1) for number in range(500)]
    pieces = await scrape_of(lambda: iter(steps)).pieces(generate_latest)
    other.cancel()
    assert turns >= 500 + 500 // PIECE_SAMPLES
    assert len(pieces) >= 500 // PIECE_SAMPLES


async def test_a_metric_has_one_head_for_all_its_pieces() -> None:
    """Help and type are written once, before all samples; a second head would make the text invalid."""
    steps = [Value(SUMMED, (f"t{number}",), number) for number in range(3 * PIECE_SAMPLES + 1)]
    text = b"".join(await scrape_of(lambda: iter(steps)).pieces(generate_latest)).decode()
    assert text.count(f"# HELP {SUMMED} ") == text.count(f"# TYPE {SUMMED} ") == 1
    assert len([line for line in text.splitlines() if line.startswith(SUMMED + "{")]) == len(steps)


async def test_hidden_metrics_are_left_out() -> None:
    """Both values and heads."""
    steps = [Value(SUMMED, ("t",), 1), Value(PEAK, ("t", "g"), 1)]
    scrape = scrape_of(lambda: iter(steps), hidden=frozenset((SUMMED,)))
    text = b"".join(await scrape.pieces(generate_latest)).decode()
    assert SUMMED not in text
    assert PEAK in text


async def test_a_scrape_reports_the_previous_one() -> None:
    """Samples, duration and longest blocking time of a scrape are metrics of the next."""
    scrape = scrape_of(lambda: iter([Value(SUMMED, ("t",), 1)]))
    assert await values(scrape, "skylark_scrape_samples") == {(): 0}
    assert await values(scrape, "skylark_scrape_samples") == {(): 5}
    last = scrape.statistics()
    assert 0 < last.hold_seconds <= last.seconds
