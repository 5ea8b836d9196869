"""The command of replicated groups continues where it ended. No broker runs for these checks."""

import csv
from pathlib import Path

import pytest

from tests.interop import replication
from tests.interop.replication import Counts, Load


def lines_of(results: Path) -> list[dict[str, str]]:
    with results.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def differing(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """Return the (role, seed) of groups that differ, which a test may change; the others are equal."""
    which: set[tuple[str, int]] = set()

    def run(_home: Path, load: Load, counts: Counts, _report: object) -> Counts:
        counts.log_bytes = 1_500_000
        assert (load.role, load.seed) not in which, "00000000 differs\nfurther lines"
        counts.read = load.messages
        return counts

    monkeypatch.setattr(replication, "run", run)
    return which


def call(monkeypatch: pytest.MonkeyPatch, *options: object) -> int:
    monkeypatch.setattr("sys.argv", ["replication", *map(str, options)])
    return replication.main()


def test_a_repeated_command_runs_the_groups_that_are_missing_or_differed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, differing: set[tuple[str, int]]
) -> None:
    """A group that differed has a line with the reason, and runs again; equal groups do not."""
    options = ("--version", "4.9.7", "--messages", 100, "--kills", 2, "--results", tmp_path / "results.csv")
    differing.add(("master", 1))
    assert call(monkeypatch, *options, "--seeds", "0-1") == 1
    lines = lines_of(tmp_path / "results.csv")
    assert [(line["role"], line["seed"], line["read"], line["result"]) for line in lines] == [
        ("slave", "0", "100", "equal"),
        ("slave", "1", "100", "equal"),
        ("master", "0", "100", "equal"),
        ("master", "1", "0", "00000000 differs"),
    ]
    assert {(line["rocketmq"], line["messages"], line["kills"], line["log_mb"]) for line in lines} == {
        ("4.9.7", "100", "2", "1.5")
    }
    differing.clear()
    assert call(monkeypatch, *options, "--seeds", "0-2") == 0
    later = lines_of(tmp_path / "results.csv")[len(lines) :]
    assert [(line["role"], line["seed"]) for line in later] == [("slave", "2"), ("master", "1"), ("master", "2")]
    assert call(monkeypatch, *options, "--seeds", "0-2") == 0
    assert len(lines_of(tmp_path / "results.csv")) == len(lines) + len(later)


@pytest.mark.parametrize("option", [("--seeds", "3-1"), ("--seeds", "x"), ("--messages", "0"), ("--kills", "-1")])
def test_invalid_options_are_refused(
    monkeypatch: pytest.MonkeyPatch, option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, and the last line names the option."""
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *option)
    assert ended.value.code == 2
    assert option[0] in capsys.readouterr().err.splitlines()[-1]
