"""How long planning waits for a cluster that is not complete; the time is a counter."""

from collections.abc import Callable

import pytest

from skylarkmq.clients.arrow.topic.bounds import Missing, Unreachable
from skylarkmq.clients.arrow.topic.cluster_retries import MISSING_S, PAUSE_S, with_cluster_retries


class Clock:
    """A clock that only pauses advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds


def waited_s(error_at: Callable[[float], Exception], timeout_ms: int) -> float:
    """Return the time until the request fails for good."""
    clock = Clock()

    def request() -> None:
        raise error_at(clock.now)

    with pytest.raises(Unreachable):
        with_cluster_retries(timeout_ms, request, lambda: clock.now, clock.pause)
    return clock.now


def test_a_missing_topic_fails_sooner_than_a_broker_that_is_down() -> None:
    """A missing topic fails after MISSING_S, an unreachable broker after the time-out, and both after a shorter one."""
    assert waited_s(lambda _: Missing("T"), 60_000) == pytest.approx(MISSING_S, abs=PAUSE_S)
    assert waited_s(lambda _: Unreachable("b"), 60_000) == pytest.approx(60, abs=2 * PAUSE_S)
    assert waited_s(lambda _: Missing("T"), 1_000) == pytest.approx(1, abs=2 * PAUSE_S)


def test_only_the_time_without_a_break_counts() -> None:
    """A topic that is missing before and after an outage of its broker has MISSING_S once more after it."""

    def error_at(now: float) -> Exception:
        return Unreachable("b") if 6 <= now < 20 else Missing("T")

    assert waited_s(error_at, 60_000) == pytest.approx(20 + MISSING_S, abs=2 * PAUSE_S)


def test_the_result_is_returned_once_the_topic_is_there() -> None:
    """Another error is raised at once."""
    clock = Clock()

    def request() -> int:
        if clock.now < 7:
            raise Missing("T")
        return 7

    assert with_cluster_retries(60_000, request, lambda: clock.now, clock.pause) == 7
    with pytest.raises(ZeroDivisionError):
        with_cluster_retries(60_000, lambda: 1 // 0, lambda: clock.now, clock.pause)
