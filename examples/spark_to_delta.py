"""Spark structured streaming from a topic to a Delta table: each message is one row, also after crashes.

    export PYSPARK_SUBMIT_ARGS="--packages io.delta:delta-spark_4.2_2.13:4.4.0 pyspark-shell"
    python spark_to_delta.py Orders lake/orders lake/orders-checkpoint --namesrv 127.0.0.1:9876

It needs `pip install 'skylarkmq[spark]' pyspark==4.2.1` and Java 17; docs/use/spark/tables.md has the jar for each
version of Spark. Workers run `PYSPARK_PYTHON` (default `python3`), which needs skylarkmq, too. `mqspark-pipeline` does
the same without code, with a table for bad rows; copy this program for a query of your own.

Bodies are JSON such as {"id": "order-1", "cents": 420}. A body without an id has null in the column `order`, and
the column `body` keeps it.

    a crash during a batch                   no row is visible: the batch runs again after the restart
    a crash after Delta's commit, before     the batch runs again; Delta ignores it, because its log has the identifier
    that of the checkpoint                   of query and batch
    SIGTERM, Ctrl-C                          the batch in hand is canceled, and runs again after the restart
    a deleted checkpoint                     the next start writes all messages again: keep it with the table
    messages deleted before they were read   the query fails and names them (`failOnDataLoss`)

A producer that repeats a send after a time-out may store a message twice: both are rows, with the same `msgId`.
"""

import argparse
import logging
import signal
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, to_date, when
from pyspark.sql.streaming.query import StreamingQuery

ORDER = "id STRING, cents BIGINT"
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",  # of the column `day`
}
POSITION = ("topic", "brokerName", "queueId", "queueOffset")

log = logging.getLogger("spark_to_delta")


def orders(spark: SparkSession, namesrv: str, topic: str) -> DataFrame:
    """Return the messages of a topic as a stream of rows."""
    options = {"nameServer": namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    messages = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger="1000000").load()
    order = from_json(col("body").cast("string"), ORDER)  # fields are null where a body does not parse
    order = when(order["id"].isNotNull(), order).alias("order")
    day = to_date("storeTimestamp").alias("day")
    return messages.select(*POSITION, "msgId", "storeTimestamp", day, order, "body")


def wait(query: StreamingQuery, stopping: threading.Event) -> None:
    """Log each batch until `stopping` is set. Raises the error of a query that fails."""
    logged = -1
    while not stopping.is_set() and not query.awaitTermination(1):
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > logged and progress["numInputRows"]:
            logged = progress["batchId"]
            log.info("written batch=%d rows=%d", logged, progress["numInputRows"])


def main() -> None:
    """Run the query until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Write a topic to a Delta table.")
    parser.add_argument("topic")
    parser.add_argument("table", help="directory or URL of the Delta table")
    parser.add_argument("checkpoint", help="directory or URL of the checkpoint")
    parser.add_argument("--namesrv", default="127.0.0.1:9876", help="name servers, host:port;host:port")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    builder = SparkSession.builder.appName("spark-to-delta")
    for name, value in DELTA.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    writer = orders(spark, arguments.namesrv, arguments.topic).writeStream.format("delta").partitionBy("day")
    writer = writer.option("checkpointLocation", arguments.checkpoint).trigger(processingTime="10 seconds")
    query = writer.start(arguments.table)
    try:
        wait(query, stopping)
    finally:
        query.stop()
        spark.stop()
    log.info("stopped")


if __name__ == "__main__":
    main()
