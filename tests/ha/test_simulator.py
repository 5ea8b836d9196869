"""The simulator finds nothing in the core, and finds a core that lacks a rule."""

from pathlib import Path

import pytest

from tests.ha import simulator
from tests.ha.core_mutants import mutant
from tests.ha.simulated_group import Summary, Violation
from tests.ha.simulator import PIECE, missing, run, run_block
from tests.harness import results

BLOCKS = [range(first, first + 250) for first in range(0, 3000, 250)]
FOUND = {  # the number of seeds that suffices
    "2-swap-without-comparison": 40,
    "3-removal-counts-before-the-response": 200,
    "3-stores-without-acknowledgement-are-left-out": 10,
    "4-followers-show-what-they-have": 10,
    "5-the-set-shrinks-below-the-minimum": 40,
    "7-truncation-by-length": 30,
    "8-written-is-acknowledged": 20,
}


def fails(seed: int) -> bool:
    """Return whether a check of this run fails."""
    try:
        run(seed)
    except Violation:
        return True
    return False


def test_a_seed_gives_the_same_run_each_time() -> None:
    """A failed seed can be repeated."""
    lines: list[list[str]] = [[], []]
    summaries = [run(5, lines[n].append) for n in range(2)]
    assert (lines[0], summaries[0]) == (lines[1], summaries[1])
    assert summaries[0].terms > 0
    assert summaries[0].committed > 0


def test_some_schedules_pass() -> None:
    """A group commits, and becomes whole again after its faults."""
    summary, failed = run_block(range(10_000, 10_008))
    assert failed == []
    assert summary.runs == 8
    assert summary.faults > 8


@pytest.mark.crash
@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_schedules_pass(seeds: range) -> None:
    """Nothing that was committed is lost, and a quiet group commits again. Each kind of event happens."""
    summary, failed = run_block(seeds)
    assert failed == []
    assert min(summary.committed, summary.terms, summary.faults, summary.set_changes, summary.truncations) > 0


@pytest.mark.crash
@pytest.mark.parametrize("name", FOUND)
def test_a_core_without_a_rule_is_found(name: str) -> None:
    """The checks of the simulator can fail."""
    with mutant(name):
        assert any(fails(seed) for seed in range(FOUND[name]))


@pytest.mark.parametrize("seed", [254269, 657911, 670764])
def test_a_node_that_was_cut_off_until_the_repair_follows(seed: int) -> None:
    """A former leader that learns late of its successor, for example: more than 3 s after the last message."""
    assert not fails(seed)


def test_the_command_reports_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--trace` prints the faults, terms and records of one seed."""
    monkeypatch.setattr("sys.argv", ["simulator", "--seeds", "7", "--trace"])
    assert simulator.main() == 0
    printed = capsys.readouterr().out
    assert "record: epoch 1, leader n1" in printed
    assert "everything is repaired" in printed


def test_seeds_that_a_results_file_has_are_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A long run continues where it was interrupted, with ranges of seeds that do not overlap."""
    file = tmp_path / "results.csv"
    command = ["simulator", "--jobs", "1", "--results", str(file), "--seeds"]
    for seeds in ("3-4", "2-6", "2-6"):
        monkeypatch.setattr("sys.argv", [*command, seeds])
        assert simulator.main() == 0
    rows = results.rows_of(file)
    assert [(row["first"], row["last"], row["runs"], row["findings"]) for row in rows] == [
        ("3", "4", "2", ""),
        ("2", "2", "1", ""),
        ("5", "6", "2", ""),
    ]
    assert all(int(row["committed"]) > 0 for row in rows)


def test_a_line_of_the_results_has_a_limited_number_of_seeds(tmp_path: Path) -> None:
    """An interrupted run loses one piece at most."""
    pieces = list(missing(range(5, 2 * PIECE + 7), tmp_path / "absent.csv"))
    assert pieces == [range(5, PIECE + 5), range(PIECE + 5, 2 * PIECE + 5), range(2 * PIECE + 5, 2 * PIECE + 7)]


def test_counts_add_up() -> None:
    """A summary of several runs has their sums."""
    total = Summary(runs=1, committed=2)
    total.add(Summary(runs=2, committed=3, terms=1))
    assert total == Summary(runs=3, committed=5, terms=1)
