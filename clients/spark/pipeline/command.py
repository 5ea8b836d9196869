"""The command `mqspark-pipeline`, also `python -m skylarkmq.clients.spark.pipeline.command`: topics to tables.

    arguments -> Job -> check of cluster and topics -> Spark session -> queries -> progress until they end

The session is the one that `spark-submit` prepared, or a local one. Progress goes to stderr, one line for each batch.
SIGTERM and SIGINT stop the queries after the current batch. The same command resumes after any interruption.

Exit codes: 0 finished, or stopped by a signal; 1 a query failed; 2 not started: a wrong argument, no cluster, no topic.
"""

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from skylarkmq.clients.spark.base.features import READ_LIMITS
from skylarkmq.clients.spark.base.options import parse
from skylarkmq.clients.spark.command_line import (
    FAILED,
    Conf,
    Given,
    Master,
    NotStarted,
    check_cluster,
    error_summary,
    key_values,
    reporting,
    size,
)
from skylarkmq.clients.spark.decoding.registry import Credentials
from skylarkmq.clients.spark.pipeline.backfill import Backfill, backfill_of, end_of, store_of
from skylarkmq.clients.spark.pipeline.body_options import (
    AvroSchema,
    AvroSingleObject,
    AvroWriterSchema,
    BodyOptions,
    JsonSchema,
    ProtobufDescriptor,
    ProtobufMessage,
    ProtobufRegistryHeader,
    RegistryCredentials,
    RegistryPlace,
    decoding_of,
)
from skylarkmq.clients.spark.pipeline.job import Job, settings
from skylarkmq.clients.spark.pipeline.progress import line
from skylarkmq.clients.spark.pipeline.queries import Started, start
from skylarkmq.clients.spark.pipeline.table_options import (
    Checkpoint,
    DeadLetterTopic,
    DropBadRows,
    FileBytes,
    FileRows,
    IcebergEngine,
    Output,
    PartitionBy,
    Shuffle,
    To,
    check_table,
    checkpoint_of,
    dead_letters_to,
)
from skylarkmq.clients.spark.pipeline.target import Stalled, Target, target_of
from skylarkmq.clients.spark.session import started
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS
from skylarkmq.clients.spark.tables.availability import Unavailable, session_settings
from skylarkmq.clients.spark.tables.batch_offsets import DamagedOffsets
from skylarkmq.clients.spark.tables.evolution import SchemaConflict, TableFormat
from skylarkmq.clients.spark.tables.layout import TimeUnit
from skylarkmq.clients.spark.tables.offset_log import StaleCheckpoint

POLL_S: Final = 1.0
BACKFILL_STALLED_S: Final = 600.0

HELP: Final = """
Write messages of topics to a table, partitioned by topic and hour (UTC), each message once.

OUTPUT is a directory for Parquet and Delta Lake, and catalog.namespace.table for Iceberg. Run the same command again to
resume. With a schema, bodies are decoded into the column `value`, and messages that do not parse go to the side table
OUTPUT_bad with the reason, or to the dead-letter topic.

Examples:\n
  mqspark-pipeline -n 127.0.0.1:9876 -t Orders -o lake --available-now\n
  mqspark-pipeline -n "ns1:9876;ns2:9876" -t Orders,Payments -o s3a://lake/messages --interval "5 minutes"\n
  mqspark-pipeline -n 127.0.0.1:9876 -t Orders -o lake --json-schema "id BIGINT" --dead-letter-topic Orders-dead\n
  mqspark-pipeline -n 127.0.0.1:9876 -t Orders -o lake/orders --to delta --json-schema "id BIGINT" \\
      --conf spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0\n
  mqspark-pipeline -n 127.0.0.1:9876 -t Orders -o lake.shop.orders --to iceberg --checkpoint lake/checkpoint \\
      --conf spark.sql.catalog.lake.type=rest --conf spark.sql.catalog.lake.uri=http://catalog:8181\n
  mqspark-pipeline -n 127.0.0.1:9876 -t Orders -o lake --avro-schema order.avsc --drop-bad-rows\n
  mqspark-pipeline -n ns1:9876 -t Orders -o lake --avro-schema order.avsc --registry http://reg:8081 --drop-bad-rows\n
  mqspark-pipeline -n ns1:9876 -t A -o lake --protobuf-descriptor a.desc --protobuf-message shop.A --drop-bad-rows\n
  mqspark-pipeline -t Orders -o lake --backfill broker-a=/backup/store\n
  spark-submit --master yarn deploy/spark/pipeline.py -n 127.0.0.1:9876 --pattern "Orders.*" -o hdfs:///lake\n
"""

pipeline = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

