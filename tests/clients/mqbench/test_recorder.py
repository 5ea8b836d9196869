"""Measurements of a run, during the run and after it."""

import numpy as np

from skylarkmq.clients.mqbench.recorder import INTERVAL_NS, Figures, Interval, Recorder, merged

SECOND = 1_000_000_000


def latencies(*values: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(values, np.int64)


def test_only_responses_between_begin_and_end_count() -> None:
    """The warm-up and the responses after the end do not count."""
    recorder = Recorder()
    recorder.record(0, latencies(1), 1)
    recorder.begin(SECOND)
    recorder.record(SECOND + 1, latencies(5, 5), 2)
    recorder.end(2 * SECOND)
    recorder.record(3 * SECOND, latencies(1), 1)
    assert (recorder.messages, recorder.requests, recorder.histogram.count) == (2, 2, 2)


def test_each_interval_has_its_own_latencies() -> None:
    """The time line shows when the broker was slow."""
    intervals: list[Interval] = []
    recorder = Recorder(intervals.append)
    recorder.begin(0)
    recorder.record(INTERVAL_NS - 1, latencies(*[1000] * 10), 10)
    recorder.record(INTERVAL_NS, latencies(1000), 1)
    recorder.record(2 * INTERVAL_NS, latencies(2000, 2000), 200)
    recorder.end(2 * INTERVAL_NS + 1)
    assert [(line.messages, line.p50_ns, line.max_ns) for line in intervals] == [(11, 1000, 1000), (200, 2000, 2000)]
    assert recorder.timeline == intervals


def figures(messages: int, *intervals: Interval) -> Figures:
    recorder = Recorder()
    recorder.begin(0)
    recorder.record(1, latencies(*[1000] * messages), messages)
    recorder.end(2)
    return Figures(
        seconds=1.0,
        requests=messages,
        messages=messages,
        body_bytes=messages * 10,
        latency=recorder.histogram,
        timeline=list(intervals),
        loader_cpu_s=0.5,
        refused={2: 1},
    )


def test_figures_of_processes_are_combined() -> None:
    """Counts are sums, latencies those of all; the time line has the slowest process's percentiles."""
    one = Interval(at_s=0.25, seconds=0.25, messages=3, p50_ns=10, p99_ns=20, max_ns=30)
    two = Interval(at_s=0.26, seconds=0.26, messages=4, p50_ns=9, p99_ns=25, max_ns=31)
    both = merged([figures(3, one), figures(4, two)])
    assert (both.messages, both.body_bytes, both.latency.count, both.refused) == (7, 70, 7, {2: 2})
    assert both.loader_cpu_s == 1.0
    assert both.timeline == [Interval(at_s=0.26, seconds=0.26, messages=7, p50_ns=10, p99_ns=25, max_ns=31)]
