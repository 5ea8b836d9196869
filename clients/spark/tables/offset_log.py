"""Spark's own log of a query: the end of each batch, which Spark writes before the batch runs.

    <checkpoint>/offsets/12    v1, a line of settings, then a line with the offset of each source: here one
    <checkpoint>/commits/12    written after the batch

Spark passes no offsets to a function of `foreachBatch`, so they are read from these files.
"""

import json
from typing import Any, Final, Protocol

from skylarkmq.clients.spark.tables.hadoop_path import HadoopPath

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
VERSION: Final = "v1"
LINES: Final = 3


class StaleCheckpoint(Exception):
    """A checkpoint that lacks batches which the table contains; the text names the remedy."""


class Log(Protocol):
    """The log of a query; `checkpoint` is the absolute path."""

    @property
    def checkpoint(self) -> str:
        """Return the path."""

    def has_commits(self) -> bool:
        """Return whether Spark has finished a batch."""

    def end(self, batch: int) -> dict[str, Any]:
        """Return the end of a batch."""


class OffsetLog:
    """The log of a query at a path of any file system that Spark supports."""

    def __init__(self, path: HadoopPath) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"<OffsetLog {self.checkpoint}>"

    @property
    def checkpoint(self) -> str:
        """Return the absolute path."""
        return self._path.uri

    def has_commits(self) -> bool:
        """Return whether Spark has finished a batch."""
        return last_number(self._path.child(COMMITS)) is not None

    def last(self) -> int | None:
        """Return the last batch that Spark has begun; None: no batch."""
        return last_number(self._path.child(OFFSETS))

    def end(self, batch: int) -> dict[str, Any]:
        """Return the end of a batch. Raises RuntimeError if the file is damaged or has another format."""
        path = self._path.child(OFFSETS).child(str(batch))
        return end_in(path.text(), path.uri)


def last_number(directory: HadoopPath) -> int | None:
    """Return the largest batch of the files `12` or `12.compact` in a directory, or None."""
    if not directory.exists():
        return None
    names = (file.path.name.removesuffix(".compact") for file in directory.files())
    return max((int(name) for name in names if name.isdecimal()), default=None)


def end_in(text: str, name: str) -> dict[str, Any]:
    """Return the offset in the text of a file. Raises RuntimeError if the file is damaged or has another format."""
    lines = text.splitlines()
    if len(lines) != LINES or lines[0] != VERSION or not lines[2].startswith("{"):
        raise RuntimeError(
            f"{name} has a format of Spark that is not supported: unset spark.sql.streaming.offsetLog.formatVersion"
        )
    try:
        offset: dict[str, Any] = json.loads(lines[2])
    except (ValueError, RecursionError) as error:
        raise RuntimeError(f"{name} is damaged ({error}): restore the checkpoint, or start with a new one") from error
    return offset
