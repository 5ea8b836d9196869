"""Messages to rows of tables: good rows, and bad rows for the side table.

messages --with_values--> + value, deadLetterReason     once for each batch, if the job decodes
    good_rows     no reason: the message's columns and value; without body, unless it is kept
    bad_rows      a reason: the reason, then all columns of the message, so its place and its body
--partitioned-->  + hour or day                         the column by which Delta tables and directories are divided
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from skylarkmq.clients.spark.decoding.columns import BODY, REASON, VALUE
from skylarkmq.clients.spark.decoding.decoding import decoded
from skylarkmq.clients.spark.decoding.encodings import Decoding
from skylarkmq.clients.spark.tables.layout import STORED, TOPIC, TimeUnit

BAD_REASON: Final = "reason"


def with_values(messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Return the messages, with the columns value and deadLetterReason if the job decodes."""
    return decoded(messages, decoding) if decoding.is_on else messages


def good_rows(rows: DataFrame, *, keep_body: bool) -> DataFrame:
    """Return the rows that parse; rows that are not decoded are all good and keep their body."""
    if REASON not in rows.columns:
        return rows
    good = rows.where(f.col(REASON).isNull()).drop(REASON)
    return good if keep_body else good.drop(BODY)


def bad_rows(rows: DataFrame) -> DataFrame:
    """Return the rows that do not parse, as messages with a reason."""
    bad = rows.where(f.col(REASON).isNotNull()).drop(VALUE)
    others = [name for name in bad.columns if name != REASON]
    return bad.select(f.col(REASON).alias(BAD_REASON), *others)


def partitioned(rows: DataFrame, unit: TimeUnit) -> DataFrame:
    """Add the partition column of the store time."""
    return rows.withColumn(unit.column, unit.of(STORED))


def shuffled(rows: DataFrame, unit: TimeUnit) -> DataFrame:
    """Collect the rows of a partition in one task, before they are written: few large files, not many small ones."""
    return rows.hint("rebalance", f.col(TOPIC), f.col(unit.column))
