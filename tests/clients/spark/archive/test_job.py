"""Runs of the archive job on stores of our broker: what is due, the mark, interruptions, and other stores."""

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.extent import checkpoint_of
from skylarkmq.clients.spark.archive import columns, files, job, pieces
from skylarkmq.clients.spark.archive.directory import MAX_ENTRY_BYTES, ArchiveDirectory, ArchiveError
from skylarkmq.clients.spark.archive.files import NotVerified
from skylarkmq.clients.spark.archive.job import opened_job
from skylarkmq.clients.spark.archive.runners import LocalRunner
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.message import tags_code
from tests.broker.store.retention.test_cleaner import (
    readable_segments,
    run,
    set_modified,
    settle,
    starts,
    step,
)
from tests.clients.arrow.store.stored_rows import everything
from tests.clients.spark.archive.archived import BROKER, archive, entries, row_of, rows, settings_of
from tests.clients.spark.archive.archived import mark as mark_of
from tests.harness.stores import SEGMENT_BYTES, Opened, message, opened

BODY = b"x" * 9_000  # seven per segment
SECOND_MS = 1_000


def fill(it: Opened, count: int, begin: int = 0) -> None:
    """Store messages of two topics with three queues each, a second apart."""
    for number in range(begin, begin + count):
        it.clock.now_ms += SECOND_MS
        properties = b"KEYS\x01k%d all\x02UNIQ_KEY\x01U%d\x02TAGS\x01t%d\x02" % (number, number, number % 2)
        code = tags_code(f"t{number % 2}")
        topic = f"T{number % 2}"
        it.put(message(b"%d " % number + BODY, topic, number % 3, properties=properties, tags_code=code))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store of five segments, the last of which has a few messages; its broker has stopped."""
    with opened(tmp_path / "store") as it:
        fill(it, 30)
    return tmp_path / "store"


def all_rows(store: Path) -> list[dict[str, Any]]:
    return [row_of(record) for record in everything(store)]


def now_is(monkeypatch: pytest.MonkeyPatch, unix_ms: int) -> None:
    monkeypatch.setattr(job, "_now_ms", lambda: unix_ms)


def test_whole_segments_are_archived_and_the_mark_follows(store: Path, tmp_path: Path) -> None:
    """The last segment is not archived; the second run finds nothing to do, and renews the time of the mark."""
    wanted = [row for row in all_rows(store) if row["physicalOffset"] < 4 * SEGMENT_BYTES]
    summary = archive(store, tmp_path / "archive")
    assert rows(tmp_path / "archive") == wanted
    assert (summary.ranges, summary.messages, summary.mark) == (4, len(wanted), 4 * SEGMENT_BYTES)
    first = mark_of(store)
    assert (first.low_water_mark, first.archive) == (4 * SEGMENT_BYTES, str(tmp_path / "archive"))
    again = archive(store, tmp_path / "archive")
    assert (again.ranges, again.messages, again.mark) == (0, 0, 4 * SEGMENT_BYTES)
    assert mark_of(store).updated_at >= first.updated_at


def test_only_segments_past_the_age_are_archived(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is past the age when the first message of the next segment is."""
    first_of_third = next(one for one in everything(store) if one.physical_offset == 2 * SEGMENT_BYTES)
    for elapsed_ms, ranges in ((60_000, 1), (60_001, 2)):
        now_is(monkeypatch, first_of_third.store_timestamp + elapsed_ms)
        archive(store, tmp_path / "archive", older_than_ms=60_000)
        assert len(entries(tmp_path / "archive")) == ranges
        assert mark_of(store).low_water_mark == ranges * SEGMENT_BYTES