NameServer = Annotated[
    str | None,
    typer.Option("-n", "--name-server", metavar="ADDR;ADDR", help="Name servers, host:port; a backfill needs none."),
]
Topics = Annotated[str | None, typer.Option("-t", "--topics", help="Topics, separated by commas.")]
Pattern = Annotated[
    str | None, typer.Option("--pattern", help="Instead of --topics: regular expression over topic names.")
]
AvailableNow = Annotated[bool, typer.Option("--available-now", help="Write the existing messages and exit.")]
Interval = Annotated[str, typer.Option("--interval", help="Time between batches, without --available-now.")]
KeepBody = Annotated[
    bool, typer.Option("--keep-body", help="With a schema: keep the column body in addition to value.")
]
StartingOffsets = Annotated[
    str, typer.Option("--starting-offsets", help="For the first run: earliest, latest, or JSON.")
]
MaxRows = Annotated[int, typer.Option("--max-rows", min=1, help="Maximum messages per batch.")]
BackfillStore = Annotated[
    str | None,
    typer.Option(
        "--backfill",
        metavar="BROKER=PATH",
        help="Write the messages of this broker's store and exit; a run without it continues with the broker.",
    ),
]
StoreOption = Annotated[
    list[str] | None,
    typer.Option("--store-option", metavar="KEY=VALUE", help="With --backfill: an option of the offline source."),
]
Group = Annotated[str | None, typer.Option("--group", help="Consumer group to which progress is committed.")]


@pipeline.command(help=HELP)
def _pipeline(
    output: Output,
    name_server: NameServer = None,
    table_format: To = TableFormat.PARQUET,
    engine: IcebergEngine = None,
    partition_by: PartitionBy = TimeUnit.HOUR,
    topics: Topics = None,
    pattern: Pattern = None,
    checkpoint: Checkpoint = None,
    available_now: AvailableNow = False,
    interval: Interval = "1 minute",
    json_schema: JsonSchema = None,
    avro_schema: AvroSchema = None,
    avro_writer_schema: AvroWriterSchema = None,
    avro_single_object: AvroSingleObject = False,
    registry: RegistryPlace = None,
    registry_credentials: RegistryCredentials = None,
    protobuf_descriptor: ProtobufDescriptor = None,
    protobuf_message: ProtobufMessage = None,
    protobuf_registry_header: ProtobufRegistryHeader = False,
    keep_body: KeepBody = False,
    dead_letter_topic: DeadLetterTopic = None,
    drop_bad_rows: DropBadRows = False,
    starting_offsets: StartingOffsets = "earliest",
    max_rows: MaxRows = 1_000_000,
    file_bytes: FileBytes = "256m",
    file_rows: FileRows = 5_000_000,
    shuffles: Shuffle = True,
    group: Group = None,
    backfill_store: BackfillStore = None,
    store_option: StoreOption = None,
    given: Given = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    with reporting("mqspark-pipeline"):
        check_table(output, table_format, engine, shuffles=shuffles)
        bodies = BodyOptions(
            json_schema=json_schema,
            avro_schema=avro_schema,
            avro_writer_schemas=tuple(avro_writer_schema or ()),
            avro_single_object=avro_single_object,
            registry=registry,
            credentials=None if registry_credentials is None else Credentials(registry_credentials),
            protobuf_descriptor=protobuf_descriptor,
            protobuf_message=protobuf_message,
            protobuf_registry_header=protobuf_registry_header,
        )
        decoding = decoding_of(bodies)
        source = {"startingOffsets": starting_offsets, "maxOffsetsPerTrigger": str(max_rows)}
        named = {"nameServer": name_server, "subscribe": topics, "subscribePattern": pattern, "groupId": group}
        job = Job(
            source=source
            | {name: value for name, value in named.items() if value is not None}
            | key_values(given or ()),
            output=output,
            checkpoint=checkpoint_of(output, table_format, checkpoint),
            table_format=table_format,
            engine=engine,
            unit=partition_by,
            decoding=decoding,
            keep_body=keep_body,
            has_side_table=dead_letter_topic is None and not drop_bad_rows,
            dead_letter_topic=dead_letters_to(dead_letter_topic, decoding, drops=drop_bad_rows),
            interval=None if available_now or backfill_store is not None else interval,
            backfill=backfill_from(backfill_store, store_option or []),
            file_bytes=size(file_bytes, "--file-bytes"),
            file_rows=file_rows,
            shuffles=shuffles,
        )
        queries, target = started_queries(job, key_values(conf or ()), master)
    raise typer.Exit(watch(queries, target=target))


# The queries.


def started_queries(
    job: Job, conf: Mapping[str, str], master: str | None
) -> tuple[list[StreamingQuery], Target | None]:
    """Check the source, start Spark and the queries; return these, and their target if Spark cannot end them.

    Raises NotStarted, OptionError.
    """
    ends = check_source(job)
    given = settings(job) | dict(conf) | session_settings(job.table_format, conf)
    spark = started(f"mqspark-pipeline {job.output}", given, master)
    target = None if READ_LIMITS.is_present or job.interval is not None else ends()
    running = start_queries(spark, job)
    if target is not None:
        target.begin_at(running.begins)
    return running.queries, target


def backfill_from(store: str | None, options: Sequence[str]) -> Backfill | None:
    """Return the backfill. Raises NotStarted, OptionError."""
    if store is None:
        if options:
            raise NotStarted("--store-option needs --backfill")
        return None
    return backfill_of(store, key_values(options))


def check_source(job: Job) -> Callable[[], Target]:
    """Check the store, or the cluster and its topics; return a function for the target of the queries.

    Raises NotStarted, OptionError.
    """
    if job.backfill is not None:
        store, broker = store_of(job.source, job.backfill), job.backfill.broker
        if job.dead_letter_topic is not None and "nameServer" not in job.source:
            raise NotStarted("--dead-letter-topic needs --name-server: set it, or leave both out for the side table")
        return lambda: Target(end_of(store, broker), BACKFILL_STALLED_S)
    if "nameServer" not in job.source:
        raise NotStarted("--name-server is missing: only a backfill works without it")
    options = parse(SOURCE_OPTIONS, job.source)
    check_cluster(options, options.subscribe or ())
    return lambda: target_of(options)


def start_queries(spark: SparkSession, job: Job) -> Started:
    """Start and return the queries. Raises NotStarted if Spark, the table or the schema rejects the job."""
    try:
        started_now = start(spark, job)
    except (Unavailable, SchemaConflict, StaleCheckpoint, DamagedOffsets) as error:
        raise NotStarted(str(error)) from error
    except ImportError as error:
        extra = "avro" if job.decoding.avro is not None else "protobuf"
        raise NotStarted(f"{error}: install it with pip install 'skylarkmq[{extra}]'") from error
    except Exception as error:
        raise NotStarted(error_summary(str(error))) from error
    for name in started_now.begins:
        typer.echo(f"mqspark-pipeline: {name}: no checkpoint; continuing at the offsets in the table", err=True)
    return started_now


def watch(
    queries: Sequence[StreamingQuery],
    emit: Callable[[str], Any] = lambda text: typer.echo(text, err=True),
    target: Target | None = None,
) -> int:
    """Print progress until all queries have ended or reached the target, or one has failed; return the exit code."""
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopping.append(number))
    seen: dict[str, int] = {}
    stalled: Stalled | None = None
    while any(query.isActive for query in queries):
        failed = [query for query in queries if not is_healthy(query)]
        if target is not None and not failed:
            stalled = stop_complete(queries, target)
        if stopping or failed or stalled:
            stop(queries)
        print_progress(queries, seen, emit)
    print_progress(queries, seen, emit)
    if stalled is not None:
        emit(f"mqspark-pipeline: {stalled}")
        return FAILED
    for query in queries:
        if (error := query.exception()) is not None:
            emit(f"mqspark-pipeline: {query.name} failed: {error_summary(str(error))}")
            return FAILED
    return 0


