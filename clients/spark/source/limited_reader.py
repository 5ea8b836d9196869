"""The reader of a streaming query, for PySpark with read limits (4.2 and newer).

Spark passes the start and the limit of each batch, and supports Trigger.AvailableNow in several batches.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from skylarkmq.clients.spark.source.stream_reader import PlannedReader, now_ms


class LimitedStreamReader(PlannedReader, SupportsTriggerAvailableNow):
    """The reader for PySpark 4.2 and newer; the method names are Spark's."""

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
        return self._retried(lambda: plan.latest(start, most, now_ms(), is_all=is_all))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the queues as of the last `latestOffset`."""
        return self._planned().reported()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read the messages that exist now, and end."""
        self._retried(self._planned().fix_target)
