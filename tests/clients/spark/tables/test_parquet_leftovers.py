"""Which files of a directory are leftovers."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import pytest

from skylarkmq.clients.spark.tables.availability import Unavailable
from skylarkmq.clients.spark.tables.hadoop_path import HadoopFile
from skylarkmq.clients.spark.tables.parquet_leftovers import leftovers, require_age, require_place

LIMIT = datetime(2024, 5, 1, tzinfo=UTC)


class FakePath(NamedTuple):
    """A path without Hadoop."""

    uri: str

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.uri.rpartition("/")[2]


def file(name: str, age_ms: int) -> HadoopFile:
    """Return a file that was changed so long before the limit."""
    return HadoopFile(cast(Any, FakePath(f"file:/lake/{name}")), int(LIMIT.timestamp() * 1000) - age_ms)


def test_old_parquet_files_that_the_log_does_not_name_are_leftovers() -> None:
    """A file that was changed at the limit is not old."""
    files = [file("named.parquet", 1), file("old.parquet", 1), file("young.parquet", 0), file("_spark_metadata/0", 1)]
    assert [path.uri for path in leftovers(files, {"file:/lake/named.parquet"}, LIMIT)] == ["file:/lake/old.parquet"]


def test_a_day_is_the_least_age() -> None:
    """A running task may still write younger files."""
    require_age(timedelta(days=1))
    with pytest.raises(Unavailable, match="1d or more"):
        require_age(timedelta(days=1) - timedelta(milliseconds=1))


@pytest.mark.parametrize("named", [[], ["file:/lake/a.parquet", "file:/lakes/b.parquet"], ["s3a://lake/a.parquet"]])
def test_a_log_of_another_directory_is_refused(named: list[str]) -> None:
    """All files would be leftovers."""
    with pytest.raises(Unavailable, match=r"names no file|names files of another directory"):
        require_place(named, "file:/lake")


def test_a_log_of_the_directory_is_accepted() -> None:
    """With and without a slash at the end."""
    for directory in ("file:/lake", "file:/lake/"):
        require_place(["file:/lake/topic=a/b.parquet"], directory)
