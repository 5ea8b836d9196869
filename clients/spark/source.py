"""`format("rocketmq")`: what Spark asks, and who answers it.

    options    -> source_options.py                 once in each process
    offsets    -> stream_plan.py over cluster.py    in the query's own process, which keeps its connections
    partitions -> splitting.py                      ranges of queues, several to a task where there are many
    read       -> range_reader.py                   in the executors: pulls, and record batches

Spark makes a reader in three places: one that plans, for as long as the query lives; one whose `read` is pickled, once;
and the copies of that in the executors. So constructors only keep options, and nothing that is open is pickled.
"""

from pyspark.sql.datasource import DataSource

from clients.spark.options import parse
from clients.spark.schema import ddl
from clients.spark.source_options import SOURCE_OPTIONS, SourceOptions


class RocketMqSource(DataSource):
    """Messages as rows; the columns are those of clients/spark/schema.py."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns; OptionError if the options are none."""
        return ddl(self._options().include_properties)

    def _options(self) -> SourceOptions:
        return parse(SOURCE_OPTIONS, self.options)
