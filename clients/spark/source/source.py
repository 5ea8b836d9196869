"""`format("rocketmq")`: Spark's entry points, and the modules that implement them.

    options    -> source_options.py                 once in each process
    offsets    -> stream_plan.py over cluster.py    in the query's own process, which keeps its connections
    partitions -> splitting.py                      ranges of queues; a task may read several
    read       -> range_reader.py                   in the executors: pulls, and record batches
    writers    -> sink.py

Spark creates a reader in three places: one that plans, for the life of the query; one whose `read` is pickled, once;
and the copies in the executors. So constructors only store options, and no open resource is pickled.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from skylarkmq.clients.arrow.topic.bounds import Unreachable, ends_of, find_queues, resolved, starts_of
from skylarkmq.clients.arrow.topic.cluster import UNREACHABLE, Cluster
from skylarkmq.clients.arrow.topic.range_reader import RangeReader, Work
from skylarkmq.clients.arrow.topic.splitting import Range, cut, ranges_of, tasks_of
from skylarkmq.clients.spark.options import OptionError, Scope, parse, warn_out_of_scope
from skylarkmq.clients.spark.schema import ddl
from skylarkmq.clients.spark.sink.sink import batch_writer, stream_writer
from skylarkmq.clients.spark.source.offsets import Offset
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS, SourceOptions
from skylarkmq.clients.spark.source.stream_plan import StreamPlan

PAUSE_S = 0.2

T = TypeVar("T")
log = logging.getLogger(__name__)


class RocketMqSource(DataSource):
    """Messages as rows; the columns are those of clients/arrow/schema.py."""

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

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802
        """Return the reader of `spark.readStream`."""
        return StreamReader(self._options(schema, Scope.STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of `df.write`."""
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return the writer of `df.writeStream`."""
        return stream_writer(self.options, schema, overwrite)

    def _options(self, schema: StructType, scope: Scope) -> SourceOptions:
        options = parse(SOURCE_OPTIONS, self.options)
        if tuple(schema.fieldNames()) != options.columns.names:
            raise OptionError(f"rocketmq does not accept a schema, its columns are: {ddl(options.columns)}")
        warn_out_of_scope(SOURCE_OPTIONS, self.options, scope)
        return options


class RangePartition(InputPartition):
    """The ranges of a task."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)


class BatchReader(DataSourceReader):
    """Reads between two sets of offsets, which are determined when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._source = options

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Raises Unreachable, InvalidBounds, ClientError."""
        cluster = Cluster(self._source)
        try:
            ranges = with_cluster_retries(self._source, lambda: self._ranges(cluster))
            return tasks(self._source, cluster, ranges)
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows, on an executor."""
        return read(self._source, partition)

    def _ranges(self, cluster: Cluster) -> list[Range]:
        queues = find_queues(cluster, self._source)
        starts = resolved(cluster, starts_of(cluster, self._source, queues, "earliest"))
        return ranges_of(starts, ends_of(cluster, self._source, queues))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's offsets and tasks; the method names are Spark's."""

    def __init__(self, options: SourceOptions) -> None:
        self._source = options
        self._cluster: Cluster | None = None
        self._plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the options: executors need nothing else."""
        return {"_source": self._source, "_cluster": None, "_plan": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query begins."""
        return with_cluster_retries(self._source, self._planned().begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the batch size of the options; with both limits set, the plan applies the minimum."""
        if self._source.max_per_trigger is not None:
            return ReadMaxRows(self._source.max_per_trigger)
        if self._source.min_per_trigger is not None:
            return ReadMinRows(self._source.min_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; `start` itself if there is no batch."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        plan = self._planned()
        is_all = isinstance(limit, ReadAllAvailable)
        return with_cluster_retries(self._source, lambda: plan.latest(start, most, now_ms(), is_all=is_all))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the queues as of the last `latestOffset`."""
        return self._planned().reported()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read the messages that exist now, and end."""
        with_cluster_retries(self._source, self._planned().fix_target)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return a batch's tasks."""
        ranges = self._planned().ranges(start, end)
        assert self._cluster is not None
        return tasks(self._source, self._cluster, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows, on an executor."""
        return read(self._source, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Commit the end of a finished batch to the group."""
        self._planned().commit(Offset.of(end).ends)

    def stop(self) -> None:
        """Close the connections; usually Spark kills the process instead."""
        if self._cluster is not None:
            self._cluster.close()

    def _planned(self) -> StreamPlan:
        if self._plan is None:
            self._cluster = Cluster(self._source)
            interval_s = self._source.lookup_interval_ms / 1000
            self._plan = StreamPlan(self._source, self._cluster, now_ms(), lambda: time.sleep(interval_s))
        return self._plan


def read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task; nothing for the empty partition that Spark adds if there are no tasks."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return RangeReader(options, partition.value).batches()


def tasks(options: SourceOptions, cluster: Cluster, ranges: list[Range]) -> list[InputPartition]:
    """Distribute ranges to tasks."""
    if not ranges:
        return []
    pieces = cut(ranges, options.max_per_partition, options.min_partitions)
    grouped = tasks_of(pieces, options.max_partitions)
    addresses = with_cluster_retries(options, lambda: cluster.addresses({piece.queue.broker_name for piece in ranges}))
    names = [task[0].queue.broker_name for task in grouped]
    return [RangePartition(Work(name, addresses.get(name), task)) for name, task in zip(names, grouped, strict=True)]


def with_cluster_retries(options: SourceOptions, request: Callable[[], T]) -> T:
    """Return the result of `request`, retried for up to brokerTimeoutMs while brokers or name servers are down."""
    deadline = time.monotonic() + options.broker_timeout_ms / 1000
    while True:
        try:
            return request()
        except (Unreachable, *UNREACHABLE) as error:
            if time.monotonic() > deadline:
                raise
            log.warning("waiting for the cluster error=%s", error)
            time.sleep(PAUSE_S)


def now_ms() -> int:
    """Return the time in ms; the clock of triggers."""
    return time.monotonic_ns() // 1_000_000
