"""`format("rocketmq-store")`: the messages of a store directory as rows, without a broker.

    spark.read.format("rocketmq-store").load("/data/store")
    spark.readStream.format("rocketmq-store").option("brokerName", "broker-a").load("/data/store")

    options    -> store_options.py                       once in each process
    filters    -> filtered_reader.py, store_filters.py   only with pushFilters
    partitions -> arrow/store/planning.py                on the driver: examines the store, and splits it into tasks
    read       -> arrow/store/reading.py                 in the executors: bytes to record batches
    streams    -> store_stream.py                        parts of the log, which the stream of the brokers continues

The directory must be at the same path on the driver and on every executor. It is only read. A broker may run on it;
messages that it adds after the query was planned are not read.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.base.features import FILTERS, READ_LIMITS, require
from skylarkmq.clients.spark.base.options import Scope, parse, warn_out_of_scope
from skylarkmq.clients.spark.base.schema import ddl
from skylarkmq.clients.spark.store.store_options import STORE_OPTIONS, StoreSourceOptions
from skylarkmq.clients.spark.store.store_reader import StoreReader
from skylarkmq.clients.spark.store.store_stream import StoreStreamReader

if TYPE_CHECKING or FILTERS.is_present:
    from skylarkmq.clients.spark.store.filtered_reader import FilteredStoreReader

if TYPE_CHECKING or READ_LIMITS.is_present:
    from skylarkmq.clients.spark.store.limited_store_stream import LimitedStoreStreamReader as StreamReader
else:
    StreamReader = StoreStreamReader


class RocketMqStoreSource(DataSource):
    """Messages of a store directory, with the columns of clients/arrow/schema.py."""

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
        if not options.push_filters:
            return StoreReader(options)
        require(FILTERS, "pushFilters")
        return FilteredStoreReader(options)

    def streamReader(self, schema: StructType) -> StoreStreamReader:  # noqa: ARG002, N802 - Spark's, and known here
        """Return a reader of the store in parts. Raises OptionError without brokerName."""
        warn_out_of_scope(STORE_OPTIONS, self.options, Scope.STREAM)
        return StreamReader(self._options())

    def _options(self) -> StoreSourceOptions:
        return parse(STORE_OPTIONS, self.options)
