"""Trace records as tables: sends, ends of transactions, and handler calls.

    trace messages --records--> one row for each record, its fields as an array
        Pub                       --sends-->          a row for each send
        EndTransaction            --commits-->        when a transactional message became visible
        SubBefore and SubAfter    --consumptions-->   a row for each handler call, joined with the send of its message

Every trace message may be stored twice, so each table drops repeated rows. Records that lack a field or have an invalid
number keep null there. A handler call without a SubAfter is unfinished: the consumer stopped, or the call still runs.

    latencyMs     from the end of the send, or of the transaction, to the begin of the first handler call in a group
    durationMs    the time in the handler

Both compare clocks: latencyMs those of the producer's and the consumer's machine, so it may be below zero. It includes
the delay of a delayed message. Source: docs/reference/wire.md, "Message traces".
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from skylarkmq.clients.sdk.telemetry.trace_records import FIELD_END, NO_KEYS, RECORD_END
from skylarkmq.clients.spark.jobs.messages import CLIENT_HOST

FIELDS: Final = "fields"
OUTCOMES: Final = ("success", "timeout", "exception", "null", "failed")
"""The names of the outcomes 0 to 4 of a SubAfter record."""
UNFINISHED: Final = "unfinished"
HALF: Final = 1  # the type of a transactional message
COMMIT: Final = "COMMIT_MESSAGE"


def records(messages: DataFrame) -> DataFrame:
    """Return the records of trace messages: kind, fields, clientHost. `messages`: body, clientHost."""
    texts = f.explode(f.split(f.col("body").cast("string"), RECORD_END))
    rows = messages.select(texts.alias("record"), CLIENT_HOST).where("record != ''")
    fields = f.split("record", FIELD_END)
    return rows.select(f.get(fields, f.lit(0)).alias("kind"), fields.alias(FIELDS), CLIENT_HOST)


def sends(rows: DataFrame) -> DataFrame:
    """Return the sends: msgId, topic, producerGroup, clientHost, broker, sentMs, costMs, succeeded, type, bodyBytes."""
    fields_before = 13  # a record of an old client has no offset id before `success`
    is_old = f.size(FIELDS) == fields_before
    made = rows.where("kind = 'Pub'").select(
        _text(5).alias("msgId"),
        _text(4).alias("topic"),
        _text(3).alias("producerGroup"),
        f.coalesce(_text(14), f.col(CLIENT_HOST)).alias(CLIENT_HOST),
        _text(8).alias("broker"),
        _number(1).alias("sentMs"),
        _number(10).alias("costMs"),
        (f.when(is_old, _text(12)).otherwise(_text(13)) == "true").alias("succeeded"),
        _number(11).alias("type"),
        _number(9).alias("bodyBytes"),
    )
    return made.dropDuplicates(["msgId", "producerGroup", "sentMs"])


def commits(rows: DataFrame) -> DataFrame:
    """Return when transactional messages were committed: msgId, committedMs."""
    made = rows.where("kind = 'EndTransaction'").where(_text(11) == COMMIT)
    return (
        made.select(_text(5).alias("msgId"), _number(1).alias("atMs"))
        .groupBy("msgId")
        .agg(f.min("atMs").alias("committedMs"))
    )


def calls(rows: DataFrame) -> DataFrame:
    """Return the handler calls: msgId, consumerGroup, clientHost, begunMs, durationMs, outcome, earlierDeliveries."""
    call = ["requestId", "msgId"]
    begun = rows.where("kind = 'SubBefore'").select(
        _text(4).alias("requestId"),
        _text(5).alias("msgId"),
        _text(3).alias("consumerGroup"),
        CLIENT_HOST,
        _number(1).alias("begunMs"),
        _number(6).alias("earlierDeliveries"),
    )
    ended = rows.where("kind = 'SubAfter'").select(
        _text(1).alias("requestId"),
        _text(2).alias("msgId"),
        _number(3).alias("durationMs"),
        _outcome().alias("outcome"),
    )
    joined = begun.dropDuplicates(call).join(ended.dropDuplicates(call), call, "left")
    return joined.withColumn("outcome", f.coalesce("outcome", f.lit(UNFINISHED))).drop("requestId")


def consumptions(rows: DataFrame) -> DataFrame:
    """Return the handler calls with topic, broker and latencyMs of their message; null if its send has no trace.

    `latencyMs` is null for redeliveries.
    """
    visible = f.greatest(f.col("sentMs") + f.col("costMs"), f.when(f.col("type") == HALF, f.col("committedMs")))
    sent = (
        sends(rows)
        .where("succeeded")
        .groupBy("msgId")
        .agg(f.min_by(f.struct("topic", "broker", "sentMs", "costMs", "type"), "sentMs").alias("sent"))
    )
    stored = sent.select("msgId", "sent.*").join(commits(rows), "msgId", "left")
    joined = calls(rows).join(stored.select("msgId", "topic", "broker", visible.alias("visibleMs")), "msgId", "left")
    latency = f.when(f.col("earlierDeliveries") == 0, f.col("begunMs") - f.col("visibleMs"))
    return joined.withColumn("latencyMs", latency).drop("visibleMs")


def _text(at: int) -> Column:
    """The field at a position; null if the record has no such field, or an empty one."""
    value = f.get(FIELDS, f.lit(at))
    return f.when((value != "") & (value != NO_KEYS), value)


def _number(at: int) -> Column:
    return f.get(FIELDS, f.lit(at)).try_cast("bigint")


def _outcome() -> Column:
    """The outcome by its number; records of old clients contain only `success`."""
    number = _number(6)
    name = f.when(_text(4) == "true", OUTCOMES[0]).otherwise(OUTCOMES[-1])
    for at, outcome in enumerate(OUTCOMES):
        name = f.when(number == at, outcome).otherwise(name)
    return name
