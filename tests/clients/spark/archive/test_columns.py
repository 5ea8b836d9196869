"""The table of an archive from records in any order, compared with protocol.record; and the Parquet file of it."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.spark.archive.columns import TABLE_SCHEMA, archive_table
from skylarkmq.protocol.record import Record, parse
from tests.clients.arrow.test_columns import encode_one, records
from tests.clients.spark.archive.archived import row_of
from tests.harness.rounds import rounds


def checked_rows(parts: list[bytes], order: list[int]) -> list[dict[str, Any]]:
    """Return the rows of the records at these indexes. They are the same in a file of Parquet."""
    buffer = memoryview(b"".join(parts))
    positions = [sum(map(len, parts[:n])) for n in range(len(parts))]
    starts = np.array([positions[n] for n in order], np.int64)
    table = archive_table(buffer, starts, np.ones(len(order), np.bool_), "b")
    table.validate(full=True)
    file = io.BytesIO()
    with pq.ParquetWriter(file, TABLE_SCHEMA, store_schema=False) as writer:
        writer.write_table(table)
    read = pq.read_table(pa.BufferReader(file.getvalue()))
    assert read.schema.equals(ARCHIVE_SCHEMA)
    found: list[dict[str, Any]] = table.to_pylist()
    assert read.to_pylist() == found
    return found


def expected_rows(parts: list[bytes], order: list[int]) -> list[dict[str, Any]]:
    parsed = [parse(memoryview(parts[n])) for n in order]
    return [row_of(record, broker_name="b") for record in parsed if isinstance(record, Record)]


@given(st.lists(records(), min_size=1, max_size=8), st.randoms())
@settings(max_examples=rounds(100))
def test_records_of_any_layout_in_any_order(parts: list[bytes], chance: Any) -> None:
    """Compressed bodies are as they are stored; messages without a unique id have their offset id."""
    order = chance.sample(range(len(parts)), chance.randint(0, len(parts)))
    assert checked_rows(parts, order) == expected_rows(parts, order)


@pytest.mark.parametrize("distinct", [0, 1, 2, 127, 128, 129, 400])
def test_columns_with_few_or_many_values(distinct: int) -> None:
    """Tags, topics and hosts: none, as many as the compiled module numbers, and more."""
    parts = [
        encode_one(
            topic=f"T{n % max(distinct, 1)}",
            properties=b"TAGS\x01%d-%s\x02" % (n % distinct, b"t" * (n % distinct)) if distinct else b"",
            born_host=bytes((10, 0, *(n % max(distinct, 1)).to_bytes(2, "big"))) + bytes(4),
            physical_offset=n,
            body=bytes(n % 30),
        )
        for n in range(450)
    ]
    order = sorted(range(len(parts)), key=lambda n: n % 7)
    assert checked_rows(parts, order) == expected_rows(parts, order)