def stop_complete(queries: Sequence[StreamingQuery], target: Target) -> Stalled | None:
    """Stop the queries that have read up to the target; return the error if one does not advance."""
    try:
        stop([query for query in queries if query.isActive and is_complete(query, target)])
    except Stalled as error:
        return error
    return None


def is_complete(query: StreamingQuery, target: Target) -> bool:
    """Return whether a query has read up to the target. Raises Stalled."""
    last = query.lastProgress  # before the status, which then belongs to the next batch
    progress = None if last is None else json.loads(last.json)
    return target.is_complete(str(query.name), progress, has_data=bool(query.status["isDataAvailable"]))


def is_healthy(query: StreamingQuery) -> bool:
    """Wait up to POLL_S; return False if the query has failed."""
    try:
        query.awaitTermination(POLL_S)  # type: ignore[arg-type]
    except PySparkException:
        return False  # `query.exception()` returns the error
    return True


def stop(queries: Sequence[StreamingQuery]) -> None:
    """Stop the queries after their current batch."""
    for query in queries:
        query.stop()


def print_progress(queries: Sequence[StreamingQuery], seen: dict[str, int], emit: Callable[[str], Any]) -> None:
    """Print a line for each batch that was not printed before."""
    for query in queries:
        for progress in query.recentProgress:
            if progress["batchId"] > seen.get(str(query.name), -1):
                seen[str(query.name)] = progress["batchId"]
                emit(line(json.loads(progress.json)))


def main() -> None:
    """Run the command."""
    pipeline()


if __name__ == "__main__":
    main()
