"""Queues as Spark's data sources: pure Python on PySpark's data source API, Arrow all the way.

    from skylarkmq.clients.spark import register

    register(spark)
    spark.readStream.format("rocketmq").option("nameServer", "host:9876").option("subscribe", "Orders").load()

Needs PySpark 4.2 or newer (admission control came with it); `pip install 'skylarkmq[spark]'` brings it.
"""

import skylarkmq.clients.spark.requirement  # noqa: F401 - first, for what it says where PySpark is missing
from skylarkmq.clients.spark.registration import register

__all__ = ["register"]
