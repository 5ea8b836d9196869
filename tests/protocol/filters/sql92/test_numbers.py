"""Which texts are numbers, by Java's rules."""

import math
from collections.abc import Callable

import pytest

from skylarkmq.protocol.filters.sql92.errors import EvaluationError
from skylarkmq.protocol.filters.sql92.numbers import double, double_for_literal, double_in_order, int32, int64


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-3", -3),
        ("+7", 7),
        ("0012", 12),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("٥", 5),
        ("-０１", -1),
        ("0" * 500 + "4", 4),
    ],
)
def test_whole_numbers(text: str, value: int) -> None:
    """A sign and digits of any script, with any number of leading zeros."""
    assert int32(text.encode()) == int64(text.encode()) == value


@pytest.mark.parametrize(
    "text", ["", "x", "5.5", "5.", " 5", "5 ", "1_000", "5L", "--5", "+", "0x10", "𝟓", "1e5", "5\0"]
)
def test_texts_that_are_not_whole_numbers(text: str) -> None:
    """Any other text is not a whole number."""
    for read in (int32, int64):
        with pytest.raises(EvaluationError):
            read(text.encode())


def test_whole_numbers_have_32_or_64_bits() -> None:
    """32 and 64 bits are the limits."""
    assert int64(b"2147483648") == 2**31
    assert int64(b"-9223372036854775808") == -(2**63)
    for read, text in ((int32, b"2147483648"), (int32, b"-2147483649"), (int64, b"9223372036854775808")):
        with pytest.raises(EvaluationError):
            read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("-5.25e2", -525.0),
        ("5d", 5.0),
        ("1e5F", 1e5),
        (" \t5\n", 5.0),
        ("0x1.8p1", 3.0),
        ("-0X10P-1d", -8.0),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("0x1p5000", math.inf),
        ("-Infinity", -math.inf),
    ],
)
def test_doubles(text: str, value: float) -> None:
    """Surrounding blanks, exponents, Java's suffixes and hexadecimal floats are accepted; too large numbers are
    infinite."""
    assert double(text.encode()) == value


@pytest.mark.parametrize(
    "text", ["", ".", "x", "1_0", "5dd", "NaNd", "nan", "inf", "Infinityf", "0x10", "5 5", "٥", "e5"]
)
def test_texts_that_are_not_doubles(text: str) -> None:
    """Any other text is not a number."""
    with pytest.raises(EvaluationError):
        double(text.encode())


@pytest.mark.parametrize("read", [int32, int64, double])
def test_very_long_numbers_are_rejected(read: Callable[[bytes], float]) -> None:
    """Thirty thousand digits are rejected without conversion."""
    with pytest.raises(EvaluationError):
        read(b"9" * 30_000)


def test_order_of_doubles() -> None:
    """In this order -0.0 comes before 0.0, and NaN after all other numbers, equal to itself."""
    ordered = [double_in_order(text) for text in (b"-Infinity", b"-1", b"-0.0", b"0.0", b"1", b"Infinity", b"NaN")]
    assert ordered == sorted(ordered)
    assert len(set(ordered)) == len(ordered)
    assert double_in_order(b"NaN") == double_in_order(b"-NaN")
    assert double_for_literal(b"NaN") == math.inf
