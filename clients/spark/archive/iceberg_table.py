"""The files of an archive as an Iceberg table, through PyIceberg (extra `iceberg`).

The table refers to the files where they are (`add_files`): nothing is written twice, and DuckDB or Spark read the files
with or without the table. Ranges are added in the order of the log. The end of the last one is a property of the table,
`skylark.archive.end.BROKER`, set in the same commit as the files: a job that was killed adds each file once, also after
snapshots expired or files were compacted.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import msgspec

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.spark.archive.directory import ArchiveDirectory, ArchiveError, Entry

_END: Final = "skylark.archive.end."


class IcebergTarget(msgspec.Struct, frozen=True):
    """A table `namespace.name` of a catalog of PyIceberg's configuration, with more properties for it."""

    identifier: str
    catalog: str
    properties: Mapping[str, str]


class IcebergTable:
    """A table that gets the files of one broker's archive."""

    def __init__(self, table: Any, directory: ArchiveDirectory) -> None:
        self._table = table
        self._directory = directory
        self._property = _END + directory.broker_name

    @property
    def end(self) -> int:
        """The byte of the log up to which the table has the archived files."""
        return int(self._table.properties.get(self._property, 0))

    def add(self, entries: Sequence[Entry]) -> None:
        """Add the files of entries (in the order of the log) that the table does not have yet, in one commit.

        Raises ArchiveError.
        """
        new = [entry for entry in entries if entry.end > self.end]
        if not new:
            return
        end = {self._property: str(new[-1].end)}
        files = [self._directory.uri_of(file.name) for entry in new for file in entry.files]
        try:
            with self._table.transaction() as transaction:
                if files:
                    transaction.add_files(files, end, check_duplicate_files=False)
                transaction.set_properties(end)
        except Exception as problem:  # of PyIceberg, of its catalog's client, or of the file system
            what = f"the files cannot be added to the Iceberg table {self._table.name()}"
            raise ArchiveError(f"{what}: {type(problem).__name__} {problem}") from problem

    def __repr__(self) -> str:
        return f"<IcebergTable {self._table.name()} end={self.end}>"


def open_table(target: IcebergTarget, directory: ArchiveDirectory) -> IcebergTable:
    """Open the table, or create it. Raises ArchiveError with the remedy."""
    try:
        catalogs = import_module("pyiceberg.catalog")
    except ImportError as problem:
        raise ArchiveError(f"--table needs PyIceberg ({problem}): pip install 'skylarkmq[iceberg]'") from problem
    namespace = target.identifier.rpartition(".")[0]
    if not namespace:
        raise ArchiveError(f"--table must be NAMESPACE.TABLE, not {target.identifier!r}")
    try:
        catalog = catalogs.load_catalog(target.catalog, **target.properties)
        catalog.create_namespace_if_not_exists(namespace)
        table = catalog.create_table_if_not_exists(target.identifier, ARCHIVE_SCHEMA)
    except Exception as problem:  # of PyIceberg, of its catalog's client, or of the file system
        what = f"the Iceberg table {target.identifier} of the catalog {target.catalog} cannot be opened"
        advice = "check --catalog and --catalog-option"
        raise ArchiveError(f"{what}: {type(problem).__name__} {problem}; {advice}") from problem
    return IcebergTable(table, directory)
