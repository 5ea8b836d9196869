from skylarkmq.clients.spark.source import RocketMqSource as DefaultSource  # noqa: F401 - what Spark looks for
