"""Tables and texts of the jobs."""

import pytest

from skylarkmq.clients.sdk.base.errors import escaped
from skylarkmq.clients.terminal.printed_output import counted, duration, preview, print_tables, table, utc


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 ms"),
        (0.35, "350 ms"),
        (12.54, "12.5 s"),
        (200.0, "3 m 20 s"),
        (7_500.0, "2 h 5 m"),
        (360_000.0, "4 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    """None is shown as a dash."""
    assert duration(seconds) == text


def test_a_time_is_utc_with_milliseconds() -> None:
    """The same text on every machine."""
    assert utc(1_714_568_400_123) == "2024-05-01T13:00:00.123Z"
    assert utc(None) is None
    assert utc(2**63 - 1) is utc(-(2**63)) is None


def test_a_count_has_its_noun() -> None:
    """In singular and plural."""
    assert [counted(count, "dead letter") for count in (0, 1, 1_234)] == [
        "0 dead letters",
        "1 dead letter",
        "1,234 dead letters",
    ]


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """In cells and titles; markup of rich is plain text."""
    assert escaped("a\x1b[2J\n\u202eb größer") == "a\\x1b[2J\\n\\u202eb größer"
    print_tables("x", [table("g\x07", ("key", "count"), [("[red]\x1b[31m", 1_234), (None, 5)])])
    output = capsys.readouterr().out
    assert "g\\x07" in output
    assert "[red]\\x1b[31m" in output
    assert "1,234" in output
    assert "\x1b" not in output


def test_a_table_without_rows_is_omitted(capsys: pytest.CaptureFixture[str]) -> None:
    """The line above the tables remains."""
    print_tables("nothing found", [table("Values", ("value",), [])])
    assert capsys.readouterr().out == "nothing found\n"


def test_all_columns_fit_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts are folded; no column is lost."""
    monkeypatch.setenv("COLUMNS", "80")
    columns = ("message", "group", "time", "reason", "body", "count")
    print_tables("x", [table("Letters", columns, [("m" * 56, "group-" * 5, "05-01 13:00:00", "r " * 40, "b" * 80, 7)])])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = "".join(lines)
    assert text.count("m") >= 56
    assert text.count("b") >= 80
    assert all(name in text for name in columns)


def test_the_preview_of_a_body_is_short_text() -> None:
    """Bytes that are not UTF-8 are escaped."""
    assert preview(b"caf\xc3\xa9 \xff") == "café \\xff"
    assert preview(b"x" * 100) == "x" * 79 + "…"
    assert preview(None) == "-"
