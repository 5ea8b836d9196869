from skylarkmq.clients.spark.source.source import RocketMqSource as DefaultSource  # noqa: F401 - what Spark looks for
