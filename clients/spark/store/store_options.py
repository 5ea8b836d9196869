"""The options of `format("rocketmq-store")`."""

from typing import Final

from skylarkmq.clients.arrow.store.options import QUEUE, SEGMENT, StoreOptions
from skylarkmq.clients.spark.base.column_options import INCLUDE_PROPERTIES, column_fields
from skylarkmq.clients.spark.base.options import Option, Scope, Table, count, flag, one_of, positive, text
from skylarkmq.clients.spark.source.offsets import FirstBatch
from skylarkmq.clients.spark.source.source_options import FIRST_BATCH, pattern, topics


def directory(value: str) -> str:
    """Return a path of the file system; the text may be a `file:` URL."""
    path = text(value)
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    if "://" in path:
        raise ValueError("a directory that is mounted on every executor")
    return path


def directories(value: str) -> tuple[str, ...]:
    """Return paths, separated by commas in the text."""
    return tuple(directory(path) for path in value.split(",") if path.strip())


class StoreSourceOptions(StoreOptions, frozen=True, kw_only=True):
    """The parsed options of a reader of a store directory."""

    push_filters: bool = False
    max_bytes_per_trigger: int = 4 << 30
    first_batch: FirstBatch | None = None


STORE_OPTIONS: Final = Table(
    "rocketmq-store",
    StoreSourceOptions,
    (
        Option(
            "path", "path", "the store directory, the broker's storePathRootDir; also the argument of `load`", directory
        ),
        Option(
            "storePathCommitLog", "commit_log_paths",
            "directories of the commit log, if not below `path`; separated by commas",
            directories, default_text="`path`/commitlog",
        ),
        Option(
            "subscribe", "topics", "topics, separated by commas; system topics only if they are named", topics,
            aliases=("topic",), default_text="all but system topics",
        ),
        Option("subscribePattern", "topic_pattern", "regular expression over whole topic names", pattern),
        Option(
            "key", "key", "messages with this key or unique key, found through the index", text, scope=Scope.BATCH,
        ),
        Option("startingTimestamp", "starting_timestamp", "ms; messages stored then or later", count),
        Option("endingTimestamp", "ending_timestamp", "ms; messages stored before", count),
        Option(
            "partitionBy", "partition_by", "`segment`: tasks read parts of the log; `queue`: a queue each, in order",
            one_of(SEGMENT, QUEUE), SEGMENT,
        ),
        Option(
            "maxPartitionBytes", "max_partition_bytes", "maximum bytes of the log per task; segments are split",
            positive, str(128 << 20),
        ),
        Option(
            "maxBytesPerTrigger", "max_bytes_per_trigger", "bytes of the log per batch, about", positive, str(4 << 30),
            scope=Scope.STREAM,
        ),
        FIRST_BATCH,
        Option(
            "brokerName", "broker_name", "value of the column `brokerName`; required by streams", text,
            default_text="null",
        ),
        INCLUDE_PROPERTIES,
        Option("checkCrc", "check_crc", "verify the checksums of all bodies", flag, "false"),
        Option(
            "failOnDataLoss", "fail_on_data_loss", "true: fail at damaged records; false: skip them with a warning",
            flag, "true",
        ),
        Option("forceGap", "force_gap", "read a log in which segments are missing in the middle", flag, "false"),
        Option("useIndex", "use_index", "false: search for keys in the whole log", flag, "true"),
        Option("maxHashSlotNum", "index_slots", "hash slots per index file; the broker's setting", positive, "5000000"),
        Option("maxIndexNum", "index_items", "items per index file; the broker's setting", positive, "20000000"),
        Option(
            "pushFilters", "push_filters",
            "apply filters on topic, storeTimestamp and key as the options do; "
            "needs `spark.sql.python.filterPushdown.enabled=true`",
            flag, "false",
        ),
    ),
    ignored=(),
    assemble=column_fields,
)  # fmt: skip
