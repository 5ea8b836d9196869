"""Writing a DataFrame to topics: `df.write` and `df.writeStream` with `format("rocketmq")`.

    driver     batch_writer / stream_writer     check options and columns before a task starts
    executor   write, one call per partition    read the ledger, send the rows, wait for all responses: TaskReport
    driver     commit                           write to the ledger; log the number of rows sent
               abort                            log the number of rows sent; they remain in the topic

Delivery is at least once. Rows are sent again, with the same mark (clients/spark/sink/sink_rows.py), in three cases:
Spark repeats a failed task; two attempts of a task run at the same time; the driver dies between the commit of a batch
and Spark's own record of it, and the batch runs again. `skipCommittedBatches` removes the third case: a batch in the
ledger is read but not sent. A driver that dies after the sends and before the ledger entry still causes duplicates.

A worker process keeps its connections from one task to the next.
"""

import logging
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.clients.spark.base.features import StreamArrowWriter
from skylarkmq.clients.spark.base.options import OptionError, parse
from skylarkmq.clients.spark.base.request_retry import RetryLimit, with_retries
from skylarkmq.clients.spark.sink.ledger import Ledger
from skylarkmq.clients.spark.sink.sink_options import OPTIONS, SinkOptions
from skylarkmq.clients.spark.sink.sink_requests import Limits, RowRequests, SendFailed, writable_queues
from skylarkmq.clients.spark.sink.sink_rows import Encoder, RowError, check_columns

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
ONLY_BATCH: Final = 0

T = TypeVar("T")
log = logging.getLogger(__name__)


class WriteFailed(Exception):
    """A write that failed; the text describes the remedy."""


class Task(NamedTuple):
    """One attempt to write one partition of one batch."""

    query: str
    batch: int
    partition: int
    attempt: int


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """The result of a partition. `unreplicated`: rows that may be missing on a slave."""

    query: str
    batch: int
    partition: int
    attempt: int
    rows: int = 0
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    unreplicated: int = 0
    skipped: int = 0
    seconds: float = 0.0


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "BatchWriter":
    """Return the writer of `df.write`. Raises OptionError, ColumnError, or WriteFailed for overwrite mode."""
    parsed = _checked(options, schema, overwrite)
    if parsed.skip_committed and parsed.write_id is None:
        raise OptionError("rocketmq: skipCommittedBatches needs a writeId that is the same in a repeated write")
    return BatchWriter(parsed)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "StreamWriter":
    """Return the writer of one batch of `df.writeStream`. Raises the errors of `batch_writer`."""
    return StreamWriter(_checked(options, schema, overwrite))


def _checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    parsed = parse(OPTIONS, options)
    if overwrite:
        raise WriteFailed("a topic cannot be overwritten: use mode('append'), or outputMode('append') on a stream")
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, parsed.topic)
    return parsed


