"""Making the formats known to a session, by hand.

An installed distribution is found by name without this (docs/spark.md); it is for trees that are not installed, and for
sessions that were given their code by `--py-files`.
"""

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from skylarkmq.clients.spark.source.source import RocketMqSource
from skylarkmq.clients.spark.store.store_source import RocketMqStoreSource

SOURCES: Final[tuple[type[DataSource], ...]] = (RocketMqSource, RocketMqStoreSource)


def register(spark: SparkSession) -> None:
    """Let the session know every format of ours; again does no harm."""
    for source in SOURCES:
        spark.dataSource.register(source)
