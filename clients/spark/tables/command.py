"""The command `mqspark-table`: maintenance of the tables that `mqspark-pipeline` writes.

    table -> format, by its name or the files at its path -> Maintained, of the format and engine -> summary

No operation changes the rows of a table, and pipelines may write to it at the same time.

Exit codes: 0 done; 1 failed; 2 not started: a wrong argument, no table, no library for its format.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any, Final

import msgspec
import typer

from skylarkmq.clients.spark.base.options import duration_ms
from skylarkmq.clients.spark.command_line import Conf, Failed, Master, NotStarted, key_values, reporting, size
from skylarkmq.clients.spark.tables.availability import Engine, Unavailable
from skylarkmq.clients.spark.tables.evolution import TableFormat
from skylarkmq.clients.spark.tables.maintenance import Maintained, Request, opened
from skylarkmq.clients.spark.tables.results import Compacted, Expired, MaintenanceError

COMMAND: Final = "mqspark-table"

HELP: Final = """
Maintain tables of messages: compact small files, expire old snapshots and files.

TABLE is the path of a Delta table or of a directory of Parquet files, or the name of an Iceberg table,
catalog.namespace.table. Rows never change, and pipelines may write at the same time.

Examples:\n
  mqspark-table compact lake/orders --conf spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0\n
  mqspark-table compact lake.shop.orders --file-bytes 512m --conf spark.sql.catalog.lake.type=rest
  --conf spark.sql.catalog.lake.uri=http://catalog:8181\n
  mqspark-table expire lake.shop.orders --older-than 7d --json --conf spark.sql.catalog.lake.uri=http://catalog:8181\n
  mqspark-table expire s3a://lake/messages --format parquet --older-than 2d\n
"""

table = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=HELP)

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Path, or catalog.namespace.table.")]
Format = Annotated[TableFormat | None, typer.Option("--format", help="Default: by the files at the path.")]
IcebergEngine = Annotated[
    Engine | None, typer.Option("--engine", help="For Iceberg; default: Spark's runtime if it is there.")
]
FileBytes = Annotated[str, typer.Option("--file-bytes", help="Size of the new files, with k, m or g.")]
OlderThan = Annotated[str, typer.Option("--older-than", metavar="AGE", help="Such as 7d or 12h.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON to stdout.")]


@table.command(
    epilog="Example: mqspark-table compact lake/orders --conf spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0"
)
def compact(
    name: TableName,
    file_bytes: FileBytes = "256m",
    table_format: Format = None,
    engine: IcebergEngine = None,
    conf: Conf = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite small files of each partition as large ones.

    The old files stay until `expire`. A directory of Parquet files cannot be compacted.
    """
    with reporting(COMMAND), reporting_tables():
        target = size(file_bytes, "--file-bytes")
        request = request_of(name, table_format, engine, conf, master)
        finish("compact", request, as_json, lambda opened_table: opened_table.compact(target))


@table.command(epilog="Example: mqspark-table expire lake.shop.orders --older-than 7d --json")
def expire(
    name: TableName,
    older_than: OlderThan,
    table_format: Format = None,
    engine: IcebergEngine = None,
    conf: Conf = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Delete old snapshots (Iceberg) and files that the current table does not use.

    The mark of the last batch of each pipeline stays: a pipeline that was stopped for longer than AGE continues without
    doubles. Parquet: deletes the files of failed attempts; AGE must be 1d or more.
    """
    with reporting(COMMAND), reporting_tables():
        age = age_of(older_than)
        request = request_of(name, table_format, engine, conf, master)
        finish("expire", request, as_json, lambda opened_table: opened_table.expire(age))


@contextmanager
def reporting_tables() -> Iterator[None]:
    """Turn errors of tables into errors of commands."""
    try:
        yield
    except Unavailable as error:
        raise NotStarted(str(error)) from error
    except MaintenanceError as error:
        raise Failed(str(error)) from error


def request_of(
    name: str, table_format: TableFormat | None, engine: Engine | None, conf: list[str] | None, master: str | None
) -> Request:
    """Return the request of these arguments. Raises NotStarted."""
    settings = key_values(conf or [])
    return Request(table=name, table_format=table_format, engine=engine, conf=settings, master=master)


def age_of(text: str) -> timedelta:
    """Return the age of a text such as 7d. Raises NotStarted."""
    try:
        return timedelta(milliseconds=duration_ms(text))
    except (ValueError, OverflowError) as error:
        raise NotStarted(f"--older-than must be a time such as 7d or 12h, not {text!r}") from error


def finish(operation: str, request: Request, as_json: bool, run: Callable[[Maintained], Compacted | Expired]) -> None:
    """Open the table, run the operation, print its summary."""
    start = time.monotonic()
    maintained = opened(request)
    result = run(maintained)
    seconds = time.monotonic() - start
    if not as_json:
        typer.echo(f"{request.table}: {result} in {seconds:.1f} s")
        return
    about: dict[str, Any] = {"table": request.table, "operation": operation, "format": maintained.table_format.value}
    if maintained.engine is not None:
        about["engine"] = maintained.engine.value
    found = {name: value for name, value in msgspec.to_builtins(result).items() if value is not None}
    summary = about | found | {"seconds": round(seconds, 3)}
    typer.echo(msgspec.json.encode(summary).decode())


def main() -> None:
    """Run the command."""
    table()


if __name__ == "__main__":
    main()
