"""The messages that a job reads: of a topic, of a store directory, or of an archive in Parquet.

All three have the columns of the sources (docs/use/spark/sources.md, "Columns") with `properties`, and `clientHost`:
the address of the producer's connection. Only archives contain it; it is null otherwise.

An archive is a directory of `mqspark-archive`, or of Parquet files with its columns. Rows that no consumer could read
(column `readable`) are omitted, except traces. Properties and bodies are in it as they are stored: properties become a
map without entries that lack a name or a value; compressed bodies are decompressed in Python, damaged ones are null.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

from skylarkmq.clients.arrow.schema import DEFAULT_COLUMNS, PROPERTIES
from skylarkmq.clients.spark.base.options import parse
from skylarkmq.clients.spark.command_line import NotStarted, check_cluster, error_summary
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS
from skylarkmq.clients.spark.store.store_options import STORE_OPTIONS
from skylarkmq.protocol.codes import SysFlag, SystemTopic
from skylarkmq.protocol.compression import PayloadError, inflate
from skylarkmq.protocol.message import ENTRY_END, NAME_END

CLIENT_HOST: Final = "clientHost"
NEEDED: Final = (*(name for name in DEFAULT_COLUMNS if name != "key"), PROPERTIES, "bornHost", "sysFlag")
"""The columns that an archive must have."""
READABLE: Final = "readable"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one topic. One of `name_server`, `store` and `archive` is set. Times are ms since 1970."""

    topic: str
    name_server: str | None = None
    store: str | None = None
    archive: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    options: Mapping[str, str] = {}


def check(selection: Selection, advice: str | None = None) -> None:
    """Raises NotStarted or OptionError if the selection cannot be read. Does not need Spark.

    `advice` is part of the error if the topic does not exist.
    """
    given = [selection.name_server, selection.store, selection.archive]
    if sum(place is not None for place in given) != 1:
        raise NotStarted("give one of --name-server, --store and --archive")
    if selection.options and selection.archive is not None:
        raise NotStarted("--option is for topics and stores: an archive has no options")
    if selection.name_server is not None:
        options = parse(SOURCE_OPTIONS, _topic_options(selection))
        check_cluster(options, options.subscribe or (), advice)
    elif selection.store is not None:
        path = parse(STORE_OPTIONS, _store_options(selection)).path
        if not Path(path).is_dir():
            raise NotStarted(f"{path} is not a directory: --store takes the broker's storePathRootDir")


def messages(spark: SparkSession, selection: Selection, condition: str | None = None) -> DataFrame:
    """Return the selected messages for which a condition holds.

    Raises NotStarted for an archive or a condition that Spark rejects.
    """
    if selection.name_server is not None:
        rows = spark.read.format("rocketmq").options(**_topic_options(selection)).load()
    elif selection.store is not None:
        rows = spark.read.format("rocketmq-store").options(**_store_options(selection)).load()
    else:
        rows = _of_archive(spark, selection)
    if CLIENT_HOST not in rows.columns:
        rows = rows.withColumn(CLIENT_HOST, f.lit(None).cast("string"))
    return rows if condition is None else where(rows, condition)


def where(rows: DataFrame, condition: str) -> DataFrame:
    """Return the rows for which the SQL condition holds. Raises NotStarted if it is invalid."""
    try:
        return rows.where(condition)
    except AnalysisException as error:
        columns = ", ".join(rows.columns)
        raise NotStarted(f"--where: {error_summary(str(error))} Columns: {columns}.") from None


def _topic_options(selection: Selection) -> dict[str, str]:
    options = {"nameServer": selection.name_server or "", "subscribe": selection.topic, "includeProperties": "true"}
    # An empty range is not an error: a job reports zero messages.
    options["startingOffsetsByTimestampStrategy"] = "latest"
    return options | _times(selection) | dict(selection.options)


def _store_options(selection: Selection) -> dict[str, str]:
    options = {"path": selection.store or "", "subscribe": selection.topic, "includeProperties": "true"}
    return options | _times(selection) | dict(selection.options)


def _times(selection: Selection) -> dict[str, str]:
    given = {"startingTimestamp": selection.since_ms, "endingTimestamp": selection.until_ms}
    return {name: str(ms) for name, ms in given.items() if ms is not None}


# --- archives -------------------------------------------------------------------------------------


def _of_archive(spark: SparkSession, selection: Selection) -> DataFrame:
    try:
        stored = spark.read.options(recursiveFileLookup="true", pathGlobFilter="*.parquet").parquet(
            str(selection.archive)
        )
    except AnalysisException as error:
        raise NotStarted(f"cannot read the archive {selection.archive}: {error_summary(str(error))}") from None
    missing = [name for name in NEEDED if name not in stored.columns]
    if missing:
        raise NotStarted(f"{selection.archive} is not an archive of messages: the column {missing[0]} is missing")
    stored = stored.where(f.col("topic") == selection.topic)
    if READABLE in stored.columns and selection.topic != SystemTopic.TRACE:  # traces are not readable in archives
        stored = stored.where(READABLE)
    rows = of_archive(stored)
    at = f.unix_millis("storeTimestamp")
    if selection.since_ms is not None:
        rows = rows.where(at >= selection.since_ms)
    return rows if selection.until_ms is None else rows.where(at < selection.until_ms)


def of_archive(stored: DataFrame) -> DataFrame:
    """Return archived rows with the columns of the sources: properties as a map, bodies decompressed."""
    return stored.select(
        f.substring_index("keys", " ", 1).alias("key"),
        *(name for name in DEFAULT_COLUMNS if name not in ("key", "body")),
        _readable_body().alias("body"),
        property_map("properties").alias(PROPERTIES),
        f.regexp_replace("bornHost", r":\d+$", "").alias(CLIENT_HOST),  # the port changes with each connection
    )


def property_map(column: str) -> Column:
    """Return a property string as a map, by the rules of `protocol.message.decode_properties`.

    Duplicate names need spark.sql.mapKeyDedupPolicy=LAST_WIN.
    """

    def is_valid(entry: Column) -> Column:
        at = f.instr(entry, NAME_END)
        return (at > 1) & (at < f.length(entry))

    def pair(entry: Column) -> Column:
        name = f.substring_index(entry, NAME_END, 1)
        return f.struct(name.alias("name"), f.substring(entry, f.length(name) + 2, f.length(entry)).alias("value"))

    entries = f.filter(f.split(column, ENTRY_END), is_valid)
    return f.coalesce(f.map_from_entries(f.transform(entries, pair)), f.create_map().cast("map<string,string>"))


def _readable_body() -> Column:
    is_compressed = f.col("sysFlag").bitwiseAND(int(SysFlag.COMPRESSED)) != 0
    inflated = f.udf(_inflated, BinaryType(), useArrow=False)
    # The function gets null in place of a body that is not compressed: Spark evaluates it for every row.
    return f.when(is_compressed, inflated(f.when(is_compressed, f.col("body")), "sysFlag")).otherwise(f.col("body"))


def _inflated(body: bytes | None, sys_flag: int) -> bytes | None:
    if body is None:
        return None
    try:
        return inflate(bytes(body), sys_flag)
    except PayloadError:
        return None
