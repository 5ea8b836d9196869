"""`format("rocketmq-store")`: the messages of a store directory as rows, without a broker.

    spark.read.format("rocketmq-store").load("/data/store")

    options    -> store_options.py                       once in each process
    filters    -> store_filters.py                       only with pushFilters
    partitions -> store/planning.py                      on the driver: examines the store, and splits it into tasks
    read       -> store/reading.py                       in the executors: bytes to record batches

The directory must be at the same path on the driver and on every executor. It is only read. A broker may run on it;
messages that it adds after the query was planned are not read.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from skylarkmq.clients.arrow.store.extent import Extent
from skylarkmq.clients.arrow.store.options import StoreOptions
from skylarkmq.clients.arrow.store.planning import Plan
from skylarkmq.clients.arrow.store.reading import StoreRows
from skylarkmq.clients.arrow.store.selection import Selection
from skylarkmq.clients.arrow.store.tasks import Task
from skylarkmq.clients.spark.options import parse
from skylarkmq.clients.spark.schema import ddl
from skylarkmq.clients.spark.store.store_filters import push
from skylarkmq.clients.spark.store.store_options import STORE_OPTIONS, StoreSourceOptions


class RocketMqStoreSource(DataSource):
    """Messages of a store directory; the columns are those of clients/arrow/schema.py."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rocketmq-store"

    def schema(self) -> str:
        """Return the columns as DDL. Raises OptionError."""
        return ddl(self._options().columns)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's, and known here
        """Return a reader that accepts filters only if the option pushFilters is set: Spark rejects it otherwise."""
        options = self._options()
        return FilteredStoreReader(options) if options.push_filters else StoreReader(options)

    def _options(self) -> StoreSourceOptions:
        return parse(STORE_OPTIONS, self.options)


class StorePartition(InputPartition):
    """A task, with the extent and selection that it needs."""

    def __init__(self, extent: Extent, selection: Selection, task: Task) -> None:
        super().__init__(task)
        self.extent = extent
        self.selection = selection
        self.task = task


class StoreReader(DataSourceReader):
    """Plans on the driver; its copies read in the executors."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._selection = options.selection

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Raises StoreUnreadable if the directory is not a readable store."""
        plan = Plan(self._options, self._selection)
        return [StorePartition(plan.extent, self._selection, task) for task in plan.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; nothing for the empty partition that Spark adds if there are no tasks."""
        if isinstance(partition, StorePartition):
            yield from StoreRows(self._options, partition.selection, partition.extent).read(partition.task)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options.path}>"


class FilteredStoreReader(StoreReader):
    """A reader that accepts filters from Spark."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Apply the filters that are supported; return those that Spark must apply."""
        self._selection, left = push(self._selection, filters)
        return left
