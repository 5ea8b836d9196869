"""A short run of each fuzzer of the compiled modules, on the build that the other tests use."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from skylarkmq.protocol import compiled
from tests.fuzz import sanitized
from tests.fuzz.compiled import COLUMNS, run

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.skipif(compiled.load("decode") is None, reason="no compiled modules here"),
]

EXECUTIONS = {"dispatch": 20, "index": 60, "syncs": 100}
USUAL_EXECUTIONS = 400


@pytest.mark.parametrize("module", compiled.MODULES)
def test_each_fuzzer_finds_nothing(module: str) -> None:
    """There is no finding; the number of the last execution is kept for reports."""
    at, count = bytearray(8), EXECUTIONS.get(module, USUAL_EXECUTIONS)
    run(module, 20_261_123, 0, count, 3600, at)
    assert int.from_bytes(at, "little") == count


def test_the_command_appends_its_results(tmp_path: Path) -> None:
    """One line per module, with the parameters of the run."""
    record = tmp_path / "fuzz.csv"
    command = [sys.executable, "-m", "tests.fuzz.compiled", "--plain", "--module", "counts", "--count", "5"]
    command += ["--seed", "7", "--first", "3", "--results", str(record)]
    for _ in range(2):
        subprocess.run(command, check=True, cwd=sanitized.ROOT, capture_output=True)
    header, *rows = list(csv.reader(record.read_text().splitlines()))
    assert tuple(header) == COLUMNS
    assert [row[1:6] + row[7:] for row in rows] == [["ordinary", "counts", "7", "3", "5", "none"]] * 2
