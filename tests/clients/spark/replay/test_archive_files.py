"""The files of an archive: their order, what is skipped, and the size of batches."""

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.spark.replay import archive_files
from skylarkmq.clients.spark.replay.archive_files import ArchiveFiles
from skylarkmq.clients.spark.replay.errors import ArchiveUnreadable, ReplayFailed
from skylarkmq.clients.spark.replay.runs import COLUMNS
from skylarkmq.clients.spark.replay.selection import Selection
from skylarkmq.clients.spark.replay.sources import Archive, opened


def write(
    path: Path, broker: str, physical: Sequence[int], topic: str = "A", body: bytes = b"x", group: int = 2
) -> None:
    """Write a file; the store time in ms and the offset are the physical offset."""
    rows = [
        {"topic": topic, "brokerName": broker, "queueId": 0, "queueOffset": at, "physicalOffset": at,
         "storeTimestamp": at * 1000, "properties": "", "body": body}
        for at in physical
    ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, ARCHIVE_SCHEMA), path, row_group_size=group)


def offsets(files: ArchiveFiles) -> list[tuple[str, int]]:
    return [
        (row["brokerName"], row["queueOffset"])
        for batch in files.batches()
        for row in batch.select(["brokerName", "queueOffset"]).to_pylist()
    ]


def below(path: Path, **selection: object) -> ArchiveFiles:
    return ArchiveFiles.below(str(path), Selection(**selection), COLUMNS)  # type: ignore[arg-type]


def test_files_are_read_in_the_order_of_each_brokers_log(tmp_path: Path) -> None:
    """Whatever their names; files beside `messages`, hidden files and unfinished ones are not read."""
    write(tmp_path / "messages/b/1.parquet", "b", [5, 6])
    write(tmp_path / "messages/a/9.parquet", "a", [0, 1])
    write(tmp_path / "messages/a/1.parquet", "a", [2, 3])
    write(tmp_path / "other/1.parquet", "c", [1])
    write(tmp_path / "messages/a/.2.parquet", "c", [1])
    (tmp_path / "messages/a/2.parquet.tmp").write_bytes(b"PAR1")
    files = below(tmp_path)
    assert offsets(files) == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 5), ("b", 6)]
    assert files.rows == 6


def test_row_groups_without_selected_rows_are_skipped(tmp_path: Path) -> None:
    """By the statistics of time and topic; a group that may have such rows is read as a whole."""
    write(tmp_path / "1.parquet", "a", range(10))
    write(tmp_path / "2.parquet", "a", range(10, 20), topic="B")
    assert offsets(below(tmp_path, topics=("B", "C"), since_ms=15)) == [("a", at) for at in range(14, 20)]
    assert offsets(below(tmp_path, until_ms=3)) == [("a", at) for at in range(4)]
    assert offsets(below(tmp_path, topics=("C",))) == []


def test_batches_are_limited_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies make small batches; a body may be larger than the limit."""
    monkeypatch.setattr(archive_files, "BATCH_BYTES", 100_000)
    body = os.urandom(20_000)
    rows = [{"brokerName": "a", "physicalOffset": at, "topic": "A", "body": body[at:] + body[:at]} for at in range(40)]
    pq.write_table(pa.Table.from_pylist(rows, ARCHIVE_SCHEMA), tmp_path / "1.parquet")
    assert {batch.num_rows for batch in below(tmp_path).batches()} == {4}
    monkeypatch.setattr(archive_files, "BATCH_BYTES", 1)
    assert [batch.num_rows for batch in below(tmp_path).batches()] == [1] * 40


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    """A missing or empty directory, a file that is not Parquet, and Parquet with other columns."""
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ArchiveUnreadable, match=r"cannot be read|has no Parquet files"):
            below(path)
    (tmp_path / "x.parquet").write_text("no")
    with pytest.raises(ArchiveUnreadable, match="cannot be read"):
        below(tmp_path)
    pq.write_table(pa.table({"body": [b""]}), tmp_path / "x.parquet")
    with pytest.raises(ArchiveUnreadable, match="has no column brokerName"):
        below(tmp_path)


def test_a_damaged_page_ends_the_replay(tmp_path: Path) -> None:
    """Archives have a checksum for each page; nothing of the page is sent."""
    body = os.urandom(1000)
    table = pa.Table.from_pylist([{"brokerName": "a", "physicalOffset": 0, "topic": "A", "body": body}], ARCHIVE_SCHEMA)
    path = tmp_path / "1.parquet"
    pq.write_table(table, path, write_page_checksum=True, compression="none")
    files = below(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(body) + 500] ^= 1
    path.write_bytes(data)
    with pytest.raises(ReplayFailed, match=r"1\.parquet is damaged: .*CRC"):
        list(files.batches())


def test_a_condition_may_name_every_column(tmp_path: Path) -> None:
    """Without a condition, only the needed columns are read."""
    write(tmp_path / "1.parquet", "a", [0])
    source = Archive(str(tmp_path))
    (few,) = opened(source, Selection()).batches()
    (all_columns,) = opened(source, Selection(where="true")).batches()
    assert set(few.schema.names) == {*COLUMNS, "readable"}
    assert all_columns.schema.names == ARCHIVE_SCHEMA.names


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("storeTimestamp", pa.timestamp("us")),
        ("storeTimestamp", pa.int64()),
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("topic", pa.list_(pa.string())),
        ("brokerName", pa.int64()),
        ("physicalOffset", pa.float64()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.struct([("a", pa.int32())])),
        ("readable", pa.int32()),
    ],
    ids=str,
)
def test_columns_of_other_types_are_refused(tmp_path: Path, column: str, kind: pa.DataType) -> None:
    """In one line with the column, its type, and the type in an archive; whatever the statistics are."""
    schema = ARCHIVE_SCHEMA.set(ARCHIVE_SCHEMA.get_field_index(column), pa.field(column, kind))
    pq.write_table(pa.Table.from_pylist([{}], schema), tmp_path / "1.parquet")
    with pytest.raises(ArchiveUnreadable, match=f"the column {column} of .*1.parquet has the type .* in an archive"):
        ArchiveFiles.below(str(tmp_path), Selection(topics=("A",), since_ms=1), [*COLUMNS, "readable"])


def test_layouts_of_other_tools_are_read_as_those_of_an_archive(tmp_path: Path) -> None:
    """Such as large strings, and views."""
    layouts = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    schema = pa.schema([(field.name, layouts.get(field.type, field.type)) for field in ARCHIVE_SCHEMA])
    row = {"topic": "A", "brokerName": "b", "physicalOffset": 1, "queueOffset": 7, "body": b"x"}
    pq.write_table(pa.Table.from_pylist([row], schema), tmp_path / "1.parquet")
    (batch,) = below(tmp_path).batches()
    assert batch.schema.field("topic").type == pa.string()
    assert (batch.column("body").to_pylist(), batch.column("queueOffset").to_pylist()) == ([b"x"], [7])
