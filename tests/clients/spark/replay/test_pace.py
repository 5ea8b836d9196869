"""The rate of a replay, with a clock that only sleeps advance."""

import pytest

from skylarkmq.clients.spark.replay.pace import Pace, parse_rate


class Clock:
    """A clock; `late` seconds are added to each sleep."""

    def __init__(self, late: float = 0.0) -> None:
        self.now = 100.0
        self._late = late

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + self._late


async def test_the_rate_is_exact_over_the_whole_run() -> None:
    """Requests of any size, and timers that are always late: 10,000 messages at 1,000/s take 10 s."""
    clock = Clock(late=0.003)
    pace = Pace(1000.0, clock, clock.sleep)
    sent = 0
    for count in (1, 7, 256, 36, 100) * 25:
        await pace.take(count)
        assert sent <= 1000 * (clock.now - 100.0) + 1e-6  # those before this request
        sent += count
    assert sent == 10_000
    assert clock.now - 100.0 == pytest.approx(10.0, abs=0.15)


async def test_a_long_pause_is_made_up_for_by_one_second_only() -> None:
    """After a broker was away for a minute, no minute's worth of messages follows at once."""
    clock = Clock()
    pace = Pace(100.0, clock, clock.sleep)
    clock.now += 60
    for _ in range(30):
        await pace.take(10)
    assert clock.now - 160.0 == pytest.approx(1.9)


async def test_without_a_rate_nothing_waits() -> None:
    """None is no limit."""
    clock = Clock()
    await Pace(None, clock, clock.sleep).take(10**9)
    assert clock.now == 100.0


def test_rates_have_units() -> None:
    """Messages by second, minute or hour; k is a thousand."""
    texts = ("10000/s", "10k/s", "600/min", "3600/h", "500", "0.5/s")
    assert [parse_rate(text) for text in texts] == [10_000, 10_000, 10, 1, 500, 0.5]
    for wrong in ("", "0/s", "x", "10/day", "-1/s"):
        with pytest.raises(ValueError, match="a rate such as"):
            parse_rate(wrong)
