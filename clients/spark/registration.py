"""Making the formats known to a session, by hand.

An installed distribution is found by name without this (docs/spark.md); it is for trees that are not installed, and for
sessions that were given their code by `--py-files`.
"""

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from clients.spark.source import RocketMqSource

SOURCES: Final[tuple[type[DataSource], ...]] = (RocketMqSource,)


def register(spark: SparkSession) -> None:
    """Let the session know every format of ours; again does no harm."""
    for source in SOURCES:
        spark.dataSource.register(source)
