"""Results of long runs: CSV files under docs/benchmarks to which each piece of a run appends a line.

A run that is given again skips the pieces that its file has, so long counts may be reached in several sittings.
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
    """What the file has so far; nothing if there is none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def today() -> str:
    """The date in UTC, as YYYY-MM-DD."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def commit() -> str:
    """The short name of the commit that is checked out."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"
