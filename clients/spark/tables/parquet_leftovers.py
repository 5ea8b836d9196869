"""Deletion of the files that failed attempts left in a directory of Parquet files.

A file is a leftover if Spark's log does not name it, and if it was changed before a time that is so long ago that the
attempt that wrote it cannot run any more. The log has absolute paths: in a directory that was copied or moved, it names
none of the files, so such a directory is refused.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from skylarkmq.clients.spark.tables.availability import Unavailable
from skylarkmq.clients.spark.tables.hadoop_path import HadoopFile, HadoopPath
from skylarkmq.clients.spark.tables.parquet import LOG, SUFFIX, paths_in
from skylarkmq.clients.spark.tables.results import Expired

LEAST_AGE: Final = timedelta(days=1)


def require_age(age: timedelta) -> None:
    """Raise Unavailable if running tasks may still write files of this age."""
    if age < LEAST_AGE:
        raise Unavailable("--older-than must be 1d or more for Parquet: a running task may still write younger files")


def delete_leftovers(spark: SparkSession, directory: str, older_than: datetime) -> Expired:
    """Delete the leftovers that were last changed before a time. Raises Unavailable."""
    place = HadoopPath.of(spark, directory)
    log = place.child(LOG)
    if not log.exists():
        raise Unavailable(f"{place.uri} has no {LOG}: it is not a directory that mqspark-pipeline writes")
    named = frozenset(path for file in log.files() for path in paths_in(file.path.text()))
    require_place(named, place.uri)
    paths = list(leftovers(place.files(), named, older_than))
    for path in paths:
        path.delete()
    return Expired(len(paths))


def require_place(named: Collection[str], directory: str) -> None:
    """Raise Unavailable if the log names files of another directory, or no file."""
    if not named:
        raise Unavailable(
            f"the log of {directory} names no file, so leftovers cannot be distinguished from other files"
        )
    other = next((path for path in named if not path.startswith(directory.rstrip("/") + "/")), None)
    if other is not None:
        raise Unavailable(
            f"the log of {directory} names files of another directory, such as {other}: the directory was copied or "
            "moved, or is named in another way. Nothing was deleted"
        )


def leftovers(files: Iterable[HadoopFile], named: Collection[str], older_than: datetime) -> Iterator[HadoopPath]:
    """Yield the Parquet files that the log does not name and that were changed before a time."""
    limit_ms = int(older_than.timestamp() * 1000)
    for file in files:
        if file.path.name.endswith(SUFFIX) and file.changed_ms < limit_ms and file.path.uri not in named:
            yield file.path
