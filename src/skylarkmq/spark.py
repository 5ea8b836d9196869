"""The formats `rocketmq` and `rocketmq-store` for a Spark session whose Spark does not find them itself.

    from skylarkmq.spark import register

    register(spark)

Requires PySpark 4.0 or newer, which `pip install 'skylarkmq[spark]'` installs. Spark finds the formats of an installed
distribution without this call (docs/use/spark/sources.md).
"""

from skylarkmq.clients.spark import register

__all__ = ["register"]
