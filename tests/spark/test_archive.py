"""The archive job on a real Spark: each segment is a task, and Spark reads the archive."""

from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from skylarkmq.clients.spark.archive.job import opened_job
from skylarkmq.clients.spark.archive.runners import SparkRunner
from skylarkmq.clients.spark.command_line import error_summary
from tests.clients.arrow.store.stored_rows import everything
from tests.clients.spark.archive.archived import row_of, rows, settings_of
from tests.harness.golden_stores import golden_store

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # PySpark 4.0 leaves sockets open
]

ERRORS = (PySparkException, Py4JError)  # of Spark's jobs; which one depends on the version


def test_spark_archives_segments_and_reads_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    """A store of RocketMQ: every record once, with `readable` for the messages that consumers could read."""
    store = golden_store("4.9.8", "clean", tmp_path / "store")
    settings = settings_of(store.root, tmp_path / "archive", include_last=True, everything=True)
    with opened_job(settings) as job:
        summary = job.run(SparkRunner(spark), lambda entry: None)
    records = everything(store.root)
    assert (summary.ranges, summary.messages, summary.mark) == (4, len(records), store.end)
    readable = {row["physicalOffset"] for row in rows(tmp_path / "archive") if row["readable"]}
    wanted = [row_of(one, readable=one.physical_offset in readable) for one in records]
    assert rows(tmp_path / "archive") == wanted
    assert len(readable) > 100
    frame = spark.read.parquet(str(tmp_path / "archive" / "messages" / "*")).orderBy("physicalOffset")
    assert frame.toArrow().to_pylist() == wanted


def test_an_error_of_a_task_is_the_error_of_the_job(spark: SparkSession, tmp_path: Path) -> None:
    """Damage fails the job, with our text in Spark's."""
    store = golden_store("4.9.8", "clean", tmp_path / "store")
    with (store.root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.write(b"junk")
    with opened_job(settings_of(store.root, tmp_path / "archive")) as job, pytest.raises(ERRORS) as raised:
        job.run(SparkRunner(spark), lambda entry: None)
    assert error_summary(str(raised.value)).startswith("no record at byte 0 of the log")
