"""The options of `format("rocketmq")` for reading.

The start can be set in three ways; the first of these that is set counts: a time for all queues (`startingTimestamp`),
times by topic or queue (`startingOffsetsByTimestamp`), offsets (`startingOffsets`). The same holds for the end of a
batch query.
"""

import re
from typing import Any, Final

from skylarkmq.clients.arrow.topic.options import TopicOptions
from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.spark.base.cluster_options import CLUSTER_ROWS, cluster_fields
from skylarkmq.clients.spark.base.column_options import INCLUDE_PROPERTIES, column_fields
from skylarkmq.clients.spark.base.options import Option, Scope, Table, count, duration_ms, flag, one_of, positive, text
from skylarkmq.clients.spark.source.offsets import (
    FirstBatch,
    parse_ends,
    parse_first_batch,
    parse_queues,
    parse_starts,
    parse_times,
)
from skylarkmq.protocol.bodies.heartbeat import SQL92, TAG
from skylarkmq.protocol.filters.tag import EVERYTHING

STREAM, BATCH = Scope.STREAM, Scope.BATCH


def _source_fields(values: dict[str, Any]) -> dict[str, Any]:
    return cluster_fields(column_fields(values))


def topics(value: str) -> tuple[str, ...]:
    """Return topic names, separated by commas in the text."""
    names = tuple(sorted({name.strip() for name in value.split(",") if name.strip()}))
    if not names:
        raise ValueError("topics separated by commas")
    return names


def pattern(value: str) -> str:
    """Return a valid regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return value


def starts(value: str) -> str | Positions:
    """Return earliest, latest, or offsets by queue."""
    word = value.strip().lower()
    try:
        return word if word in ("earliest", "latest") else parse_starts(value)
    except ValueError as error:
        raise ValueError(f"earliest, latest, or {error} with -2 for earliest and -1 for latest") from None


def ends(value: str) -> str | Positions:
    """Return latest, or offsets by queue."""
    word = value.strip().lower()
    try:
        return word if word == "latest" else parse_ends(value)
    except ValueError as error:
        raise ValueError(f"latest, or {error} with -1 for latest") from None


class SourceOptions(TopicOptions, frozen=True, kw_only=True):
    """The parsed options of a reader: also the sizes of batches and tasks. Times are milliseconds."""

    max_per_trigger: int | None = None
    min_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_partitions: int | None = None
    max_per_partition: int | None = None
    first_batch: FirstBatch | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        most, least = self.max_per_trigger, self.min_per_trigger
        if most is not None and least is not None and least > most:
            raise ValueError(f"minOffsetsPerTrigger ({least}) is larger than maxOffsetsPerTrigger ({most})")
        fewest, many = self.min_partitions, self.max_partitions
        if fewest is not None and many is not None and fewest > many:
            raise ValueError(f"minPartitions ({fewest}) is larger than maxPartitions ({many})")


_START: Final = "`earliest`, `latest`, or JSON by queue, with -2 for earliest and -1 for latest; for a new query only"
_TIMES: Final = 'JSON by topic `{"topic": ms}` or by queue `{"topic": {"broker": {"0": ms}}}`'

FIRST_BATCH: Final = Option(
    "firstBatch",
    "first_batch",
    'JSON `{"start": offset, "end": offset}` with offsets of a checkpoint: the first batch of a new query; '
    "`mqspark-pipeline` sets it if the table has the offsets",
    parse_first_batch,
    scope=STREAM,
)

SOURCE_OPTIONS: Final = Table(
    "rocketmq source",
    SourceOptions,
    (
        *CLUSTER_ROWS,
        Option("subscribe", "subscribe", "topics, separated by commas", topics, aliases=("topic",)),
        Option("subscribePattern", "subscribe_pattern", "regular expression over whole topic names", pattern),
        Option("assign", "assign", 'single queues: `{"topic": {"broker": [0, 1]}}`', parse_queues),
        Option(
            "startingOffsets", "starting_offsets", _START, starts,
            default_text="latest in streams, earliest in batches",
        ),
        Option("startingTimestamp", "starting_timestamp", "ms; begin at the first message stored then or later", count),
        Option("startingOffsetsByTimestamp", "starting_times", f"{_TIMES}; else as startingOffsets", parse_times),
        Option(
            "startingOffsetsByTimestampStrategy",
            "when_no_later_message",
            "if no message is new enough: `error` or `latest`",
            one_of("error", "latest"),
            "error",
        ),
        FIRST_BATCH,
        Option("endingOffsets", "ending_offsets", "`latest`, or JSON by queue", ends, "latest", scope=BATCH),
        Option(
            "endingTimestamp", "ending_timestamp", "ms; end before the first message stored then or later", count,
            scope=BATCH,
        ),
        Option(
            "endingOffsetsByTimestamp", "ending_times", f"{_TIMES}; else as endingOffsets", parse_times,
            scope=BATCH,
        ),
        Option(
            "maxOffsetsPerTrigger", "max_per_trigger", "maximum offsets per batch; queues share it by backlog",
            positive, scope=STREAM,
        ),
        Option(
            "minOffsetsPerTrigger", "min_per_trigger", "wait until this many offsets have arrived ...", positive,
            scope=STREAM,
        ),
        Option(
            "maxTriggerDelay", "max_trigger_delay_ms", "... or this time has passed", duration_ms, "15m",
            scope=STREAM,
        ),
        Option("minPartitions", "min_partitions", "split queues until there are about this many tasks", positive),
        Option("maxPartitions", "max_partitions", "maximum number of tasks; a task may read several queues", positive),
        Option(
            "maxRecordsPerPartition", "max_per_partition", "maximum offsets per task; longer ranges are split", positive
        ),
        Option(
            "failOnDataLoss", "fail_on_data_loss", "true: fail if unread messages were deleted; false: warn", flag,
            "true",
        ),
        INCLUDE_PROPERTIES,
        Option("subExpression", "expression", "tags `a || b`, or an SQL92 expression", text, EVERYTHING),
        Option("expressionType", "expression_type", "`TAG` or `SQL92`", one_of(TAG, SQL92), TAG),
        Option("groupId", "group", "consumer group for pulls and for committed progress", text),
        Option(
            "groupIdPrefix", "group_prefix", "consumer group for pulls without groupId; no offsets are committed to it",
            text, "spark-rocketmq-source",
        ),
        Option("pullBatchSize", "pull_batch", "messages per pull; brokers limit it, usually to 32", positive, "32"),
        Option("pullTimeoutMs", "pull_timeout_ms", "maximum time for a response", duration_ms, "3000"),
        Option(
            "fetchOffset.numRetries", "lookup_retries", "retries of refused requests for routes and offsets", count, "3"
        ),
        Option("fetchOffset.retryIntervalMs", "lookup_interval_ms", "time between these retries", duration_ms, "10"),
        Option(
            "brokerTimeoutMs", "broker_timeout_ms", "how long a task waits for an unavailable broker before it fails",
            duration_ms, "60000",
        ),
    ),
    assemble=_source_fields,
)  # fmt: skip
