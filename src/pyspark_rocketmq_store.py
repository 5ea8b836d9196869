from skylarkmq.clients.spark.store.store_source import RocketMqStoreSource as DefaultSource  # noqa: F401 - the name that Spark imports
