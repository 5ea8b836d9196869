"""Dropped entries: counted, and logged within limits."""

import logging

import pytest

from skylarkmq.broker.delivery.dropped_entries import MOST_LOGGED, DroppedEntries


def test_the_first_entries_are_logged_and_then_powers_of_ten(caplog: pytest.LogCaptureFixture) -> None:
    """With any number of entries the log stays readable; the count is exact."""
    dropped = DroppedEntries(logging.getLogger("tests"), "timer message")
    for number in range(12_345):
        dropped.note(f"offset={number}", "no time")
    assert dropped.count == 12_345
    expected = [*range(1, MOST_LOGGED + 1), 100, 1_000, 10_000]
    assert [record.message for record in caplog.records] == [
        f"timer message dropped total={total} offset={total - 1} reason=no time" for total in expected
    ]
