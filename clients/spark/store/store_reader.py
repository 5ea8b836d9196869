"""The reader of a store directory: plans tasks on the driver, and reads them in the executors."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from skylarkmq.clients.arrow.store.extent import Extent
from skylarkmq.clients.arrow.store.options import StoreOptions
from skylarkmq.clients.arrow.store.planning import Plan
from skylarkmq.clients.arrow.store.reading import StoreRows
from skylarkmq.clients.arrow.store.selection import Selection
from skylarkmq.clients.arrow.store.tasks import Task


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
