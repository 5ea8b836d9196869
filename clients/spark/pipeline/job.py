"""The pipeline's queries: topics to Parquet, and messages that do not parse to a dead-letter topic.

    parquet         <output>/topic=Orders/hour=2024-05-01-13/*.parquet
    dead-letters    the dead-letter topic, by the sink, with marks and the ledger

Each query has its own checkpoint below the job's checkpoint and runs independently. A message is in one of the two
outputs: once in Parquet (by the log that Spark's file sink keeps beside the files), or at least once among the dead
letters. Files are as large as a batch allows: the rows of a topic and an hour are written together, and split at
`file_bytes` (size during the shuffle; compressed files are smaller) and `file_rows`.

Before PySpark 4.2, a job without an interval runs without Trigger.AvailableNow; its queries must be stopped at their
target (target.py).
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from skylarkmq.clients.spark.cluster_options import of_cluster
from skylarkmq.clients.spark.decoding.encodings import Decoding
from skylarkmq.clients.spark.features import READ_LIMITS
from skylarkmq.clients.spark.pipeline.backfill import Backfill, store_options
from skylarkmq.clients.spark.pipeline.rows import dead_letters, good

FORMAT: Final = "rocketmq"
STORE_FORMAT: Final = "rocketmq-store"
PARQUET: Final = "parquet"
DEAD_LETTERS: Final = "dead-letters"
AT_ONCE: Final = "0 seconds"
ARROW_BATCH_BYTES: Final = 16 << 20


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a job. `source`: options of the source; `interval` None: write the existing messages, and end.

    `backfill`: read this store instead of the topics of `source`.
    """

    source: Mapping[str, str]
    output: str
    checkpoint: str
    decoding: Decoding = Decoding()
    keep_body: bool = False
    dead_letter_topic: str | None = None
    interval: str | None = None
    backfill: Backfill | None = None
    file_bytes: int = 256 * 1024 * 1024
    file_rows: int = 5_000_000


def settings(job: Job) -> dict[str, str]:
    """Return the settings that the session needs."""
    return {
        "spark.sql.session.timeZone": "UTC",  # the column hour is UTC
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),  # of bodies on the way to Python
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.streaming.stateless.enabled": "true",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(job.file_bytes),
    }


def start(spark: SparkSession, job: Job) -> list[StreamingQuery]:
    """Start the queries."""
    for name, value in settings(job).items():
        spark.conf.set(name, value)
    queries = [_parquet(spark, job)]
    if job.decoding.is_on and job.dead_letter_topic is not None:
        queries.append(_dead_letters(spark, job, job.dead_letter_topic))
    return queries


def _parquet(spark: SparkSession, job: Job) -> StreamingQuery:
    rows = good(_messages(spark, job, job.source), job.decoding, keep_body=job.keep_body)
    writer = rows.writeStream.format("parquet").partitionBy("topic", "hour").option("path", job.output)
    return _started(writer.option("maxRecordsPerFile", str(job.file_rows)), job, PARQUET)


def _dead_letters(spark: SparkSession, job: Job, topic: str) -> StreamingQuery:
    options = {name: value for name, value in job.source.items() if name.lower() != "groupid"}  # the parquet query's
    rows = dead_letters(_messages(spark, job, options | {"includeProperties": "true"}), job.decoding)
    writer = rows.writeStream.format(FORMAT).options(**of_cluster(job.source), topic=topic, skipCommittedBatches="true")
    return _started(writer, job, DEAD_LETTERS)


def _messages(spark: SparkSession, job: Job, options: Mapping[str, str]) -> DataFrame:
    if job.backfill is not None:
        return spark.readStream.format(STORE_FORMAT).options(**store_options(options, job.backfill)).load()
    return spark.readStream.format(FORMAT).options(**options).load()


def _started(writer: DataStreamWriter, job: Job, name: str) -> StreamingQuery:
    writer = writer.queryName(name).outputMode("append").option("checkpointLocation", f"{job.checkpoint}/{name}")
    if job.interval is None and READ_LIMITS.is_present:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=job.interval or AT_ONCE).start()
