"""The Spark session of the `mqspark-` commands: the one that `spark-submit` prepared, or a local one."""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from skylarkmq.clients.spark.registration import register

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set for programs that spark-submit runs


def started(name: str, settings: Mapping[str, str], master: str | None) -> SparkSession:
    """Return the session, with the formats registered. `master` None: spark-submit's, else local[*].

    Spark's own progress bar is off unless the settings turn it on: it also prints to files.
    """
    builder = SparkSession.builder.appName(name)
    if master is not None or SUBMITTED not in os.environ:
        builder = builder.master(master or "local[*]")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in ({"spark.ui.showConsoleProgress": "false"} | dict(settings)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
