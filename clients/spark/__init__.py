"""Spark data sources for topics and store directories: pure Python on PySpark's data source API, with Arrow batches.

    from skylarkmq.spark import register

    register(spark)
    spark.readStream.format("rocketmq").option("nameServer", "host:9876").option("subscribe", "Orders").load()

Requires PySpark 4.0 or newer, which `pip install 'skylarkmq[spark]'` installs. Versions before 4.2 lack some features
(clients/spark/base/features.py).
"""

import skylarkmq.clients.spark.requirement  # noqa: F401 - first: raises the import error with the advice
from skylarkmq.clients.spark.registration import register

__all__ = ["register"]