def test_the_last_segment_is_continued_by_the_next_run(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `include_last` up to the first young message, then the rest, then what the broker has appended since."""
    records = everything(store)
    for last in (29, 30):
        now_is(monkeypatch, records[last - 1].store_timestamp + 1)
        archive(store, tmp_path / "archive", include_last=True)
        assert rows(tmp_path / "archive") == all_rows(store)[:last]
    assert mark_of(store).low_water_mark == records[-1].physical_offset + records[-1].size
    with opened(store) as it:
        it.clock.now_ms = records[-1].store_timestamp
        fill(it, 6, begin=30)
    monkeypatch.undo()
    archive(store, tmp_path / "archive")
    wanted = [row for row in all_rows(store) if row["physicalOffset"] < 5 * SEGMENT_BYTES]
    assert rows(tmp_path / "archive") == wanted
    assert mark_of(store).low_water_mark == 5 * SEGMENT_BYTES


def test_a_running_broker_is_archived_up_to_what_is_on_disk(tmp_path: Path) -> None:
    """Without a checkpoint nothing is; then all that was stored 3 s before it, and nothing later."""
    with opened(tmp_path / "store", flush_interval_commit_log=1, flush_commit_log_least_pages=0) as it:
        fill(it, 30)
        archive(tmp_path / "store", tmp_path / "archive", include_last=True)
        assert rows(tmp_path / "archive") == []
        durability = it.store._durability
        while checkpoint_of(tmp_path / "store").physic_timestamp < it.clock.now_ms:
            durability._next_queue_flush_ms = durability._next_thorough_ms = 0
            durability.step(it.clock.now_ms)
            time.sleep(0.001)
        archive(tmp_path / "store", tmp_path / "archive", include_last=True)
        found = rows(tmp_path / "archive")
        assert found == all_rows(tmp_path / "store")[: len(found)]
        assert 20 <= len(found) <= 28


def test_deleted_segments_stay_in_the_archive(store: Path, tmp_path: Path) -> None:
    """The next run continues; a range that was deleted before it was archived is reported."""
    wanted = all_rows(store)
    archive(store, tmp_path / "archive")
    for number in range(4):
        os.unlink(store / "commitlog" / f"{number * SEGMENT_BYTES:020d}")
    assert archive(store, tmp_path / "archive", include_last=True).missed == []
    assert rows(tmp_path / "archive") == wanted
    with opened(store) as it:
        it.clock.now_ms = 1_750_000_000_000
        fill(it, 24, begin=30)
    first = everything(store)[0].physical_offset
    for number in (4, 5):
        os.unlink(store / "commitlog" / f"{number * SEGMENT_BYTES:020d}")
    end = mark_of(store).low_water_mark
    summary = archive(store, tmp_path / "archive")
    assert first < end
    assert summary.missed == [(end, 6 * SEGMENT_BYTES)]
    assert summary.mark == 7 * SEGMENT_BYTES


def test_a_broker_deletes_due_segments_once_they_are_archived(tmp_path: Path) -> None:
    """With `archiveHold`; the job reads the store of the running broker."""
    store = tmp_path / "store"
    hold: dict[str, Any] = {"archive_hold": True, "file_reserved_time": 0, "delete_when": tuple(range(24))}
    it = Opened(store, flush_interval_commit_log=1, flush_commit_log_least_pages=0, **hold)
    fill(it, 36)
    settle(it)
    for start in starts(store):
        set_modified(store, start, it.clock.now_ms)
    step(it, 0)
    run(it, 8)
    assert readable_segments(it) == [0, 1, 2, 3, 4, 5]
    wanted = all_rows(store)
    assert archive(store, tmp_path / "archive").mark == 4 * SEGMENT_BYTES
    run(it, 2)
    assert readable_segments(it) == [4, 5]
    it.store.close()
    archive(store, tmp_path / "archive", include_last=True)
    assert rows(tmp_path / "archive") == wanted


def test_half_messages_are_only_in_archives_of_everything(tmp_path: Path) -> None:
    """Half and rolled back messages and internal topics are not readable; the committed message is."""
    states = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK, SysFlag.TRANSACTION_COMMIT, 0)
    with opened(tmp_path / "store") as it:
        it.must_be_consistent = False
        for state in states:
            it.put(message(b"%d" % state, sys_flag=int(state)))
        it.put(message(b"waits", "SCHEDULE_TOPIC_XXXX"))
    summary = archive(tmp_path / "store", tmp_path / "some", include_last=True)
    assert [row["body"] for row in rows(tmp_path / "some")] == [b"%d" % states[2], b"0"]
    assert summary.left_out == 3
    archive(tmp_path / "store", tmp_path / "all", include_last=True, everything=True)
    assert [row["readable"] for row in rows(tmp_path / "all")] == [False, False, True, True, False]


# --- interruptions ----------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here: nothing is cleaned up."""


class Steps:
    """Counts the steps that change something, and ends the job before or after one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.last = -1
        self._patch = monkeypatch
        self._wrap(ArchiveDirectory, "open_output")
        self._wrap(ArchiveDirectory, "settle")
        self._wrap(ArchiveDirectory, "_move")
        self._wrap(ArchiveDirectory, "remove")
        self._wrap(os, "replace")

    def _wrap(self, owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def step(*values: Any) -> Any:
            self.pass_one()
            result = original(*values)
            self.pass_one()
            return result

        self._patch.setattr(owner, name, step)

    def pass_one(self) -> None:
        self.count += 1
        if self.count == self.last:
            raise Killed

    def run(self, last: int, call: Callable[[], object]) -> bool:
        """Return whether the call was ended at step `last`."""
        self.count, self.last = 0, last
        try:
            call()
        except Killed:
            return True
        finally:
            self.last = -1
        return False


@pytest.mark.crash
def test_a_job_that_is_killed_at_any_step_leaves_no_gap_and_no_double(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each step: what the mark covers is recorded, and the next run completes the archive."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", SEGMENT_BYTES // 2)  # two files for each segment
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # the process ends, not the machine
    with opened(tmp_path / "store") as it:
        fill(it, 8)
    store, wanted = tmp_path / "store", all_rows(tmp_path / "store")
    steps = Steps(monkeypatch)
    last = 0
    is_killed = True
    while is_killed:
        last += 1
        target = tmp_path / f"archive{last}"
        shutil.rmtree(store / "config", ignore_errors=True)
        run = partial(archive, store, target, include_last=True)
        is_killed = steps.run(last, run)
        if is_killed and (store / "config" / "archive.json").exists():
            covered = mark_of(store).low_water_mark
            assert covered == max(entry.end for entry in entries(target) if entry.end <= covered)
        if is_killed and last % 2:
            steps.run(last // 2, run)  # and once more, elsewhere
        run()
        assert rows(target) == wanted
        assert not [path for path in (target / "messages" / BROKER).iterdir() if path.name.startswith(".")]
        assert sum(entry.rows for entry in entries(target)) == len(wanted)
    assert last > 30


@pytest.mark.parametrize("part", [0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0])
def test_a_file_that_differs_from_the_log_is_not_published(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    """One changed byte anywhere in the file: the job fails, and neither the file nor the mark exists."""
    settle = ArchiveDirectory.settle

    def damage(directory: ArchiveDirectory, path: str) -> int:
        if path.rpartition("/")[2].partition(".")[2].startswith("0" * 15) and ".parquet" in path:
            data = bytearray(Path(path).read_bytes())
            data[int((len(data) - 1) * part)] ^= 1
            Path(path).write_bytes(data)
        return settle(directory, path)

    monkeypatch.setattr(ArchiveDirectory, "settle", damage)
    with pytest.raises(NotVerified):
        archive(store, tmp_path / "archive")
    assert rows(tmp_path / "archive") == []
    assert list((tmp_path / "archive" / "messages" / BROKER).iterdir()) == []
    assert not (store / "config" / "archive.json").exists()


def test_a_file_with_other_bodies_is_not_verified(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid Parquet with a wrong body, a missing row, or rows of other messages."""
    make = columns.archive_table

    def changed(change: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda *values: change(make(*values))

    def other_body(table: Any) -> Any:
        bodies = table["body"].to_pylist()
        bodies[1] = bodies[1][:-1]
        at = table.schema.get_field_index("body")
        return table.set_column(at, table.schema.field(at), pa.array(bodies, table.schema.field(at).type))

    for change, text in (
        (other_body, "the body of the message at byte"),
        (lambda table: table.slice(1), "rows, the log"),
        (lambda table: pa.concat_tables([table.slice(1), table.slice(0, 1)]), "are not the messages of the log"),
    ):
        monkeypatch.setattr(files, "archive_table", changed(change))
        with pytest.raises(NotVerified, match=text):
            archive(store, tmp_path / "archive")


def test_a_pyarrow_that_cannot_write_views_makes_the_same_rows(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies are copied then."""
    archive(store, tmp_path / "views")
    monkeypatch.setattr(columns, "VIEWED", ())
    for module in (columns, files):
        monkeypatch.setattr(module, "TABLE_SCHEMA", columns.table_schema(()))
    archive(store, tmp_path / "copies")
    assert rows(tmp_path / "copies") == rows(tmp_path / "views") != []


def test_two_jobs_do_not_run_at_once(store: Path, tmp_path: Path) -> None:
    """The second one is refused, and the archive of another broker in the same directory is not locked."""
    with opened_job(settings_of(store, tmp_path / "archive")):
        with pytest.raises(ArchiveError, match="another job"):
            archive(store, tmp_path / "archive")
        archive(store, tmp_path / "archive", broker_name="broker-b")
    archive(store, tmp_path / "archive")


@pytest.mark.daemon
def test_worker_processes_make_the_same_archive(store: Path, tmp_path: Path) -> None:
    """Tasks are values, and segments may be complete in any order."""
    with opened_job(settings_of(store, tmp_path / "archive")) as planned:
        summary = planned.run(LocalRunner(2), lambda entry: None)
    assert summary.mark == 4 * SEGMENT_BYTES
    assert rows(tmp_path / "archive") == [row for row in all_rows(store) if row["physicalOffset"] < summary.mark]


# --- what is refused --------------------------------------------------------------------------------------------------


def damage(store: Path, offset: int, data: bytes) -> None:
    """Write over bytes of the log."""
    path = store / "commitlog" / f"{offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(offset % SEGMENT_BYTES)
        file.write(data)


@pytest.mark.parametrize(("at", "data"), [(200, b"!"), (0, b"\x00" * 4), (4, b"junk"), (28, b"\x07"), (84, b"\x7f")])
def test_damage_stops_the_job_or_is_skipped(store: Path, tmp_path: Path, at: int, data: bytes) -> None:
    """In body, length, magic, physical offset and body length; the mark stays before a damaged segment."""
    wanted = all_rows(store)
    victim = everything(store)[9]
    damage(store, victim.physical_offset + at, data)
    with pytest.raises(StoreUnreadable, match=f"byte {victim.physical_offset} .*--skip-damaged"):
        archive(store, tmp_path / "archive")
    assert mark_of(store).low_water_mark == SEGMENT_BYTES
    summary = archive(store, tmp_path / "archive", skip_damaged=True)
    assert summary.damaged == 1
    assert rows(tmp_path / "archive") == [
        row for number, row in enumerate(wanted) if number != 9 and row["physicalOffset"] < 4 * SEGMENT_BYTES
    ]


def test_the_archive_of_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    """A log that ends before the archive does, or has other messages."""
    archive(store, tmp_path / "archive", include_last=True)
    for count, text in ((9, "an older copy"), (40, "this is another store")):
        with opened(tmp_path / f"other{count}") as it:
            it.clock.now_ms += 1
            fill(it, count)
        with pytest.raises(ArchiveError, match=text):
            archive(tmp_path / f"other{count}", tmp_path / "archive")


def test_a_damaged_manifest_is_refused(store: Path, tmp_path: Path) -> None:
    """The error names the entry, and entries that overlap."""
    archive(store, tmp_path / "archive")
    first, second = sorted((tmp_path / "archive" / "manifest" / BROKER).glob("*.json"))[:2]
    content = first.read_bytes()
    for damaged in (content[:-3], b'{"x":' + b"[" * 100_000, content + b" " * MAX_ENTRY_BYTES):
        first.write_bytes(damaged)
        with pytest.raises(ArchiveError, match=f"{first.name} cannot be read"):
            archive(store, tmp_path / "archive")
    first.write_bytes(content.replace(b'"end": %d' % SEGMENT_BYTES, b'"end": %d' % (SEGMENT_BYTES + 1), 1))
    with pytest.raises(ArchiveError, match="overlap"):
        archive(store, tmp_path / "archive")
    assert second.exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a\nb", "x" * 256])
def test_names_that_are_no_directory_are_refused(store: Path, tmp_path: Path, name: str) -> None:
    """The broker's name is part of paths."""
    with pytest.raises(ArchiveError, match="--broker-name"):
        archive(store, tmp_path / "archive", broker_name=name)


def test_a_mark_that_cannot_be_written_is_reported_first(store: Path, tmp_path: Path) -> None:
    """Before anything is archived. The job does not create `config`, which would belong to another user."""
    (store / "config" / "archive.json.tmp").mkdir(parents=True)
    with pytest.raises(ArchiveError, match=r"mark cannot be written.*--no-mark"):
        archive(store, tmp_path / "archive")
    (store / "config" / "archive.json.tmp").rmdir()
    settings = settings_of(store, tmp_path / "archive")
    (store / "config").rmdir()
    with pytest.raises(ArchiveError, match=r"mark cannot be written.*--no-mark"), opened_job(settings):
        pass
    assert not (store / "config").exists()


def test_without_a_mark_the_store_is_not_changed(store: Path, tmp_path: Path) -> None:
    """Neither a file nor a directory is written or removed."""
    settings = settings_of(store, tmp_path / "archive", writes_mark=False)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    with opened_job(settings) as planned:
        assert planned.run(LocalRunner(1), lambda entry: None).messages > 20
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 40_000)
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 19_000)


@pytest.mark.usefixtures("small_pieces")
def test_files_and_row_groups_have_a_limit(store: Path, tmp_path: Path) -> None:
    """Each file covers at most PIECE_BYTES of the log, each row group at most ROW_GROUP_BYTES, and all are sorted."""
    archive(store, tmp_path / "archive", include_last=True)
    assert rows(tmp_path / "archive") == all_rows(store)
    for entry in entries(tmp_path / "archive"):
        assert all(file.end - file.begin <= 40_000 for file in entry.files)
        assert [file.name for file in entry.files] == [f"{file.begin:020d}.parquet" for file in entry.files]
        for file in entry.files:
            metadata = pq.read_metadata(tmp_path / "archive" / "messages" / BROKER / file.name)
            assert {metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)} <= {1, 2}


