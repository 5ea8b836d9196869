"""The stream of a store for PySpark with read limits (4.2 and newer), which passes the start of each batch."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from skylarkmq.clients.spark.store.store_stream import StoreStreamReader


class LimitedStoreStreamReader(StoreStreamReader, SupportsTriggerAvailableNow):
    """The reader for PySpark 4.2 and newer; the method names are Spark's."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the size of a part."""
        return ReadMaxBytes(self._options.max_bytes_per_trigger)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return the end of the next part; `start` itself at the end of the log."""
        return self.next_end(
            start, None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes_per_trigger
        )

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the position of the end of the log."""
        return self.remaining()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: the store was examined once, so its end is fixed."""
