"""Windows over counters: their values after ten seconds, an hour, a day; counters that appear and disappear."""

from collections.abc import Iterable

import pytest

from skylarkmq.broker.counters import stats_windows
from skylarkmq.broker.counters.stats_windows import DAY, HOUR, MINUTE, Growth, StatsWindows, Sums, Window


class Counters:
    """A source of counters, and windows over it that are stepped ten times a second."""

    def __init__(self) -> None:
        self.rows: dict[str, Sums] = {}
        self.windows = StatsWindows({"in": self.walk, "out": lambda: [("T@g", Sums(1))]})
        self.now_ms = 1_000_000
        self.windows.step(self.now_ms)

    def walk(self) -> Iterable[tuple[str, Sums]]:
        return list(self.rows.items())

    def add(self, name: str, messages: int, size: int = 0) -> None:
        before = self.rows.get(name, Sums(0))
        self.rows[name] = Sums(before.messages + messages, before.bytes + size, before.calls + 1)

    def advance(self, seconds: int) -> None:
        """Advance the clock and step the windows every ten seconds."""
        for _ in range(seconds // 10):
            self.now_ms += 10_000
            self.windows.step(self.now_ms)

    def growth(self, name: str = "T", window: Window = MINUTE) -> Growth | None:
        return self.windows.growth("in", name, window)


@pytest.fixture
def counters() -> Counters:
    return Counters()


def test_the_first_minute_is_complete_after_one_sample(counters: Counters) -> None:
    """A counter that did not exist before was 0: sum, rate per second and average per call follow from that."""
    counters.add("T", 50, 5_000)
    counters.add("T", 30, 3_000)
    assert counters.growth() is None
    counters.advance(10)
    growth = counters.growth()
    assert growth == Growth(Sums(80, 8_000, 2), 10_000)
    assert (growth.per_second(80), growth.per_call(8_000)) == (8.0, 4_000.0)


def test_growth_before_the_last_minute_does_not_count(counters: Counters) -> None:
    """There are seven samples, ten seconds apart: growth before the oldest no longer counts."""
    counters.add("T", 100)
    counters.advance(10)
    counters.add("T", 7)
    counters.advance(50)
    assert counters.growth() == Growth(Sums(107, 0, 2), 60_000)
    counters.advance(10)
    assert counters.growth() == Growth(Sums(7, 0, 1), 60_000)
    counters.advance(10)
    assert counters.growth() == Growth(Sums(0, 0, 0), 60_000)
    assert counters.growth().per_call(0) == 0.0  # type: ignore[union-attr]


def test_hours_and_days_have_coarser_samples(counters: Counters) -> None:
    """Seven samples ten minutes apart, twenty-five an hour apart; both have no growth before their second sample."""
    counters.advance(100)
    counters.add("T", 1)
    counters.advance(400)
    assert counters.growth(window=HOUR) == Growth(Sums(0), 0)
    counters.advance(100)
    assert counters.growth(window=HOUR) == Growth(Sums(1, 0, 1), 600_000)
    assert counters.growth(window=DAY) == Growth(Sums(0), 0)
    counters.advance(3_000)
    assert counters.growth(window=HOUR) == Growth(Sums(1, 0, 1), 3_600_000)
    assert counters.growth(window=DAY) == Growth(Sums(1, 0, 1), 3_600_000)
    counters.advance(600)
    assert counters.growth(window=HOUR) == Growth(Sums(0), 3_600_000)
    counters.advance(24 * 3_600)
    assert counters.growth(window=DAY) == Growth(Sums(0), 24 * 3_600_000)


def test_counters_that_no_longer_exist_are_removed(counters: Counters) -> None:
    """At the next walk; at once, with the groups in it, when a topic is deleted."""
    counters.add("T", 1)
    counters.add("U", 1)
    counters.advance(10)
    del counters.rows["U"]
    counters.advance(10)
    assert counters.growth("U") is None
    assert counters.windows.growth("out", "T@g") is not None
    counters.windows.remove_topic("T")
    assert counters.growth("T") is None
    assert counters.windows.growth("out", "T@g") is None
    assert counters.windows.statistics().series == 0


def test_a_counter_that_became_smaller_is_restarted(counters: Counters) -> None:
    """A topic that was deleted and created again shows only its new messages."""
    counters.add("T", 100)
    counters.advance(20)
    counters.rows["T"] = Sums(3, 0, 1)
    counters.advance(10)
    assert counters.growth() == Growth(Sums(3, 0, 1), 10_000)


def test_a_walk_is_divided_into_steps(counters: Counters, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step processes a limited number of counters."""
    monkeypatch.setattr(stats_windows, "ROWS_PER_STEP", 4)
    for number in range(9):
        counters.add(f"T{number}", 1)
    counters.advance(10)
    assert counters.windows.statistics().series == 1 + 4
    counters.windows.step(counters.now_ms)
    counters.windows.step(counters.now_ms)
    assert counters.windows.statistics().series == 1 + 9


def test_the_number_of_series_is_limited(
    counters: Counters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Counters beyond the limit are not sampled, which is logged once."""
    monkeypatch.setattr(stats_windows, "MOST_SERIES", 3)
    for number in range(5):
        counters.add(f"T{number}", 1)
    counters.advance(30)
    assert counters.windows.statistics().series == 3
    assert counters.windows.statistics().left_out == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_counters_of_a_deleted_group_are_removed_at_once(counters: Counters) -> None:
    """Its own, and those within topics."""
    for name in ("T@g", "T@h", "g"):
        counters.add(name, 1)
    counters.advance(20)
    counters.windows.remove_group("g")
    assert [counters.growth(name) is None for name in ("T@g", "T@h", "g")] == [True, False, True]
