"""The options of `mqspark-pipeline` that describe the table, and the place of bad rows."""

from typing import Annotated

import typer

from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.decoding.encodings import Decoding
from skylarkmq.clients.spark.sink.sink_options import topic_name
from skylarkmq.clients.spark.tables.availability import Engine
from skylarkmq.clients.spark.tables.evolution import TableFormat
from skylarkmq.clients.spark.tables.layout import TimeUnit
from skylarkmq.clients.spark.tables.names import iceberg_name

Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        help="Directory, any URI that Spark supports; for Iceberg the table's name: catalog.namespace.table.",
    ),
]
To = Annotated[TableFormat, typer.Option("--to", help="Format of the table; docs/use/spark/tables.md names the jars.")]
IcebergEngine = Annotated[
    Engine | None, typer.Option("--engine", help="For Iceberg; default: Spark's runtime if it is there.")
]
PartitionBy = Annotated[
    TimeUnit, typer.Option("--partition-by", help="Time of a partition of a new table, by the store time (UTC).")
]
Checkpoint = Annotated[
    str | None,
    typer.Option("--checkpoint", help="Checkpoint directory; default: OUTPUT.checkpoint; required for Iceberg."),
]
FileBytes = Annotated[
    str, typer.Option("--file-bytes", help="Parquet, Iceberg: size at which files are split, with k, m or g.")
]
FileRows = Annotated[int, typer.Option("--file-rows", min=1, help="Parquet, Delta: rows at which files are split.")]
Shuffle = Annotated[
    bool,
    typer.Option(
        "--shuffle/--no-shuffle",
        help="Parquet: collect the rows of a topic and an hour, for one file; --no-shuffle: a file per task, faster.",
    ),
]
DeadLetterTopic = Annotated[
    str | None,
    typer.Option("--dead-letter-topic", help="Topic for messages that do not parse, instead of the table OUTPUT_bad."),
]
DropBadRows = Annotated[bool, typer.Option("--drop-bad-rows", help="Discard messages that do not parse.")]


def check_table(output: str, table_format: TableFormat, engine: Engine | None, *, shuffles: bool) -> None:
    """Raise NotStarted for an invalid name or engine, or an option that this format does not have."""
    if not shuffles and table_format is not TableFormat.PARQUET:
        raise NotStarted(f"--no-shuffle is for Parquet; --to {table_format.value} never shuffles")
    if table_format is TableFormat.ICEBERG:
        try:
            iceberg_name(output)
        except ValueError as error:
            raise NotStarted(f"--output must name a table: {error}") from None
    elif engine is not None:
        raise NotStarted(f"--engine is for Iceberg, not for --to {table_format.value}")


def checkpoint_of(output: str, table_format: TableFormat, given: str | None) -> str:
    """Return the checkpoint's directory. Raises NotStarted."""
    if given is not None:
        return given
    if table_format is TableFormat.ICEBERG:  # a relative default would be another directory in another place
        raise NotStarted("--to iceberg needs --checkpoint: a directory that all machines share, such as s3a://lake/c")
    return f"{output.rstrip('/')}.checkpoint"


def dead_letters_to(topic: str | None, decoding: Decoding, *, drops: bool) -> str | None:
    """Return the dead-letter topic; None if bad rows go elsewhere. Raises NotStarted."""
    if topic is None:
        return None
    if not decoding.is_on:
        raise NotStarted(
            "--dead-letter-topic needs a schema: set --json-schema, --avro-schema or --protobuf-descriptor"
        )
    if drops:
        raise NotStarted("--dead-letter-topic and --drop-bad-rows are both set: choose one")
    try:
        return topic_name(topic)
    except ValueError as error:
        raise NotStarted(f"--dead-letter-topic must be {error}") from None
