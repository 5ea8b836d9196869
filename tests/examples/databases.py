"""The SQLite databases of the programs: read, and locked so that a handler waits in the middle of its work."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.harness.limits import WAIT_LIMIT_S

POLL_S: Final = 0.01


@contextmanager
def locked(path: Path) -> Iterator[Callable[[], None]]:
    """Keep other processes from writing: they wait, as long as their programs do. Yield a function that ends this."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield database.rollback
        database.rollback()


def rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """Return the committed rows."""
    with closing(sqlite3.connect(path, timeout=WAIT_LIMIT_S)) as database:
        return database.execute(statement).fetchall()


def execute(path: Path, statement: str) -> None:
    """Run and commit a statement."""
    with closing(sqlite3.connect(path, timeout=WAIT_LIMIT_S)) as database, database:
        database.execute(statement)


def wait_for_rows(path: Path, statement: str) -> None:
    """Wait until a statement returns a row; SQLite has no event for that."""
    deadline = time.monotonic() + WAIT_LIMIT_S
    while not rows(path, statement):
        assert time.monotonic() < deadline, f"no row: {statement}"
        time.sleep(POLL_S)
