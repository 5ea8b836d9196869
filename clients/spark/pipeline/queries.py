"""The pipeline's queries: topics to a table, and messages that do not parse to a side table or a dead-letter topic.

    parquet | delta | iceberg    the table, and the side table <output>_bad (pipeline/table_queries.py)
    bad-rows                     the side table, if the table is a directory of Parquet files
    dead-letters                 the dead-letter topic, by the sink, with marks and the ledger

Each query has its own checkpoint below the job's checkpoint and runs independently. A message is in one of the
outputs: once in a table, or at least once among the dead letters.

Before PySpark 4.2, a job without an interval runs without Trigger.AvailableNow; its queries must be stopped at their
target (target.py).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.spark.base.cluster_options import of_cluster
from skylarkmq.clients.spark.base.features import READ_LIMITS
from skylarkmq.clients.spark.pipeline.backfill import store_options
from skylarkmq.clients.spark.pipeline.job import Job, settings
from skylarkmq.clients.spark.pipeline.rows import dead_letters
from skylarkmq.clients.spark.pipeline.table_queries import Messages, require_library, writers
from skylarkmq.clients.spark.source.offsets import Offset

FORMAT: Final = "rocketmq"
STORE_FORMAT: Final = "rocketmq-store"
DEAD_LETTERS: Final = "dead-letters"
AT_ONCE: Final = "0 seconds"


class Started(NamedTuple):
    """Running queries. `begins`: the offsets at which queries continue whose checkpoint was lost, by name."""

    queries: list[StreamingQuery]
    begins: dict[str, Positions]


def start(spark: SparkSession, job: Job) -> Started:
    """Start the queries. Raises Unavailable, SchemaConflict, StaleCheckpoint, DamagedOffsets."""
    require_library(spark, job)
    for name, value in settings(job).items():
        spark.conf.set(name, value)
    again = {name: value for name, value in job.source.items() if name.lower() != "groupid"}
    tables = writers(spark, job, _messages_of(spark, job, job.source), _messages_of(spark, job, again))
    queries = [_started(table.writer, job, table.name) for table in tables]
    if job.decoding.is_on and job.dead_letter_topic is not None:
        messages = _messages_of(spark, job, again)({"includeProperties": "true"})
        queries.append(_started(_dead_letters(messages, job, job.dead_letter_topic), job, DEAD_LETTERS))
    return Started(queries, {name: Offset.of(first.start).ends for name, _, first in tables if first is not None})


def _dead_letters(messages: DataFrame, job: Job, topic: str) -> DataStreamWriter:
    writer = dead_letters(messages, job.decoding).writeStream.format(FORMAT)
    return writer.options(**of_cluster(job.source), topic=topic, skipCommittedBatches="true")


def _messages_of(spark: SparkSession, job: Job, options: Mapping[str, str]) -> Messages:
    if job.backfill is None:
        return lambda more: spark.readStream.format(FORMAT).options(**{**options, **more}).load()
    of_store = store_options(options, job.backfill)
    return lambda more: spark.readStream.format(STORE_FORMAT).options(**{**of_store, **more}).load()


def _started(writer: DataStreamWriter, job: Job, name: str) -> StreamingQuery:
    writer = writer.queryName(name).outputMode("append").option("checkpointLocation", job.checkpoint_of(name))
    if job.interval is None and READ_LIMITS.is_present:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=job.interval or AT_ONCE).start()
