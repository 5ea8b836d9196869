"""Due times of messages."""

import pytest

from skylarkmq.clients.mqbench.schedule import Schedule

MS = 1_000_000


def test_messages_are_due_at_their_rate() -> None:
    """The first at the start, each next one an interval later."""
    schedule = Schedule(1000.0, start_ns=5 * MS)
    assert schedule.due(5 * MS) == 1
    assert schedule.due(8 * MS) == 4
    assert schedule.take(4).tolist() == [5 * MS, 6 * MS, 7 * MS, 8 * MS]
    assert schedule.due(8 * MS) == 0
    assert schedule.next_due_ns() == 9 * MS


def test_late_messages_keep_their_due_times() -> None:
    """A stall moves no due time, so it is visible in the latencies."""
    schedule = Schedule(1000.0, start_ns=0)
    schedule.take(1)
    assert schedule.due(100 * MS) == 100
    assert schedule.take(100).tolist() == [n * MS for n in range(1, 101)]


def test_a_long_run_does_not_drift() -> None:
    """A rate whose interval is not a whole number of ns stays exact for an hour."""
    schedule = Schedule(30_000.0, start_ns=0)
    schedule.sent = 30_000 * 3600
    assert schedule.next_due_ns() == 3600 * 1000 * MS


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_a_rate_must_be_above_zero(rate: float) -> None:
    """Other rates raise ValueError."""
    with pytest.raises(ValueError, match="above 0"):
        Schedule(rate, start_ns=0)
