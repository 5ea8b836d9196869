"""Put latency: every range at its limits, and the minute of the statistics."""

from bisect import bisect_left

import pytest

from skylarkmq.broker.counters import put_latency
from skylarkmq.broker.counters.put_latency import SPREAD, PutLatency, spread_text
from skylarkmq.broker.remoting import request_latency
from skylarkmq.broker.remoting.request_latency import Latencies

NOW_S = 1_000.0


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> PutLatency:
    monkeypatch.setattr(request_latency, "monotonic", lambda: NOW_S)
    return PutLatency(Latencies())


def note(times: PutLatency, took_ms: float, count: int = 1) -> None:
    times.note(310, 0, NOW_S - took_ms / 1000, count)


@pytest.mark.parametrize(
    ("took_ms", "name"),
    [
        (0, "<=0ms"), (0.9, "<=0ms"), (1.1, "0~10ms"), (9.9, "0~10ms"), (10.1, "10~50ms"), (99.9, "50~100ms"),
        (199.9, "100~200ms"), (200.1, "200~500ms"), (999.9, "500ms~1s"), (1_000.1, "1~2s"), (9_999.9, "5~10s"),
        (10_000.1, "10s~"), (1e9, "10s~"),
    ],
)  # fmt: skip
def test_a_put_is_counted_in_its_range(times: PutLatency, took_ms: float, name: str) -> None:
    """In whole ms, as RocketMQ counts."""
    times.step(0)
    note(times, took_ms, 7)
    times.step(60_000)
    assert dict(zip([name for name, _ in SPREAD], times.statistics().spread, strict=True))[name] == 7
    assert sum(times.statistics().spread) == 7


def test_statistics_are_of_the_last_complete_minute(times: PutLatency) -> None:
    """The current minute does not count; a minute without puts has zeros."""
    times.step(30_000)
    note(times, 5)
    times.step(59_999)
    assert sum(times.statistics().spread) == 0
    times.step(60_000)
    note(times, 5, 2)
    assert sum(times.statistics().spread) == 1
    times.step(120_000)
    assert sum(times.statistics().spread) == 2
    times.step(180_000)
    assert sum(times.statistics().spread) == 0


def test_percentiles_of_the_last_minute(times: PutLatency) -> None:
    """99 % and 99.9 %, with a resolution of a millisecond at first, and less than a tenth of the time later."""
    times.step(0)
    times.step(60_000)
    assert (times.statistics().within_99_ms, times.statistics().within_999_ms) == (0, 0)
    note(times, 2.5, 990)
    note(times, 107, 9)
    note(times, 20_000)
    times.step(120_000)
    assert (times.statistics().within_99_ms, times.statistics().within_999_ms) == (2, 109)
    note(times, 20_000)
    times.step(180_000)
    assert (times.statistics().within_99_ms, times.statistics().within_999_ms) == (20_000, 20_000)


def test_a_percentile_exceeds_the_latency_by_less_than_a_tenth() -> None:
    """The value is never less than the latency."""
    for took_ms in (*range(200), *range(200, 10_000, 37)):
        range_end = put_latency._LAST_MS[bisect_left(put_latency._LAST_MS, took_ms)]
        assert took_ms <= range_end <= max(took_ms, 20) * 1.1


def test_the_longest_put_is_since_the_start(times: PutLatency) -> None:
    """However many minutes ago it was."""
    note(times, 1_234.5)
    note(times, 3)
    times.step(0)
    times.step(600_000)
    assert times.statistics().longest_ms == 1_234
    assert repr(times) == "<PutLatency longest_ms=1234>"


def test_the_text_has_rocketmqs_format() -> None:
    """Names in brackets, a colon, a number, a space, as a real broker returns it."""
    counts = (29, *(0 for _ in SPREAD[1:]))
    assert spread_text(counts) == (
        "[<=0ms]:29 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 "
        "[3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
    )


def test_puts_are_added_to_all_latencies(times: PutLatency) -> None:
    """One call per iteration does both."""
    latencies = Latencies()
    it = PutLatency(latencies)
    it.note(310, 0, NOW_S - 1, 5)
    it.note(310, 0, NOW_S - 1, was_oneway=True)
    assert (latencies.statistics().rows, latencies.statistics().requests) == (2, 6)
