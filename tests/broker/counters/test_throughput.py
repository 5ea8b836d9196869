"""Throughput: rates over windows, and counters at the start of days."""

import time

import pytest

from skylarkmq.broker.counters.throughput import Counters, Days, Throughput

HOUR_MS = 3_600_000
NOON_MS = int(time.mktime((2026, 3, 10, 12, 0, 0, 0, 0, -1)) * 1000)


class Source:
    """Counters that a test sets."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.traffic = Throughput(lambda: self.counters)

    def step(self, now_ms: int, puts: int) -> None:
        self.counters = Counters(puts=puts, delivered=2 * puts)
        self.traffic.step(now_ms, now_ms)

    def put_rates(self) -> tuple[float, ...]:
        return self.traffic.per_second(lambda counters: counters.puts)


@pytest.fixture
def source() -> Source:
    return Source()


def test_there_are_three_rates_from_the_start(source: Source) -> None:
    """Tools divide by three numbers: without samples they are 0, with two samples the growth between these."""
    assert source.put_rates() == (0.0, 0.0, 0.0)
    source.step(NOON_MS, 0)
    assert source.put_rates() == (0.0, 0.0, 0.0)
    source.step(NOON_MS + 2000, 10)
    assert source.put_rates() == (5.0, 5.0, 5.0)


def test_each_window_covers_its_length(source: Source) -> None:
    """A burst ten seconds ago is no longer in the first window, but in the others."""
    for second in range(700):
        source.step(NOON_MS + second * 1000, 600 if second >= 600 else 0)
    assert source.put_rates() == (0.0, 0.0, 1.0)
    for second in range(700, 705):
        source.step(NOON_MS + second * 1000, 600 + (second - 699) * 10)
    assert source.put_rates() == (5.0, 50 / 60, 650 / 600)


def test_samples_are_a_second_apart(source: Source) -> None:
    """Steps within a second take no sample."""
    for ms in range(0, 3000, 100):
        source.step(NOON_MS + ms, ms)
    assert source.put_rates() == (1000.0, 1000.0, 1000.0)


def test_a_clock_set_back_gives_rates_of_0(source: Source) -> None:
    """Rates are 0, not negative or infinite, while time seems to run backwards."""
    source.step(NOON_MS, 0)
    source.step(NOON_MS - HOUR_MS, 10)
    assert source.put_rates() == (0.0, 0.0, 0.0)


def test_counters_are_stored_at_midnight(source: Source) -> None:
    """The counters at the start of today and yesterday move at each local midnight; before the first they are 0."""
    source.step(NOON_MS, 5)
    assert source.traffic.days == Days()
    source.step(NOON_MS + 13 * HOUR_MS, 8)
    assert source.traffic.days == Days(today=Counters(puts=8, delivered=16))
    source.step(NOON_MS + 37 * HOUR_MS, 20)
    assert source.traffic.days == Days(Counters(puts=8, delivered=16), Counters(puts=20, delivered=40))


def test_messages_in_system_topics_count_separately() -> None:
    """A delayed message is stored twice and sent once."""
    assert Counters(puts=5, system_puts=2).user_puts == 3
