from skylarkmq.clients.spark.store.store_source import RocketMqStoreSource as DefaultSource  # noqa: F401 - what Spark looks for
