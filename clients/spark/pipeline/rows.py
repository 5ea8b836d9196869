"""Messages that do not parse, to dead letters.

messages --decoded--> + value, deadLetterReason          (clients/spark/decoding)
    a reason --> the original body and properties, the origin and the reason
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.spark.decoding.columns import BODY, REASON
from skylarkmq.clients.spark.decoding.decoding import decoded
from skylarkmq.clients.spark.decoding.encodings import Decoding

MAX_PROPERTY_CHARACTERS: Final = 8_192  # characters; with the added ones they must fit into 32,767 bytes
MAX_BODY_BYTES: Final = ProducerSettings().max_message_bytes  # the producer's limit, before compression

DEAD_LETTER_REASON: Final = "DEAD_LETTER_REASON"
ORIGIN_TOPIC: Final = "DEAD_LETTER_TOPIC"
ORIGIN_QUEUE: Final = "DEAD_LETTER_QUEUE"
ORIGIN_OFFSET: Final = "DEAD_LETTER_OFFSET"
ORIGIN_MSG_ID: Final = "DEAD_LETTER_MSG_ID"
ORIGIN_STORED: Final = "DEAD_LETTER_STORED"
CUT: Final = "DEAD_LETTER_PROPERTIES_CUT"
BODY_CUT: Final = "DEAD_LETTER_BODY_CUT"
ORIGINS: Final = (ORIGIN_TOPIC, ORIGIN_QUEUE, ORIGIN_OFFSET, ORIGIN_MSG_ID, ORIGIN_STORED)
ADDED: Final = (DEAD_LETTER_REASON, *ORIGINS, CUT, BODY_CUT)


def dead_letters(messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Return the messages that do not parse, as columns of the sink; `messages` has the column properties.

    A body that exceeds the maximum message size after decompression is truncated, and its full length recorded: one
    such message must not stop the query, and the origin refers to the full message.
    """
    bad = decoded(messages, decoding).where(f.col(REASON).isNotNull())
    return bad.select(
        f.coalesce(f.substring(BODY, 1, MAX_BODY_BYTES), f.lit(b"")).alias(BODY),
        "tags",
        "keys",
        f.map_concat(_original_properties(), _origin()).alias("properties"),
    )


def _fit() -> Column:
    """Whether the properties leave enough space for ours; lengths are in characters of at most three bytes."""
    names, values = f.map_keys("properties"), f.map_values("properties")
    return f.length(f.array_join(names, "")) + f.length(f.array_join(values, "")) <= MAX_PROPERTY_CHARACTERS


def _original_properties() -> Column:
    kept = f.map_filter("properties", lambda name, _: ~name.isin(*ADDED))
    return f.when(_fit(), kept).otherwise(f.create_map().cast("map<string,string>"))


def _origin() -> Column:
    added = {
        DEAD_LETTER_REASON: f.substring(REASON, 1, 1000),
        ORIGIN_TOPIC: f.col("topic"),
        ORIGIN_QUEUE: f.concat_ws(":", "brokerName", "queueId"),
        ORIGIN_OFFSET: f.col("queueOffset").cast("string"),
        ORIGIN_MSG_ID: f.col("msgId"),
        ORIGIN_STORED: f.unix_millis("storeTimestamp").cast("string"),
        CUT: f.when(~_fit(), "true"),
        BODY_CUT: f.when(f.octet_length(BODY) > MAX_BODY_BYTES, f.octet_length(BODY).cast("string")),
    }
    return f.create_map(*(part for name, value in added.items() for part in (f.lit(name), value)))
