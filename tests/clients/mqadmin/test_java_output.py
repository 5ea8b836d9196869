"""Text as Java prints it."""

import re

import pytest

from skylarkmq.clients.mqadmin.java_output import Lines, cut_broker, cut_front, java_format, java_text, local_time


@pytest.mark.parametrize(
    ("pattern", "values", "text"),
    [
        ("%-6s|%6s|%s", ("ab", "ab", "ab"), "ab    |    ab|ab"),
        ("%.2f %.2f %9.2f", (0.125, 1.005, 2), "0.13 1.01      2.00"),
        ("%f", (1.5,), "1.500000"),
        ("%04d %-4d|%+d", (7, 7, 7), "0007 7   |+7"),
        ("%s %s %b", (True, None, False), "true null false"),
        ("100%%%n", (), "100%\n"),
        ("%.3s", ("abcdef",), "abc"),
    ],
)
def test_conversions_are_those_of_java(pattern: str, values: tuple[object, ...], text: str) -> None:
    """Widths, flags and precision, with numbers rounded half up from their shortest decimal form."""
    assert java_format(pattern, *values) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (1234567.5, "1234567.5"),
        (1e7, "1.0E7"),
        (1.25e-5, "1.25E-5"),
        (-2.5e10, "-2.5E10"),
        (float("nan"), "NaN"),
    ],
)
def test_floating_point_numbers_are_those_of_java(value: float, text: str) -> None:
    """With an exponent outside 0.001 to 10,000,000."""
    assert java_text(value) == text


def test_of_long_names_the_front_is_printed() -> None:
    """The first 64 characters of topics and groups, the first 32 of brokers."""
    assert cut_front("y" * 64 + "x" * 10) == "y" * 64
    assert cut_broker("y" * 32 + "x") == "y" * 32
    assert cut_front("short") == "short"


def test_times_are_local_times() -> None:
    """To the second."""
    assert len(local_time(1_700_000_000_123)) == len("2023-11-14 22:13:20")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Orders \u00fc \u3000 \u4e2d\u6587 \U0001f600", "Orders \u00fc \u3000 \u4e2d\u6587 \U0001f600"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J\x7f\x00", "\\x9b2J\\x7f\\x00"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\ud800", "\\ud800"),
    ],
)
def test_control_characters_of_names_are_printed_escaped(name: str, shown: str) -> None:
    """A name cannot move the cursor of a terminal, or add a row. Other text is unchanged."""
    assert java_format("%s|%-3s", name, 1) == f"{shown}|1  "


def test_lines_keep_their_ends_and_tabs() -> None:
    """Escapes, and a carriage return within a line, are printed escaped."""
    text = "one\r\n\ttwo\nthree"
    assert java_format("%s", Lines(text)) == text
    assert java_format("%s", Lines("paid\rlost\x1b[0m")) == "paid\\rlost\\x1b[0m"


@pytest.mark.parametrize(
    ("timestamp_ms", "year"),
    [
        (2**63 - 1, 292278994),
        (-(2**63), 292275056),
        (253_402_300_800_000 + 86_400_000, 10000),
        (-62_135_700_000_000, 1),
    ],
)
def test_times_that_clients_made_up_have_a_text(timestamp_ms: int, year: int) -> None:
    """Producers set the time of birth, and any client may write a trace; Java prints such years too."""
    assert re.fullmatch(rf"{year:04}-\d\d-\d\d \d\d:\d\d:\d\d", local_time(timestamp_ms))
