"""Loads in several processes."""

import multiprocessing

import pytest

from skylarkmq.clients.mqbench.recorder import Interval
from skylarkmq.clients.mqbench.runs import ProcessFailed, gathered

INTERVAL = Interval(at_s=0.25, seconds=0.25, messages=1, p50_ns=1, p99_ns=1, max_ns=1)


def test_what_a_process_tells_is_passed_on_and_its_failure_told() -> None:
    """In its own words."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    theirs.send(INTERVAL)
    theirs.send("ConnectionRefusedError: nobody there")
    told: list[Interval] = []
    with pytest.raises(ProcessFailed, match="nobody there"):
        gathered([ours], told.append)
    assert told == [INTERVAL]
    ours.close()
    theirs.close()


def test_a_process_that_dies_is_noticed() -> None:
    """Rather than waited for."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    theirs.close()
    with pytest.raises(ProcessFailed, match="before its time"):
        gathered([ours], lambda _: None)
    ours.close()