@pytest.mark.usefixtures("small_pieces")
def test_a_message_that_is_larger_than_a_piece_is_a_file_of_its_own(tmp_path: Path) -> None:
    """The memory grows with the largest message only."""
    with opened(tmp_path / "store", max_message_size=60_000) as it:
        it.put(message(b"small"), message(b"y" * 50_000), message(b"small too"))
    archive(tmp_path / "store", tmp_path / "archive", include_last=True)
    assert rows(tmp_path / "archive") == all_rows(tmp_path / "store")


def test_files_have_what_lookups_need(store: Path, tmp_path: Path) -> None:
    """zstd, the order of the rows, statistics of all columns but the large ones, and Bloom filters."""
    archive(store, tmp_path / "archive")
    path = next((tmp_path / "archive" / "messages" / BROKER).glob("*.parquet"))
    group = pq.read_metadata(path).row_group(0)
    assert [column.column_index for column in group.sorting_columns] == [0, 2, 3, 4]
    for at in range(group.num_columns):
        column = group.column(at)
        assert column.compression == "ZSTD"
        assert column.is_stats_set is (column.path_in_schema not in {"body", "properties"})
        assert column.has_offset_index
    assert files.HAS_BLOOM_FILTERS


def test_an_archive_may_be_a_uri(store: Path, tmp_path: Path) -> None:
    """Of any file system of PyArrow; an unknown one is refused."""
    archive(store, f"file://{tmp_path}/archive")
    assert len(rows(tmp_path / "archive")) > 20
    with pytest.raises(ArchiveError, match="cannot be opened"):
        archive(store, "nowhere://archive")
    assert fs.FileSystem.from_uri(f"file://{tmp_path}")[0].type_name == "local"
