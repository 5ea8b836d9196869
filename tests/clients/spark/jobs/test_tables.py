"""The tables of the commands, from summaries."""

from collections.abc import Iterable

import msgspec
import pytest
from rich.table import Table

from skylarkmq.clients.spark.jobs import dead_letters_command, duplicates_command, lag_command, traces_command
from skylarkmq.clients.spark.jobs.dead_letters import DeadLettersSummary
from skylarkmq.clients.spark.jobs.duplicates import Distance, Duplicated, DuplicatesSummary, Place
from skylarkmq.clients.spark.jobs.lag import LagSummary
from skylarkmq.clients.spark.jobs.trace_summary import Consuming, Producing, Slow, Spread, TracesSummary
from skylarkmq.clients.terminal.printed_output import print_tables


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def lines_of(capsys: pytest.CaptureFixture[str], heading: str, tables: Iterable[Table]) -> list[str]:
    """Return the printed lines, with runs of spaces as one."""
    print_tables(heading, tables)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_duplicates_have_a_line_for_each_place(capsys: pytest.CaptureFixture[str]) -> None:
    """Distances, values, places; without duplicates one line."""
    places = [
        Place(
            broker_name="b", queue_id=at, queue_offset=7, msg_id="m", stored_at="2024-05-01T13:00:00.000Z", gap_ms=gap
        )
        for at, gap in enumerate((None, 61_000))
    ]
    found = Duplicated(
        value="k1", messages=2, same_body=False, shortest_gap_ms=61_000, longest_gap_ms=61_000, places=places
    )
    summary = DuplicatesSummary(
        topic="T",
        by="key",
        messages=1_000,
        values=999,
        duplicated_values=1,
        extra_messages=1,
        distances=[Distance(gap="under 1 h", messages=1)],
        top=[found],
    )
    lines = lines_of(capsys, duplicates_command.heading(summary), duplicates_command.tables(summary))
    assert lines[0] == "T by key: 1,000 messages, 999 values, 1 of them repeated by 1 messages"
    assert {
        "under 1 h 1",
        "k1 2 different 1 m 1 s 1 m 1 s",
        "k1 b 0 7 05-01 13:00:00 -",
        "k1 b 1 7 05-01 13:00:00 1 m 1 s",
    } <= {*lines}
    none = msgspec.structs.replace(summary, duplicated_values=0, extra_messages=0)
    assert list(duplicates_command.tables(none)) == []


def test_traces_have_times_in_ms(capsys: pytest.CaptureFixture[str]) -> None:
    """A client's address follows its group; unknown times are a dash."""
    spread, unknown = Spread(p50=1.0, p99=20.0, max=1_234.0), Spread(p50=None, p99=None, max=None)
    producing = Producing(topic="T", producer_group="p", client_host="10.0.0.1", sends=5, failed=1, cost=spread)
    consuming = Consuming(
        topic=None,
        consumer_group="c",
        client_host=None,
        calls=4,
        failed=1,
        unfinished=1,
        redeliveries=0,
        latency=unknown,
        duration=spread,
    )
    slow = Slow(
        msg_id="m",
        topic="T",
        consumer_group="c",
        broker="b",
        begun_at="2024-05-01T13:00:00.123Z",
        latency_ms=None,
        duration_ms=9,
        earlier_deliveries=1,
        outcome="exception",
    )
    summary = TracesSummary(
        topic="TRACES",
        sends=5,
        calls=4,
        clock_differences=2,
        producers=[producing],
        consumers=[consuming],
        slowest_handlers=[slow],
        slowest_deliveries=[],
    )
    lines = lines_of(capsys, traces_command.heading(summary), traces_command.tables(summary))
    assert " ".join(lines).startswith("TRACES: 5 sends, 4 handler calls; 2 calls began before the end of their send")
    assert {"T p 10.0.0.1 5 1 1.0 20.0 1,234.0", "- c 4 1 1 0", "- c - - -", "- c 1.0 20.0 1,234.0"} <= {*lines}
    assert "m T c 05-01 13:00:00 - 9 1 exception" in lines
    assert "Slowest deliveries (ms)" not in lines


def test_empty_results_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """No samples, no letters."""
    lag = LagSummary(first_sample_at=None, last_sample_at=None, samples=0, total_lag=0, window_seconds=600.0, groups=[])
    assert lines_of(capsys, lag_command.heading(lag), lag_command.tables(lag)) == ["no samples in this range"]
    letters = DeadLettersSummary(topic="%DLQ%g", by="reason", letters=0, group_count=0, groups=[])
    lines = lines_of(capsys, dead_letters_command.heading(letters), dead_letters_command.tables(letters))
    assert lines == ["%DLQ%g by reason: 0 dead letters in 0 groups"]
