"""`format("rocketmq-store")`: options and filters of Spark over clients/arrow/store."""
