"""`format("rocketmq-store")`: a store directory as rows, without a broker.

    spark.read.format("rocketmq-store").load("/data/store")

    options    -> store_options.py                       once in each process
    filters    -> store_filters.py                       where pushFilters is on
    partitions -> stored/planning.py                     on the driver: looks at the store, and cuts it up
    read       -> stored/reading.py                      in the executors: bytes, and record batches

The directory has to be at the same path on the driver and on every executor. It is only read; a broker may run on it,
and what it adds after the query was planned is not seen.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.arrow.schema import ddl
from skylarkmq.clients.spark.options import parse
from skylarkmq.clients.spark.store.extent import Extent
from skylarkmq.clients.spark.store.planning import Plan
from skylarkmq.clients.spark.store.reading import StoreRows
from skylarkmq.clients.spark.store.selection import Selection
from skylarkmq.clients.spark.store.store_filters import push
from skylarkmq.clients.spark.store.store_options import STORE_OPTIONS, StoreOptions
from skylarkmq.clients.spark.store.tasks import Task


class RocketMqStoreSource(DataSource):
    """Messages of a store directory; the columns are those of clients/spark/arrow/schema.py."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "rocketmq-store"

    def schema(self) -> str:
        """The columns; OptionError if the options are none."""
        return ddl(self._options().include_properties)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's, and known here
        """One that takes filters only if it was told to: Spark refuses it otherwise."""
        options = self._options()
        return FilteredStoreReader(options) if options.push_filters else StoreReader(options)

    def _options(self) -> StoreOptions:
        return parse(STORE_OPTIONS, self.options)


class StorePartition(InputPartition):
    """A task, and what its plan knows of the store."""

    def __init__(self, extent: Extent, selection: Selection, task: Task) -> None:
        super().__init__(task)
        self.extent = extent
        self.selection = selection
        self.task = task


class StoreReader(DataSourceReader):
    """Plans on the driver; its copies read in the executors."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        topics = None if options.topics is None else frozenset(options.topics)
        self._selection = Selection(topics, options.key, options.starting_timestamp, options.ending_timestamp)

    def partitions(self) -> list[InputPartition]:
        """Pieces of the store; StoreUnreadable if it is none."""
        plan = Plan(self._options, self._selection)
        return [StorePartition(plan.extent, self._selection, task) for task in plan.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one; Spark makes one of nothing where there is none."""
        if isinstance(partition, StorePartition):
            yield from StoreRows(self._options, partition.selection, partition.extent).read(partition.task)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options.path}>"


class FilteredStoreReader(StoreReader):
    """A reader that Spark gives filters to."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Take what can be answered; the rest is Spark's."""
        self._selection, left = push(self._selection, filters)
        return left
