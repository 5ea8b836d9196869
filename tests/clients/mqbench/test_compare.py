"""Alternating rounds and their ratios."""

import numpy as np
import pytest

from skylarkmq.clients.mqbench.compare import Spread, interleaved, ratio_of, ratios
from skylarkmq.clients.mqbench.histogram import Histogram
from skylarkmq.clients.mqbench.recorder import Figures


def figures(messages: int, latency_ns: int = 1000) -> Figures:
    latency = Histogram()
    latency.add(np.array([latency_ns], np.int64))
    return Figures(
        seconds=2.0,
        requests=messages,
        messages=messages,
        body_bytes=0,
        latency=latency,
        timeline=[],
        loader_cpu_s=0.0,
        refused={},
    )


def test_the_ratio_is_taken_within_each_round() -> None:
    """A machine that was slow in one round was slow for both brokers."""
    found = ratio_of("messages_per_s", [100.0, 10.0, 50.0], [200.0, 30.0, 50.0])
    assert found is not None
    assert found.ratio == Spread(1.0, 2.0, 3.0)
    assert found.first == Spread(10.0, 50.0, 100.0)


def test_a_round_without_a_value_is_omitted() -> None:
    """There is no division by zero."""
    found = ratio_of("p50_us", [0.0, 10.0], [5.0, 5.0])
    assert found is not None
    assert found.ratio == Spread(0.5, 0.5, 0.5)
    assert ratio_of("p50_us", [0.0], [5.0]) is None


def test_the_order_alternates_with_each_round() -> None:
    """No side always starts with a disk that the other one left busy."""
    order: list[str] = []

    def run(name: str) -> Figures:
        order.append(name)
        return figures(1)

    taken = interleaved([lambda: run("a"), lambda: run("b")], rounds=3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [len(side) for side in taken] == [3, 3]


def test_all_figures_are_compared() -> None:
    """Rate and percentiles, the second's divided by the first's."""
    found = {ratio.figure: ratio.ratio.middle for ratio in ratios([figures(10, 1000)], [figures(40, 500)])}
    assert found == {
        "messages_per_s": 4.0,
        "p50_us": pytest.approx(0.5),
        "p99_us": pytest.approx(0.5),
        "p99.9_us": pytest.approx(0.5),
    }
