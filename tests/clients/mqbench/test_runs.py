"""Loads in several processes."""

import multiprocessing

import pytest

from skylarkmq.clients.mqbench.recorder import Interval
from skylarkmq.clients.mqbench.runs import ProcessFailed, collect_figures

INTERVAL = Interval(at_s=0.25, seconds=0.25, messages=1, p50_ns=1, p99_ns=1, max_ns=1)


def test_intervals_are_passed_on_and_errors_are_raised() -> None:
    """The error contains the error text of the process."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    theirs.send(INTERVAL)
    theirs.send("ConnectionRefusedError: no listener")
    intervals: list[Interval] = []
    with pytest.raises(ProcessFailed, match="no listener"):
        collect_figures([ours], intervals.append)
    assert intervals == [INTERVAL]
    ours.close()
    theirs.close()


def test_a_process_that_ends_early_is_an_error() -> None:
    """The run does not wait for it."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    theirs.close()
    with pytest.raises(ProcessFailed, match="ended early"):
        collect_figures([ours], lambda _: None)
    ours.close()
