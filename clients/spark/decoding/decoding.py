"""Bodies to values: the columns that decoding adds to the messages.

    JSON        json_bodies.py       by Spark's own parser, in the JVM
    Avro        avro_bodies.py       by fastavro in Python workers; schemas: avro_schema.py, registry.py
    Protobuf    protobuf_bodies.py   by protobuf in Python workers; types: protobuf_schema.py

Two columns are added, of which one is null in each row:

    value               a struct of the schema's fields
    deadLetterReason    why the body is not such a value; a text for people, whose wording may change

A body that does not parse never fails the batch. The result depends on the message and the schemas alone, so two
queries agree about every message, however often they run. fastavro and protobuf are imported only if they are used.
"""

from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame

from skylarkmq.clients.spark.decoding import json_bodies
from skylarkmq.clients.spark.decoding.columns import with_values
from skylarkmq.clients.spark.decoding.encodings import Decoding


def decoded(messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Return the messages with the columns value and deadLetterReason.

    Raises ValueError for a schema that cannot be used, ImportError if the extra of the encoding is not installed.
    """
    if decoding.json is not None:
        return json_bodies.with_values(messages, decoding.json)
    if decoding.avro is not None:
        return with_values(messages, _loaded("avro_bodies").AvroDecoder(decoding.avro))
    if decoding.protobuf is not None:
        return with_values(messages, _loaded("protobuf_bodies").ProtobufDecoder(decoding.protobuf))
    raise ValueError("no decoding is set")


def _loaded(module: str) -> Any:
    return import_module(f"skylarkmq.clients.spark.decoding.{module}")
