"""Tasks as Spark's partitions: made on the driver, read on the executors."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from skylarkmq.clients.arrow.topic.cluster import Cluster
from skylarkmq.clients.arrow.topic.cluster_retries import with_cluster_retries
from skylarkmq.clients.arrow.topic.range_reader import RangeReader, Work
from skylarkmq.clients.arrow.topic.splitting import Range, cut, tasks_of
from skylarkmq.clients.spark.source.source_options import SourceOptions


class RangePartition(InputPartition):
    """The ranges of a task."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)


def tasks(options: SourceOptions, cluster: Cluster, ranges: list[Range]) -> list[InputPartition]:
    """Distribute ranges to tasks."""
    if not ranges:
        return []
    pieces = cut(ranges, options.max_per_partition, options.min_partitions)
    grouped = tasks_of(pieces, options.max_partitions)
    brokers = {piece.queue.broker_name for piece in ranges}
    addresses = with_cluster_retries(options.broker_timeout_ms, lambda: cluster.addresses(brokers))
    names = [task[0].queue.broker_name for task in grouped]
    return [RangePartition(Work(name, addresses.get(name), task)) for name, task in zip(names, grouped, strict=True)]


def read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task; nothing for the empty partition that Spark adds if there are no tasks."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return RangeReader(options, partition.value).batches()
