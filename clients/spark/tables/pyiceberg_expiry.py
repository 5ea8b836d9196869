"""Expiry of snapshots of an Iceberg table by PyIceberg, in this process, without Spark.

    1. marks of batches are copied to table properties (marks.py)
    2. snapshots older than a time are removed from the table; the current one and snapshots of branches and tags stay
    3. files that only these snapshots used are deleted: PyIceberg itself deletes none

The files are chosen by the table's metadata after step 2: no snapshot that is left refers to them, and none can be made
of snapshots that are gone. If the process is killed before the end of step 3, the other files stay; no snapshot refers
to them. Files that no snapshot ever used, of failed attempts, are not searched for.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException

from skylarkmq.clients.spark.tables.marks import kept_marks
from skylarkmq.clients.spark.tables.pyiceberg_table import summaries
from skylarkmq.clients.spark.tables.results import Expired, MaintenanceError, OnProgress

COMMITS: Final = 10  # attempts
DELETIONS: Final = 8  # at the same time


def expire(table: Any, older_than: datetime, on_progress: OnProgress) -> Expired:
    """Remove snapshots older than a time, and the files that only they use. Raises MaintenanceError."""
    if not old_snapshots(table, older_than):
        return Expired(0, 0)
    known: set[int] = set()  # their marks are kept
    removed: list[Any] = []

    def keep() -> None:
        known.update(snapshot.snapshot_id for snapshot in table.snapshots())
        keep_marks(table)

    def remove() -> None:
        removed[:] = [snapshot for snapshot in old_snapshots(table, older_than) if snapshot.snapshot_id in known]
        if removed:
            ids = [snapshot.snapshot_id for snapshot in removed]
            table.maintenance.expire_snapshots().by_ids(ids).commit()

    committed(table, keep)
    committed(table, remove)
    table.refresh()
    left = {snapshot.snapshot_id for snapshot in table.snapshots()}
    gone = [snapshot for snapshot in removed if snapshot.snapshot_id not in left]
    unused = unused_files(table, gone)
    delete(table, unused, on_progress)
    return Expired(len(unused), len(gone))


def old_snapshots(table: Any, older_than: datetime) -> list[Any]:
    """Return the snapshots older than a time that no branch or tag names."""
    named = {ref.snapshot_id for ref in table.refs().values()}
    limit_ms = int(older_than.timestamp() * 1000)
    return [one for one in table.snapshots() if one.timestamp_ms < limit_ms and one.snapshot_id not in named]


def keep_marks(table: Any) -> None:
    """Copy the marks that only snapshots have to properties."""
    marks = kept_marks(summaries(table), table.properties)
    if marks:
        with table.transaction() as transaction:
            transaction.set_properties(marks)


def committed(table: Any, commit: Callable[[], None]) -> None:
    """Commit to the table; repeated if another writer commits first. Raises MaintenanceError."""
    for attempt in range(1, COMMITS + 1):
        table.refresh()
        try:
            commit()
            return
        except CommitFailedException as error:
            if attempt == COMMITS:
                raise MaintenanceError(
                    f"other writers changed the table each time before the commit: run the command again ({error})"
                ) from error


def unused_files(table: Any, gone: list[Any]) -> list[str]:
    """Return the files of snapshots that are gone and that no snapshot of the table uses."""
    lists, manifests = files_of(table, gone)
    left_lists, left_manifests = files_of(table, table.snapshots())
    data = data_files(table, [one for path, one in manifests.items() if path not in left_manifests])
    if data:
        data -= data_files(table, list(left_manifests.values()))
    return sorted(lists - left_lists | manifests.keys() - left_manifests.keys() | data)


def files_of(table: Any, snapshots: list[Any]) -> tuple[set[str], dict[str, Any]]:
    """Return the manifest lists of these snapshots, and their manifests by path."""
    manifests = {manifest.manifest_path: manifest for one in snapshots for manifest in one.manifests(table.io)}
    return {one.manifest_list for one in snapshots}, manifests


def data_files(table: Any, manifests: list[Any]) -> set[str]:
    """Return the paths of the data files and delete files that these manifests add or keep."""
    return {
        entry.data_file.file_path
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


def delete(table: Any, paths: list[str], on_progress: OnProgress) -> None:
    """Delete files, which may be gone. All are tried; then MaintenanceError is raised for those that remain."""

    def delete_one(path: str) -> Exception | None:
        try:
            table.io.delete(path)
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 - of any file system; reported below
            return error
        return None

    failed: list[tuple[str, Exception]] = []
    with ThreadPoolExecutor(DELETIONS) as pool:
        for done, (path, error) in enumerate(zip(paths, pool.map(delete_one, paths), strict=True)):
            on_progress(done, len(paths))
            if error is not None:
                failed.append((path, error))
    if failed:
        path, error = failed[0]
        raise MaintenanceError(
            f"{len(failed)} of {len(paths)} files could not be deleted, such as {path}: {error}. No snapshot uses "
            "them: delete them with remove_orphan_files of Iceberg's Spark runtime"
        ) from error
