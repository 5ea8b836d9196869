"""Messages of a topic with the same value: how many, where, and how far apart in time.

    messages --values--> one row for each message and value --copies--> + copy, gapMs
        copy    1 for the first message with the value, in the order of store time, 2 for the second, ...
        gapMs   ms since the previous one

The value is one of the keys, the message's id, the mark of Spark's sink (`SPARK_ROW`), a hash of the body, or a
property. A message with several keys counts for each of them. Messages without the value are not compared.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.sink.sink_rows import MARK
from skylarkmq.clients.terminal.printed_output import Summary, utc

PROPERTY_PREFIX: Final = "property:"
VALUES: Final = {
    "key": "explode(array_distinct(filter(split(keys, ' '), key -> key != '')))",
    "id": "msgId",
    "mark": f"properties['{MARK}']",
    "body": "sha2(body, 256)",
}
BY_HELP: Final = f"The value to compare: {', '.join(VALUES)}, or {PROPERTY_PREFIX}NAME."
PLACE: Final = ("brokerName", "queueId", "queueOffset")
DISTANCES: Final = (("under 1 s", 1_000), ("under 1 min", 60_000), ("under 1 h", 3_600_000), ("under 1 d", 86_400_000))
LONGER: Final = "1 d or more"
MAX_PLACES: Final = 5


class Place(Summary, frozen=True, kw_only=True):
    """One of the messages with a value."""

    broker_name: Annotated[str | None, Meta(description="the broker; null in a store directory")]
    queue_id: Annotated[int, Meta(description="the queue")]
    queue_offset: Annotated[int, Meta(description="the offset in the queue")]
    msg_id: Annotated[str | None, Meta(description="the message's id")]
    stored_at: Annotated[str | None, Meta(description="the store time, UTC")]
    gap_ms: Annotated[int | None, Meta(description="ms since the previous message with the value; null for the first")]


class Duplicated(Summary, frozen=True, kw_only=True):
    """A value that several messages have."""

    value: Annotated[str, Meta(description="the value; for bodies their SHA-256")]
    messages: Annotated[int, Meta(description="messages with the value")]
    same_body: Annotated[bool, Meta(description="whether all these messages have the same body")]
    shortest_gap_ms: Annotated[int | None, Meta(description="shortest time between two successive messages")]
    longest_gap_ms: Annotated[int | None, Meta(description="longest time between two successive messages")]
    places: Annotated[list[Place], Meta(description=f"the first {MAX_PLACES} of these messages, in store order")]


class Distance(Summary, frozen=True, kw_only=True):
    """How many repeated messages follow the previous one within a time."""

    gap: Annotated[str, Meta(description="the time since the previous message with the value")]
    messages: Annotated[int, Meta(description="repeated messages")]


class DuplicatesSummary(Summary, frozen=True, kw_only=True):
    """The summary of `mqspark-duplicates`."""

    schema: Annotated[str, Meta(description="name and version of this format")] = "mqspark-duplicates/1"
    topic: Annotated[str, Meta(description="the topic")]
    by: Annotated[str, Meta(description="the value that was compared")]
    messages: Annotated[int, Meta(description="messages that have a value, once for each of their values")]
    values: Annotated[int, Meta(description="different values")]
    duplicated_values: Annotated[int, Meta(description="values that several messages have")]
    extra_messages: Annotated[int, Meta(description="messages that repeat a value")]
    distances: Annotated[list[Distance], Meta(description="repeated messages by the time since the previous one")]
    top: Annotated[list[Duplicated], Meta(description="the values with the most messages")]


def check_value(by: str) -> None:
    """Raises NotStarted if `by` names no value."""
    if by not in VALUES and not (by.startswith(PROPERTY_PREFIX) and by != PROPERTY_PREFIX):
        raise NotStarted(f"--by must be one of {', '.join(VALUES)}, {PROPERTY_PREFIX}NAME, not {by!r}")


def value_of(by: str) -> Column:
    """Return the column of a value that `check_value` accepts."""
    if by.startswith(PROPERTY_PREFIX):
        return f.col("properties").getItem(by.removeprefix(PROPERTY_PREFIX))
    return f.expr(VALUES[by])


def values(messages: DataFrame, by: str) -> DataFrame:
    """Return a row for each message and value: value, place, msgId, storedMs, bodyHash."""
    rows = messages.select(
        value_of(by).alias("value"),
        *PLACE,
        "msgId",
        f.unix_millis("storeTimestamp").alias("storedMs"),
        f.xxhash64("body").alias("bodyHash"),
    )
    return rows.where("value != ''")


def copies(rows: DataFrame) -> DataFrame:
    """Return the rows with `copy` and `gapMs`, by value and in the order of store time."""
    of_value = Window.partitionBy("value").orderBy("storedMs", *PLACE)
    return rows.select(
        "*",
        f.row_number().over(of_value).alias("copy"),
        (f.col("storedMs") - f.lag("storedMs").over(of_value)).alias("gapMs"),
    )


def duplicated(rows: DataFrame) -> DataFrame:
    """Return the values that several messages have, most messages first; `rows` is the result of `copies`."""
    place = f.struct("copy", *PLACE, "msgId", "storedMs", "gapMs")
    places = f.collect_list(f.when(f.col("copy") <= MAX_PLACES, place))
    grouped = rows.groupBy("value").agg(
        f.count(f.lit(1)).alias("messages"),
        (f.min("bodyHash") == f.max("bodyHash")).alias("sameBody"),
        f.min("gapMs").alias("shortestGapMs"),
        f.max("gapMs").alias("longestGapMs"),
        f.array_sort(places).alias("places"),
    )
    return grouped.where("messages > 1").orderBy(f.desc("messages"), "value")


def totals(rows: DataFrame) -> DataFrame:
    """Return one row of counts over the result of `copies`: messages, values, duplicatedValues, and each distance."""
    counts = [f.count_if(_is_within(at)).alias(name) for at, name in enumerate(_distance_names())]
    return rows.agg(
        f.count(f.lit(1)).alias("messages"),
        f.count_if(f.col("copy") == 1).alias("values"),
        f.count_if(f.col("copy") == 2).alias("duplicatedValues"),
        *counts,
    )


def summarize(messages: DataFrame, topic: str, by: str, top: int) -> DuplicatesSummary:
    """Return the summary. Runs two Spark jobs over one cached result."""
    rows = copies(values(messages, by)).persist()
    try:
        (total,) = totals(rows).collect()
        most = duplicated(rows).limit(top).collect() if total["duplicatedValues"] else []
    finally:
        rows.unpersist()
    return DuplicatesSummary(
        topic=topic,
        by=by,
        messages=total["messages"],
        values=total["values"],
        duplicated_values=total["duplicatedValues"],
        extra_messages=total["messages"] - total["values"],
        distances=[Distance(gap=name, messages=total[name]) for name in _distance_names()],
        top=[
            Duplicated(
                value=row["value"],
                messages=row["messages"],
                same_body=bool(row["sameBody"]),
                shortest_gap_ms=row["shortestGapMs"],
                longest_gap_ms=row["longestGapMs"],
                places=_places(row["places"]),
            )
            for row in most
        ],
    )


def _places(rows: Sequence[Any]) -> list[Place]:
    return [
        Place(
            broker_name=row["brokerName"],
            queue_id=row["queueId"],
            queue_offset=row["queueOffset"],
            msg_id=row["msgId"],
            stored_at=utc(row["storedMs"]),
            gap_ms=row["gapMs"],
        )
        for row in rows
    ]


def _distance_names() -> list[str]:
    return [name for name, _ in DISTANCES] + [LONGER]


def _is_within(at: int) -> Column:
    """Whether a repeated message belongs to a distance: at least the limit before, less than its own."""
    gap = f.col("gapMs")
    at_least = gap >= (DISTANCES[at - 1][1] if at else 0)
    return at_least if at == len(DISTANCES) else at_least & (gap < DISTANCES[at][1])
