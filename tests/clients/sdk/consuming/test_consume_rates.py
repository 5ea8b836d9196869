"""Rates of a consumer, over a minute and an hour."""

from skylarkmq.clients.sdk.consuming.consume_rates import HOUR_EVERY, SAMPLE_S, ConsumeRates


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def handled(rates: ConsumeRates, *, succeeded: int, failed: int, call_s: float = 0.5) -> None:
    totals = rates.totals["T"]
    totals.calls += succeeded + failed
    totals.call_s += call_s * (succeeded + failed)
    totals.succeeded += succeeded
    totals.failed += failed


async def pass_time(rates: ConsumeRates, clock: Clock, samples: int) -> None:
    for _ in range(samples):
        clock.now_s += SAMPLE_S
        await rates.sample()


async def test_rates_are_those_of_the_last_minute() -> None:
    """Older calls do not count; newer ones count at once."""
    clock = Clock()
    rates = ConsumeRates(clock)
    handled(rates, succeeded=1000, failed=0)
    await pass_time(rates, clock, 6)
    handled(rates, succeeded=300, failed=60, call_s=0.2)
    clock.now_s += SAMPLE_S
    status = rates.status("T")
    assert (status.consume_ok_tps, status.consume_failed_tps) == (300 / 60, 60 / 60)
    assert round(status.consume_rt, 6) == 200


async def test_a_member_that_has_just_started_has_rates() -> None:
    """They count from its start; none is a division by zero."""
    clock = Clock()
    rates = ConsumeRates(clock)
    assert rates.status("T").consume_rt == rates.status("T").pull_rt == 0
    totals = rates.totals["T"]
    totals.pulls, totals.pull_s, totals.pulled = 2, 0.1, 64
    clock.now_s += 4
    assert (rates.status("T").pull_tps, rates.status("T").pull_rt) == (16, 50)


async def test_failures_are_those_of_the_last_hour() -> None:
    """And so is the time of a call, if there was none within the minute."""
    clock = Clock()
    rates = ConsumeRates(clock)
    handled(rates, succeeded=0, failed=7)
    await pass_time(rates, clock, HOUR_EVERY - 6)
    assert rates.status("T").consume_failed_msgs == 7
    assert (rates.status("T").consume_rt, rates.status("T").consume_failed_tps) == (500, 0)
    await pass_time(rates, clock, HOUR_EVERY * 7)
    assert rates.status("T").consume_failed_msgs == 0
