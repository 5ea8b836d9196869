"""`format("rocketmq")`: Spark's entry points, and the modules that implement them.

    options    -> source_options.py                 once in each process
    offsets    -> stream_plan.py over cluster.py    in the query's own process, which keeps its connections
    partitions -> splitting.py                      ranges of queues; a task may read several
    read       -> range_reader.py                   in the executors: pulls, and record batches
    writers    -> sink.py

A streaming reader is one of two classes, because Spark passes limits since PySpark 4.2 only: limited_reader.py, and
stream_reader.py for older versions.

Spark creates a reader in three places: one that plans, for the life of the query; one whose `read` is pickled, once;
and the copies in the executors. So constructors only store options, and no open resource is pickled.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from skylarkmq.clients.arrow.topic.bounds import batch_ranges
from skylarkmq.clients.arrow.topic.cluster import Cluster
from skylarkmq.clients.arrow.topic.cluster_retries import with_cluster_retries
from skylarkmq.clients.spark.base.features import READ_LIMITS, StreamArrowWriter, require
from skylarkmq.clients.spark.base.options import OptionError, Scope, parse, warn_out_of_scope
from skylarkmq.clients.spark.base.schema import ddl
from skylarkmq.clients.spark.sink.sink import batch_writer, stream_writer
from skylarkmq.clients.spark.source.partitions import read, tasks
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS, SourceOptions
from skylarkmq.clients.spark.source.stream_reader import PlannedReader

if TYPE_CHECKING or READ_LIMITS.is_present:
    from skylarkmq.clients.spark.source.limited_reader import LimitedStreamReader as StreamReader
else:
    from skylarkmq.clients.spark.source.stream_reader import StreamReader


class RocketMqSource(DataSource):
    """Messages as rows, with the columns of clients/arrow/schema.py."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rocketmq"

    def schema(self) -> str:
        """Return the columns as DDL. Raises OptionError."""
        return ddl(parse(SOURCE_OPTIONS, self.options).columns)

    def reader(self, schema: StructType) -> "BatchReader":
        """Return the reader of `spark.read`."""
        return BatchReader(self._options(schema, Scope.BATCH))

    def streamReader(self, schema: StructType) -> PlannedReader:  # noqa: N802
        """Return the reader of `spark.readStream`. Raises OptionError."""
        options = self._options(schema, Scope.STREAM)
        if options.min_per_trigger is not None:
            require(READ_LIMITS, "minOffsetsPerTrigger")
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of `df.write`; wait for the topic of the options. Raises WriteFailed without it."""
        writer = batch_writer(self.options, schema, overwrite)
        writer.check_topic()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:  # noqa: N802
        """Return the writer of `df.writeStream`."""
        return stream_writer(self.options, schema, overwrite)

    def _options(self, schema: StructType, scope: Scope) -> SourceOptions:
        options = parse(SOURCE_OPTIONS, self.options)
        if tuple(schema.fieldNames()) != options.columns.names:
            raise OptionError(f"rocketmq does not accept a schema, its columns are: {ddl(options.columns)}")
        warn_out_of_scope(SOURCE_OPTIONS, self.options, scope)
        return options


class BatchReader(DataSourceReader):
    """Reads between two sets of offsets, which are determined when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._source = options

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Raises Unreachable, InvalidBounds, ClientError."""
        cluster = Cluster(self._source)
        try:
            ranges = with_cluster_retries(self._source.broker_timeout_ms, lambda: batch_ranges(cluster, self._source))
            return tasks(self._source, cluster, ranges)
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows, on an executor."""
        return read(self._source, partition)
