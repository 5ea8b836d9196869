"""The reader of a streaming query, for PySpark without read limits (before 4.2).

Spark requests the end of a batch without its start and without a limit. The plan keeps the start (stream_plan.py), so
`maxOffsetsPerTrigger` limits batches here, too. With Trigger.AvailableNow, Spark runs one batch and ends: with a limit,
the rest remains for the next run. The reader cannot find out the trigger, so it logs the rest once.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from skylarkmq.clients.arrow.topic.cluster import Cluster
from skylarkmq.clients.arrow.topic.cluster_retries import with_cluster_retries
from skylarkmq.clients.spark.source.offsets import Offset
from skylarkmq.clients.spark.source.partitions import read, tasks
from skylarkmq.clients.spark.source.source_options import SourceOptions
from skylarkmq.clients.spark.source.stream_plan import StreamPlan

T = TypeVar("T")
log = logging.getLogger(__name__)


class PlannedReader(DataSourceStreamReader):
    """A streaming query's offsets and tasks, without the end of a batch; the method names are Spark's."""

    def __init__(self, options: SourceOptions) -> None:
        self._source = options
        self._cluster: Cluster | None = None
        self._plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the options: executors need nothing else."""
        return {"_source": self._source, "_cluster": None, "_plan": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query begins."""
        return self._retried(self._planned().begin)

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

    def _retried(self, request: Callable[[], T]) -> T:
        return with_cluster_retries(self._source.broker_timeout_ms, request)


class StreamReader(PlannedReader):
    """The reader for PySpark before 4.2."""

    _has_warned = False

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - of those versions
        """Return the end of the next batch; its start if there is no batch."""
        plan = self._planned()
        most = self._source.max_per_trigger
        end = self._retried(lambda: plan.latest(plan.position(), most, now_ms(), is_all=True))
        if not self._has_warned and most is not None and (rest := plan.statistics().backlog - most) > 0:
            self._has_warned = True
            log.warning("with Trigger.AvailableNow, run the query again for the rest unread_offsets=%d", rest)
        return end


def now_ms() -> int:
    """Return the time in ms; the clock of triggers."""
    return time.monotonic_ns() // 1_000_000
