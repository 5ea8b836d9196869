"""The reader of a store directory that accepts filters from Spark, for PySpark 4.1 and newer."""

from pyspark.sql.datasource import Filter

from skylarkmq.clients.spark.store.store_filters import push
from skylarkmq.clients.spark.store.store_reader import StoreReader


class FilteredStoreReader(StoreReader):
    """A reader that accepts filters from Spark."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Apply the filters that are supported; return those that Spark must apply."""
        self._selection, left = push(self._selection, filters)
        return left
