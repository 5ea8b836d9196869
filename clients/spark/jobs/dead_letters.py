"""Dead letters: the messages of a dead-letter topic with their origin and reason, in groups.

    messages --letters--> + originTopic, reason, group --groups--> one row for each group, with its newest letters

A dead letter comes from a broker (`%DLQ%<group>`, after the last redelivery) or from `mqspark-pipeline` (a body that
does not parse). Brokers do not record why a handler failed. So the reason is DEAD_LETTER_REASON if the message has it,
else the number of deliveries; applications that record an exception in a property group by that property.

Digits in reasons and properties become `#` in the name of the group, so texts that differ in numbers are one group.
Source: docs/reference/wire.md, "Retries and dead letters".
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.pipeline.rows import DEAD_LETTER_REASON, ORIGIN_TOPIC
from skylarkmq.clients.terminal.printed_output import Summary, preview, utc
from skylarkmq.protocol.message import PropertyName

PROPERTY_PREFIX: Final = "property:"
BY: Final = ("reason", "key", "tag", "topic")
BY_HELP: Final = f"How letters are grouped: {', '.join(BY)} (the origin), or {PROPERTY_PREFIX}NAME."
NO_VALUE: Final = "(none)"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"  # of RocketMQ 5's proxy
PREVIEW_BYTES: Final = 400
MAX_GROUP_CHARACTERS: Final = 200


class Letter(Summary, frozen=True, kw_only=True):
    """One dead letter."""

    msg_id: Annotated[str | None, Meta(description="the message's id, which it keeps from the first delivery")]
    broker_name: Annotated[str | None, Meta(description="the broker; null in a store directory")]
    queue_id: Annotated[int, Meta(description="the queue of the dead-letter topic")]
    queue_offset: Annotated[int, Meta(description="the offset in that queue")]
    stored_at: Annotated[str | None, Meta(description="when it became a dead letter, UTC")]
    origin_topic: Annotated[str, Meta(description="the topic of the first delivery")]
    reason: Annotated[str, Meta(description="the recorded reason, or the number of deliveries")]
    keys: Annotated[str | None, Meta(description="the keys")]
    tags: Annotated[str | None, Meta(description="the tags")]
    deliveries: Annotated[int, Meta(description="how often a consumer received the message; 0 from a pipeline")]
    body: Annotated[str, Meta(description="the beginning of the body, as text")]


class LetterGroup(Summary, frozen=True, kw_only=True):
    """Dead letters with the same reason, key, tag, topic or property."""

    group: Annotated[str, Meta(description=f"the value that they share; `{NO_VALUE}` without one")]
    letters: Annotated[int, Meta(description="dead letters in the group")]
    first_at: Annotated[str | None, Meta(description="when the first became a dead letter, UTC")]
    last_at: Annotated[str | None, Meta(description="when the last became a dead letter, UTC")]
    origin_topics: Annotated[list[str], Meta(description="the topics of the first deliveries, sorted")]
    samples: Annotated[list[Letter], Meta(description="the newest letters, newest first")]


class DeadLettersSummary(Summary, frozen=True, kw_only=True):
    """The summary of `mqspark-dead-letters`."""

    schema: Annotated[str, Meta(description="name and version of this format")] = "mqspark-dead-letters/1"
    topic: Annotated[str, Meta(description="the dead-letter topic")]
    by: Annotated[str, Meta(description="how the letters are grouped")]
    letters: Annotated[int, Meta(description="the selected dead letters")]
    group_count: Annotated[int, Meta(description="groups, including groups that `groups` omits")]
    groups: Annotated[list[LetterGroup], Meta(description="the groups, most letters first")]


def check_grouping(by: str) -> None:
    """Raises NotStarted if `by` names no grouping."""
    if by not in BY and not (by.startswith(PROPERTY_PREFIX) and by != PROPERTY_PREFIX):
        raise NotStarted(f"--by must be one of {', '.join(BY)}, {PROPERTY_PREFIX}NAME, not {by!r}")


def letters(messages: DataFrame, by: str) -> DataFrame:
    """Return the messages with originTopic, reason and group. `by`: a grouping that `check_grouping` accepts."""
    deliveries = f.concat(f.lit("no reason recorded, after "), f.col("reconsumeTimes"), f.lit(" deliveries"))
    rows = messages.select(
        "*",
        f.coalesce(
            _property(ORIGIN_TOPIC), _property(DLQ_ORIGIN_TOPIC), _property(PropertyName.RETRY_TOPIC), "topic"
        ).alias("originTopic"),
        f.coalesce(_property(DEAD_LETTER_REASON), deliveries).alias("reason"),
    )
    return rows.withColumn("group", f.coalesce(_group(by), f.lit(NO_VALUE)))


def picked(rows: DataFrame, groups: Sequence[str]) -> DataFrame:
    """Return the letters of these groups; without groups, all. `rows` is the result of `letters`."""
    return rows.where(f.col("group").isin(*groups)) if groups else rows


def grouped(rows: DataFrame, samples: int) -> DataFrame:
    """Return a row for each group, most letters first, with its newest letters; `rows` is the result of `letters`."""
    newest = Window.partitionBy("group").orderBy(f.desc("storeTimestamp"), "brokerName", "queueId", "queueOffset")
    sample = f.struct(
        "number", "msgId", "brokerName", "queueId", "queueOffset", "originTopic", "reason", "keys", "tags",
        "reconsumeTimes", f.unix_millis("storeTimestamp").alias("storedMs"),
        f.substring("body", 1, PREVIEW_BYTES).alias("body"),
    )  # fmt: skip
    numbered = rows.withColumn("number", f.row_number().over(newest))
    found = numbered.groupBy("group").agg(
        f.count(f.lit(1)).alias("letters"),
        f.unix_millis(f.min("storeTimestamp")).alias("firstMs"),
        f.unix_millis(f.max("storeTimestamp")).alias("lastMs"),
        f.array_sort(f.collect_set("originTopic")).alias("originTopics"),
        f.array_sort(f.collect_list(f.when(f.col("number") <= samples, sample))).alias("samples"),
    )
    return found.orderBy(f.desc("letters"), "group")


def summarize(rows: DataFrame, topic: str, by: str, *, top: int, samples: int) -> DeadLettersSummary:
    """Return the summary, with at most `top` groups and `samples` letters of each."""
    found = grouped(rows, samples).persist()
    try:
        (total,) = found.agg(f.sum("letters").alias("letters"), f.count(f.lit(1)).alias("groups")).collect()
        most = found.orderBy(f.desc("letters"), "group").limit(top).collect()
    finally:
        found.unpersist()
    return DeadLettersSummary(
        topic=topic,
        by=by,
        letters=total["letters"] or 0,
        group_count=total["groups"],
        groups=[
            LetterGroup(
                group=row["group"],
                letters=row["letters"],
                first_at=utc(row["firstMs"]),
                last_at=utc(row["lastMs"]),
                origin_topics=list(row["originTopics"]),
                samples=[_letter(sample) for sample in row["samples"]],
            )
            for row in most
        ],
    )


def _property(name: str) -> Column:
    return f.col("properties").getItem(name)


def _group(by: str) -> Column:
    if by in ("key", "tag", "topic"):
        return f.col({"key": "key", "tag": "tags", "topic": "originTopic"}[by])
    text = f.col("reason") if by == "reason" else _property(by.removeprefix(PROPERTY_PREFIX))
    return f.regexp_replace(f.substring(text, 1, MAX_GROUP_CHARACTERS), r"\d+", "#")


def _letter(row: Any) -> Letter:
    return Letter(
        msg_id=row["msgId"],
        broker_name=row["brokerName"],
        queue_id=row["queueId"],
        queue_offset=row["queueOffset"],
        stored_at=utc(row["storedMs"]),
        origin_topic=row["originTopic"],
        reason=row["reason"],
        keys=row["keys"],
        tags=row["tags"],
        deliveries=row["reconsumeTimes"],
        body=preview(None if row["body"] is None else bytes(row["body"])),
    )
