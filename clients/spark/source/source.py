"""`format("rocketmq")`: what Spark asks, and who answers it.

    options    -> source_options.py                 once in each process
    offsets    -> stream_plan.py over cluster.py    in the query's own process, which keeps its connections
    partitions -> splitting.py                      ranges of queues, several to a task where there are many
    read       -> range_reader.py                   in the executors: pulls, and record batches
    writers    -> sink.py

Spark makes a reader in three places: one that plans, for as long as the query lives; one whose `read` is pickled, once;
and the copies of that in the executors. So constructors only keep options, and nothing that is open is pickled.
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

from skylarkmq.clients.spark.arrow.schema import ddl
from skylarkmq.clients.spark.cluster import AWAY, Cluster
from skylarkmq.clients.spark.options import OptionError, Scope, parse, warn_out_of_scope
from skylarkmq.clients.spark.sink.sink import batch_writer, stream_writer
from skylarkmq.clients.spark.source.bounds import Away, ends_of, find_queues, settled, starts_of
from skylarkmq.clients.spark.source.offsets import Offset
from skylarkmq.clients.spark.source.range_reader import RangeReader, Work
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS, SourceOptions
from skylarkmq.clients.spark.source.splitting import Range, cut, ranges_of, tasks_of
from skylarkmq.clients.spark.source.stream_plan import StreamPlan

PAUSE_S = 0.2

T = TypeVar("T")
log = logging.getLogger(__name__)


class RocketMqSource(DataSource):
    """Messages as rows; the columns are those of clients/spark/arrow/schema.py."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns; OptionError if the options are none."""
        return ddl(parse(SOURCE_OPTIONS, self.options).include_properties)

    def reader(self, schema: StructType) -> "BatchReader":
        """Of `spark.read`."""
        return BatchReader(self._options(schema, Scope.BATCH))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802
        """Of `spark.readStream`."""
        return StreamReader(self._options(schema, Scope.STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Of `df.write`."""
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Of `df.writeStream`."""
        return stream_writer(self.options, schema, overwrite)

    def _options(self, schema: StructType, scope: Scope) -> SourceOptions:
        options = parse(SOURCE_OPTIONS, self.options)
        if schema.fieldNames() != column_names(options):
            raise OptionError(
                f"rocketmq has columns of its own, and takes no schema: {ddl(options.include_properties)}"
            )
        warn_out_of_scope(SOURCE_OPTIONS, self.options, scope)
        return options


class RangePartition(InputPartition):
    """A task's ranges."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)


class BatchReader(DataSourceReader):
    """Reads between two sets of offsets, which are found when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._source = options

    def partitions(self) -> list[InputPartition]:
        """The tasks. Away, OptionError, ClientError."""
        cluster = Cluster(self._source)
        try:
            ranges = patiently(self._source, lambda: self._ranges(cluster))
            return tasks(self._source, cluster, ranges)
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows, on an executor."""
        return read(self._source, partition)

    def _ranges(self, cluster: Cluster) -> list[Range]:
        queues = find_queues(cluster, self._source)
        starts = settled(cluster, starts_of(cluster, self._source, queues, "earliest"))
        return ranges_of(starts, ends_of(cluster, self._source, queues))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's offsets and tasks; the names of methods are Spark's."""

    def __init__(self, options: SourceOptions) -> None:
        self._source = options
        self._cluster: Cluster | None = None
        self._plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Only the options go to the executors."""
        return {"_source": self._source, "_cluster": None, "_plan": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins."""
        return patiently(self._source, self._planned().begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say about the size of a batch; a minimum beside a maximum is kept by the plan."""
        if self._source.max_per_trigger is not None:
            return ReadMaxRows(self._source.max_per_trigger)
        if self._source.min_per_trigger is not None:
            return ReadMinRows(self._source.min_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself if there is to be none."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        plan = self._planned()
        is_all = isinstance(limit, ReadAllAvailable)
        return patiently(self._source, lambda: plan.latest(start, most, now_ms(), is_all=is_all))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues when `latestOffset` last looked."""
        return self._planned().reported()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what there is now, and end."""
        patiently(self._source, self._planned().fix_target)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """A batch's tasks."""
        ranges = self._planned().ranges(start, end)
        assert self._cluster is not None
        return tasks(self._source, self._cluster, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's rows, on an executor."""
        return read(self._source, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """A batch is done: tell the group."""
        self._planned().tell(Offset.of(end).ends)

    def stop(self) -> None:
        """Close what is open; Spark mostly kills the process instead."""
        if self._cluster is not None:
            self._cluster.close()

    def _planned(self) -> StreamPlan:
        if self._plan is None:
            self._cluster = Cluster(self._source)
            interval_s = self._source.lookup_interval_ms / 1000
            self._plan = StreamPlan(self._source, self._cluster, now_ms(), lambda: time.sleep(interval_s))
        return self._plan


def read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task; of Spark's stand-in for no task at all: none."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return RangeReader(options, partition.value).batches()


def tasks(options: SourceOptions, cluster: Cluster, ranges: list[Range]) -> list[InputPartition]:
    """Ranges dealt out to tasks."""
    if not ranges:
        return []
    pieces = cut(ranges, options.max_per_partition, options.min_partitions)
    dealt = tasks_of(pieces, options.max_partitions)
    addresses = patiently(options, lambda: cluster.addresses({piece.queue.broker_name for piece in ranges}))
    names = [task[0].queue.broker_name for task in dealt]
    return [RangePartition(Work(name, addresses.get(name), task)) for name, task in zip(names, dealt, strict=True)]


def patiently(options: SourceOptions, ask: Callable[[], T]) -> T:
    """The answer, waited for while brokers or name servers are away, for as long as brokerTimeoutMs says."""
    deadline = time.monotonic() + options.broker_timeout_ms / 1000
    while True:
        try:
            return ask()
        except (Away, *AWAY) as error:
            if time.monotonic() > deadline:
                raise
            log.warning("waiting for the cluster error=%s", error)
            time.sleep(PAUSE_S)


def column_names(options: SourceOptions) -> list[str]:
    """The source's columns."""
    return [column.split()[0] for column in ddl(options.include_properties).split(", ") if " " in column]


def now_ms() -> int:
    """The clock of triggers."""
    return time.monotonic_ns() // 1_000_000