class BatchWriter(DataSourceArrowWriter):
    """One write as a single batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query = options.write_id or f"batch-{uuid.uuid4()}"

    def check_topic(self) -> None:
        """Wait until the topic of the options can be written. Raises WriteFailed."""
        check_topic(self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Send a partition, on an executor."""
        context = _context()
        task = Task(self._query, ONLY_BATCH, context.partitionId(), context.attemptNumber())
        return write_partition(self._options, task, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the write: all partitions are sent."""
        commit(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the write: some partitions are not sent."""
        abort(messages)


class StreamWriter(StreamArrowWriter):
    """One batch of a streaming query; `batchId` is Spark's name of the argument."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Send a partition, on an executor."""
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise WriteFailed(f"Spark does not provide {QUERY_ID} and {BATCH_ID} to tasks of a streaming query")
        task = Task(query, int(batch), context.partitionId(), context.attemptNumber())
        return write_partition(self._options, task, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Commit the batch: all partitions are sent."""
        commit(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Abort the batch; Spark may run it again."""
        abort(messages)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise WriteFailed("a partition can be written in a Spark task only")
    return context


# --- on an executor -------------------------------------------------------------------------------


def write_partition(options: SinkOptions, task: Task, batches: Iterable[pa.RecordBatch]) -> TaskReport:
    """Send the rows of a partition; returns when all are acknowledged. Raises WriteFailed."""
    _log_to_stderr()
    started = time.monotonic()
    filled = _filled(batches)
    first = next(filled, None)
    try:
        if first is None:
            counts: dict[str, Any] = {}
        elif options.skip_committed and last_batch(options, task.query) >= task.batch:
            counts = {"skipped": first.num_rows + sum(batch.num_rows for batch in filled)}
        else:
            counts = _sent(options, task, first, filled)
    except (SendFailed, RowError, ClientError) as error:
        raise WriteFailed(f"partition {task.partition} of batch {task.batch}: {error}") from error
    report = replace(TaskReport(*task), **counts, seconds=round(time.monotonic() - started, 3))
    log.info("partition written %s", _pairs(asdict(report)))
    return report


def _filled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)


def _sent(options: SinkOptions, task: Task, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> dict[str, Any]:
    mark = f"{task.query}:{task.batch}:{task.partition}" if options.mark_rows else None
    encoder = Encoder(options.topic, mark)
    link = _link(options)
    limits = Limits(options.batch_rows, options.batch_bytes, options.max_in_flight)
    requests = RowRequests(link.producer, limits, link.retry_limits.__getitem__)
    batch: pa.RecordBatch | None = first
    try:
        while batch is not None:
            run(requests.add(list(encoder.rows(batch, now_ms()))))
            batch = next(others, None)
        run(requests.finish())
    finally:
        run(requests.abandon())
    statistics = requests.statistics()
    return {name: getattr(statistics, name) for name in statistics.__struct_fields__}


class Link(NamedTuple):
    """The connections of a process to one cluster, and how long its requests are retried, by topic."""

    producer: Producer
    ledger: Ledger
    retry_limits: defaultdict[str, RetryLimit]


@cache
def _link(options: SinkOptions) -> Link:
    """Return the process's connections.

    They stay open: a worker process ends without notice, and brokers detect that.
    """

    async def start() -> Link:
        client = Client(options.name_server, options.client_settings())
        producer = Producer(options.producer_group, client=client, settings=options.producer_settings())
        ledger = Ledger(client, options.ledger_topic, options.ledger_group)
        await client.start()
        await producer.start()
        await ledger.start()
        return Link(producer, ledger, defaultdict(options.retry_limit))

    return run(start())


def last_batch(options: SinkOptions, query: str) -> int:
    """Return the last batch of a query in the ledger; -1 if the ledger has no batch of it. Raises WriteFailed."""
    link = _link(options)
    limit = link.retry_limits[options.ledger_topic]
    found = _of_the_ledger(options, "read", lambda: link.ledger.last_batch(query), limit)
    limit.succeeded()
    return found


def _of_the_ledger(options: SinkOptions, done: str, attempt: Callable[[], Awaitable[T]], limit: RetryLimit) -> T:
    try:
        return run(with_retries(attempt, f"ledger {options.ledger_topic}", limit))
    except ClientError as error:
        raise WriteFailed(
            f"the ledger (topic {options.ledger_topic}) could not be {done}: {error} Without skipCommittedBatches no "
            "ledger is needed, and a repeated batch is sent again."
        ) from error


# --- on the driver --------------------------------------------------------------------------------


def check_topic(options: SinkOptions) -> None:
    """Wait until the option's topic has a queue to write to, or can be created. Raises WriteFailed.

    A job then fails before its tasks, which Spark would repeat. Topics in a column are checked by the tasks.
    """
    if options.topic is None:
        return
    link = _link(options)
    try:
        run(writable_queues(link.producer, options.topic, link.retry_limits[options.topic]))
    except SendFailed as error:
        raise WriteFailed(str(error)) from error


def commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Write the batch to the ledger and to the log. Raises WriteFailed if the ledger cannot be written."""
    _log_to_stderr()
    reports = _reports(messages)
    if not reports:
        return
    query, batch = reports[0].query, reports[0].batch
    if options.skip_committed:
        ledger = _link(options).ledger
        limit = options.retry_limit()
        limit.succeeded()  # the tasks have reached the cluster
        _of_the_ledger(options, "written", lambda: _committed(ledger, query, batch), limit)
    log.info("batch written query=%s batch=%d %s", query, batch, _pairs(_total(reports)))


async def _committed(ledger: Ledger, query: str, batch: int) -> None:
    if await ledger.last_batch(query) < batch:
        await ledger.commit(query, batch)


def abort(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Log the number of rows sent."""
    _log_to_stderr()
    log.warning("batch aborted, rows already sent remain in the topic %s", _pairs(_total(_reports(messages))))


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport]:
    return [message for message in messages if isinstance(message, TaskReport)]


def _total(reports: Sequence[TaskReport]) -> dict[str, float]:
    names = ("rows", "bytes", "requests", "retries", "unreplicated", "skipped")
    sums: dict[str, float] = {name: sum(getattr(report, name) for report in reports) for name in names}
    return {"partitions": len(reports), **sums, "seconds": max((report.seconds for report in reports), default=0.0)}


def _pairs(values: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _log_to_stderr() -> None:
    """Configure logging to stderr if nothing else has: a worker's stderr is in the executor's log."""
    package = logging.getLogger("skylarkmq.clients")
    if not package.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        package.addHandler(handler)
        package.setLevel(logging.INFO)
