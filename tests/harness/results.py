"""Results of long runs: CSV files under docs/benchmarks, with a line per part of a run.

A repeated run skips the parts that its file has, so a long run can be completed in several sessions.
"""

import csv
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path


def append(path: Path, columns: Sequence[str], row: Sequence[object]) -> None:
    """Append `row`; a new file gets the names of the columns first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(columns)
        writer.writerow(row)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of the file so far; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def today() -> str:
    """The date in UTC, as YYYY-MM-DD."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def commit() -> str:
    """Return the short id of the commit that is checked out."""
    output = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return output.stdout.strip() or "unknown"
