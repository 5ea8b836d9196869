"""Registers the formats with a Spark session.

Spark finds the formats of an installed distribution by name (docs/use/spark/sources.md). Registration is needed for a
source tree that is not installed, and for sessions that receive the code by `--py-files`.
"""

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from skylarkmq.clients.spark.source.source import RocketMqSource
from skylarkmq.clients.spark.store.store_source import RocketMqStoreSource

ALREADY_EXISTS: Final = "DATA_SOURCE_ALREADY_EXISTS"
SOURCES: Final[tuple[type[DataSource], ...]] = (RocketMqSource, RocketMqStoreSource)


def register(spark: SparkSession) -> None:
    """Register all formats with the session. Calling it again has no effect."""
    for source in SOURCES:
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != ALREADY_EXISTS:
                raise  # PySpark 4.0 refuses a format that it has found by its module
