"""What is in a table, by readers that are not ours, compared with what the broker stored.

    parquet                  DuckDB, over the files in the log of Spark's file sink
    delta                    deltalake
    iceberg, pyiceberg       PyIceberg

    compared = compare(rows_of_the_table, stored_rows(store, topic), sent)

Rows are compared in DuckDB by queue and offset: body, keys, tags, properties, both times and the id are those of the
store, and no row is missing, repeated or added. The numbers with which the bodies begin show that the store itself has
each sent message.
"""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb
import pyarrow as pa

from skylarkmq.arrow import scan_store

COLUMNS: Final = ("body", "keys", "tags", "properties", "storeTimestamp", "bornTimestamp", "msgId")
QUEUE, OFFSET = "queueId", "queueOffset"
SELECTED: Final = ", ".join((QUEUE, OFFSET, *COLUMNS))


class Compared(NamedTuple):
    """Figures of a comparison. All but the first two must be 0."""

    stored: int
    written: int
    missing: int
    added: int
    repeated: int
    different: int
    numbers_missing: int

    @property
    def is_exact(self) -> bool:
        """Whether the table has each stored message once, and nothing else."""
        return self.stored == self.written and not any(self[2:])


Rows: TypeAlias = "pa.RecordBatchReader | list[str]"
"""Rows as Arrow batches, or the paths of Parquet files."""


def compare(written: Rows, stored: Rows, sent: int) -> Compared:
    """Return the comparison of rows with the stored messages, whose bodies begin with the numbers below `sent`."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        _load(database, "written", written)
        _load(database, "stored", stored)
        differs = " OR ".join(f"s.{name} IS DISTINCT FROM w.{name}" for name in COLUMNS)
        numbers = "SELECT DISTINCT CAST(split_part(decode(body), ' ', 1) AS BIGINT) FROM stored"
        place = f"{QUEUE}, {OFFSET}"
        queries = (
            "SELECT count(*) FROM stored",
            "SELECT count(*) FROM written",
            f"SELECT count(*) FROM stored ANTI JOIN written USING ({place})",
            f"SELECT count(*) FROM written ANTI JOIN stored USING ({place})",
            f"SELECT count(*) - count(DISTINCT ({place})) FROM written",
            f"SELECT count(*) FROM stored s JOIN written w USING ({place}) WHERE {differs}",
            f"SELECT count(*) FROM range({sent}) AS r(n) WHERE n NOT IN ({numbers})",
        )
        return Compared(*(_number(database, query) for query in queries))


def _load(database: duckdb.DuckDBPyConnection, table: str, rows: Rows) -> None:
    if isinstance(rows, list):
        found = database.read_parquet(rows, hive_partitioning=False)
        found.project(SELECTED).create(table)
        return
    database.register("rows", rows)
    database.execute(f"CREATE TABLE {table} AS SELECT {SELECTED} FROM rows")
    database.unregister("rows")


def _number(database: duckdb.DuckDBPyConnection, query: str) -> int:
    row = database.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def stored_rows(store: Path, topic: str) -> pa.RecordBatchReader:
    """Return the messages of a topic in a store."""
    return scan_store(str(store), topics=topic, columns=[QUEUE, OFFSET, *COLUMNS])


def parquet_rows(output: Path) -> list[str]:
    """Return the files that Spark's file sink has committed."""
    files: set[str] = set()
    for log in (output / "_spark_metadata").iterdir():
        if log.name.removesuffix(".compact").isdigit():
            entries = [json.loads(line) for line in log.read_text().splitlines()[1:]]
            files |= {entry["path"].removeprefix("file://") for entry in entries}
    return sorted(files)


def delta_rows(output: Path) -> pa.RecordBatchReader:
    """Return the rows of a Delta table."""
    from deltalake import DeltaTable  # noqa: PLC0415 - only this target needs it

    return pa.RecordBatchReader.from_stream(DeltaTable(str(output)).to_pyarrow_dataset().scanner().to_reader())


def iceberg_rows(warehouse: Path, catalog: dict[str, Any], name: tuple[str, ...]) -> pa.RecordBatchReader:
    """Return the rows of an Iceberg table."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - only this target needs it
    from pyiceberg.table import StaticTable  # noqa: PLC0415

    if catalog["type"] == "hadoop":  # PyIceberg has no such catalog
        folder = warehouse.joinpath(*name) / "metadata"
        last = (folder / "version-hint.text").read_text().strip()
        return StaticTable.from_metadata(str(folder / f"v{last}.metadata.json")).scan().to_arrow_batch_reader()
    return load_catalog("lake", **catalog).load_table(name).scan().to_arrow_batch_reader()
