"""Whole numbers that arrive as text."""

import pytest

from skylarkmq.protocol.decimals import INT32_MAX, INT64_MAX, decimal


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+7", 7),
        ("007", 7),
        (str(INT64_MAX), INT64_MAX),
        (str(INT64_MAX + 1), None),
        ("9" * 19, None),
        ("9" * 5_000, None),
        ("0" * 5_000, None),
        ("-1", None),
        ("", None),
        (None, None),
        (" 1", None),
        ("1\n", None),
        ("1_0", None),
        ("1e3", None),
        ("0x1", None),
        ("٣", None),
        ("²", None),
    ],
)
def test_decimals(text: str | None, number: int | None) -> None:
    """At most 19 ASCII digits within the given range; nothing is raised."""
    assert decimal(text) == number


def test_both_ends_of_a_range_are_included() -> None:
    """Both ends of the range are included."""
    assert [decimal(text, -1, INT32_MAX) for text in ("-2", "-1", str(INT32_MAX), str(INT32_MAX + 1))] == [
        None,
        -1,
        INT32_MAX,
        None,
    ]
