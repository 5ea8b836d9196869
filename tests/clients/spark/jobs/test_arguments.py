"""Times and durations as users write them."""

import time

import pytest

from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.jobs.arguments import period_s, time_ms


def test_a_time_without_a_zone_is_utc() -> None:
    """ISO 8601, with or without a zone."""
    assert time_ms("2024-05-01T13:00", "--since") == 1_714_568_400_000
    assert time_ms("2024-05-01T15:00+02:00", "--since") == 1_714_568_400_000
    assert time_ms(None, "--since") is None


def test_a_duration_is_a_time_before_now() -> None:
    """2h: two hours ago."""
    found = time_ms("2h", "--since")
    assert found is not None
    assert 0 <= time.time() * 1000 - found - 7_200_000 < 60_000


@pytest.mark.parametrize("text", ["yesterday", "", "2024-13-01"])
def test_other_texts_are_rejected(text: str) -> None:
    """The error names the option and the accepted forms."""
    with pytest.raises(NotStarted, match="--since must be a time such as"):
        time_ms(text, "--since")


def test_a_period_is_positive() -> None:
    """Zero and texts without a number are rejected."""
    assert period_s("30s", "--every") == 30.0
    with pytest.raises(NotStarted, match="longer than 0"):
        period_s("0", "--every")
    with pytest.raises(NotStarted, match="--every must be a time"):
        period_s("often", "--every")
