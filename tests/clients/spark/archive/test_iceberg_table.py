"""The archive as an Iceberg table: each file once, whatever happens between the files, the table and the mark."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import load_catalog

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.spark.archive.directory import ArchiveError
from skylarkmq.clients.spark.archive.iceberg_table import IcebergTable, IcebergTarget
from tests.clients.arrow.store.stored_rows import everything
from tests.clients.spark.archive.archived import archive, mark, row_of, rows
from tests.harness.stores import SEGMENT_BYTES, message, opened

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with opened(tmp_path / "store") as it:
        fill(it, 16)
    return tmp_path / "store"


def fill(it: Any, count: int) -> None:
    for number in range(count):
        it.clock.now_ms += 1
        it.put(message(b"x" * 9_000, f"T{number % 2}", properties=b"KEYS\x01k%d\x02" % number))


@pytest.fixture
def target(tmp_path: Path) -> IcebergTarget:
    (tmp_path / "warehouse").mkdir()
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    return IcebergTarget("mq.messages", "lake", properties)


def table_rows(target: IcebergTarget) -> list[dict[str, Any]]:
    """Return the rows as a reader of the table finds them."""
    found = load_catalog(target.catalog, **target.properties).load_table(target.identifier).scan().to_arrow()
    assert found.schema.names == ARCHIVE_SCHEMA.names
    ordered = found.take(pc.sort_indices(found, [("physicalOffset", "ascending")]))
    return list(ordered.to_pylist())


def test_the_table_has_the_rows_of_the_files(store: Path, tmp_path: Path, target: IcebergTarget) -> None:
    """The table is created by the first run; later runs add their files only."""
    archive(store, tmp_path / "archive", iceberg=target)
    assert table_rows(target) == rows(tmp_path / "archive")
    archive(store, tmp_path / "archive", iceberg=target, include_last=True)
    assert table_rows(target) == [row_of(record) for record in everything(store)]
    archive(store, tmp_path / "archive", iceberg=target, include_last=True)
    assert len(table_rows(target)) == 16
    table = load_catalog(target.catalog, **target.properties).load_table(target.identifier)
    assert len(table.snapshots()) == 3  # one for each range
    assert table.properties["skylark.archive.end.broker-a"] == str(mark(store).low_water_mark)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("is_added", [False, True])
def test_a_job_that_is_killed_adds_each_file_once(
    store: Path, tmp_path: Path, target: IcebergTarget, monkeypatch: pytest.MonkeyPatch, number: int, is_added: bool
) -> None:
    """Before the commit of the table, and between it and the mark."""
    add = IcebergTable.add
    left = number

    def killed(table: IcebergTable, entries: Any) -> None:
        nonlocal left
        left -= 1
        if is_added or left:
            add(table, entries)
        if not left:
            raise Killed

    monkeypatch.setattr(IcebergTable, "add", killed)
    with pytest.raises(Killed):
        archive(store, tmp_path / "archive", iceberg=target, include_last=True)
    monkeypatch.undo()
    archive(store, tmp_path / "archive", iceberg=target, include_last=True)
    assert table_rows(target) == rows(tmp_path / "archive")
    assert len(table_rows(target)) == 16


def test_an_existing_archive_is_added_as_a_whole(store: Path, tmp_path: Path, target: IcebergTarget) -> None:
    """Ranges that were archived without a table follow with the first run that has one."""
    archive(store, tmp_path / "archive")
    archive(store, tmp_path / "archive", iceberg=target)
    assert table_rows(target) == rows(tmp_path / "archive")
    assert mark(store).low_water_mark == 2 * SEGMENT_BYTES


def test_a_catalog_that_cannot_be_used_is_reported(store: Path, tmp_path: Path, target: IcebergTarget) -> None:
    """Before anything is archived."""
    wrong = IcebergTarget("mq.messages", "lake", {"type": "no such type"})
    with pytest.raises(ArchiveError, match=r"cannot be opened.*--catalog-option"):
        archive(store, tmp_path / "archive", iceberg=wrong)
    assert rows(tmp_path / "archive") == []
