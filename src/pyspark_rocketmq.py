from skylarkmq.clients.spark.source.source import RocketMqSource as DefaultSource  # noqa: F401 - the name that Spark imports
