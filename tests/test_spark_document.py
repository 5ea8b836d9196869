"""docs/use/spark/sources.md agrees with the code: the tables of options and columns, and the options in the text."""

import re
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.clients.arrow.schema import DEFAULT_COLUMNS
from skylarkmq.clients.spark.base.options import Table, markdown
from skylarkmq.clients.spark.sink.sink_options import OPTIONS as SINK_OPTIONS
from skylarkmq.clients.spark.sink.sink_rows import COLUMNS as SINK_COLUMNS
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS
from skylarkmq.clients.spark.store.store_options import STORE_OPTIONS

PATH = Path(__file__).resolve().parent.parent / "docs" / "use" / "spark" / "sources.md"
TEXT = PATH.read_text()
TABLES: dict[str, Table[Any]] = {"source": SOURCE_OPTIONS, "sink": SINK_OPTIONS, "store": STORE_OPTIONS}


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_options_match_the_code(name: str) -> None:
    """Each table of options equals the generated one. `python -m tests.test_spark_document` writes the tables."""
    _, _, rest = TEXT.partition(f"<!-- options: {name} -->\n\n")
    assert rest.startswith(markdown(TABLES[name]) + "\n")


def test_the_tables_of_columns_match_the_code() -> None:
    """The tables contain every column of source and sink, and no others."""
    section = TEXT.split("## Columns")[1].split("## Options")[0]
    source, sink = section.split("The sink takes these columns")
    assert named(source) == [*DEFAULT_COLUMNS, "properties"]
    assert named(sink) == list(SINK_COLUMNS)


def named(section: str) -> list[str]:
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_every_option_in_the_text_exists() -> None:
    """Words in code spans that have the form of an option are options."""
    known = {name for table in TABLES.values() for row in table.rows for name in row.names}
    named = set(re.findall(r"`([a-z]+(?:[A-Z]\w+|\.[a-z]\w+)+)(?:=\w+)?`", TEXT))
    columns = {*DEFAULT_COLUMNS, *SINK_COLUMNS}
    brokers = {"fileReservedTime", "maxMessageSize", "brokerIP1", "flushDiskType", "readOnlyCommitLogStorePaths"}
    brokers |= {"queue.type"}  # an attribute of a topic
    sparks = {
        "readStream",
        "writeStream",
        "processingTime",
        "spark.sql.python.filterPushdown.enabled",
        "spark.jars.packages",
    }
    assert named - known - columns - brokers - sparks - {"pipeline.py"} == set()


def rewritten(text: str) -> str:
    """Return the document with generated tables."""
    for name, table in TABLES.items():
        mark = f"<!-- options: {name} -->\n"
        before, _, after = text.partition(mark)
        _, heading, rest = after.partition("\n## ")
        text = f"{before}{mark}\n{markdown(table)}{heading}{rest}"
    return text


if __name__ == "__main__":
    PATH.write_text(rewritten(TEXT))
