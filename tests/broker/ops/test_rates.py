"""Rates over the last minute, from counters read at scrapes."""

from skylarkmq.broker.ops.rates import Rates


def test_within_the_first_minute_the_rate_is_that_since_the_start() -> None:
    """The first scrape compares with the start."""
    rates = Rates(100.0)
    rates.begin(110.0)
    assert rates.per_second("t", 50) == 5.0
    rates.begin(130.0)
    assert rates.per_second("t", 60) == 2.0
    assert "scrapes=3" in repr(rates)


def test_later_the_rate_is_that_of_the_last_minute() -> None:
    """Growth before the scrape a minute ago does not count."""
    rates = Rates(0.0)
    counters = {0: 1_000, 15: 1_000, 30: 1_000, 45: 1_000, 60: 1_060, 75: 1_120, 90: 1_180}
    values = {}
    for now_s, counter in counters.items():
        rates.begin(now_s)
        values[now_s] = rates.per_second("t", counter)
    assert values[75] == (1_120 - 1_000) / 60
    assert values[90] == (1_180 - 1_000) / 60


def test_two_scrapers_share_their_values() -> None:
    """A scrape right after another compares with the same one a minute ago."""
    rates = Rates(0.0)
    for now_s in (10.0, 10.1, 20.0, 20.1):
        rates.begin(now_s)
        assert rates.per_second("t", now_s * 3) == 3.0
    assert "scrapes=3" in repr(rates)


def test_a_restarted_counter_has_grown_from_zero() -> None:
    """A topic that was deleted and created again has no negative rate."""
    rates = Rates(0.0)
    rates.begin(60.0)
    rates.growth("t", 500)
    rates.begin(120.0)
    assert rates.growth("t", 20) == 20


def test_at_the_time_of_the_start_the_rate_is_zero() -> None:
    """It is no error."""
    rates = Rates(5.0)
    rates.begin(5.0)
    assert rates.per_second("t", 1) == 0.0
