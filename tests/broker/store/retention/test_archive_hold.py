"""`archiveHold`: due segments wait for the archive, within limits, and the mark's file is untrusted."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.ops.collectors.storage import StorageCollector
from skylarkmq.broker.ops.steps import Value
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.retention.archive_hold import HoldStatistics
from skylarkmq.broker.store.retention.rules import HOUR_MS
from skylarkmq.protocol.archive_mark import MAX_MARK_BYTES, ArchiveMark, encode_mark
from tests.broker.store.retention.test_cleaner import SEGMENTS, filled, readable_segments, run, set_modified, step
from tests.harness.stores import SEGMENT_BYTES, Clock, Opened, TestDisk

ALL = list(range(SEGMENTS))
DUE = 4
"""How many segments are due at the start; the others are due 72 hours later."""


def held(root: Path, **settings: Any) -> Opened:
    """Return a store with the hold on, after the first minute."""
    it = filled(root, archive_hold=True, **settings)
    for number in range(DUE):
        set_modified(root, number * SEGMENT_BYTES, it.clock.now_ms - 72 * HOUR_MS)
    step(it, 0)
    step(it, 60_000)
    return it


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Opened]:
    opened = held(tmp_path)
    yield opened
    opened.store.close()


def write_mark(it: Opened, segments: float, updated_ms: int | None = None) -> None:
    """Write a mark at so many segments after the start of the log."""
    updated_at = it.clock.now_ms if updated_ms is None else updated_ms
    path = it.root / "config" / "archive.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode_mark(ArchiveMark(int(segments * SEGMENT_BYTES), updated_at, "/archive")))


def now(it: Opened) -> HoldStatistics:
    found = it.store.statistics().cleaner.hold
    assert found is not None
    return found


def test_due_segments_wait_for_the_mark(it: Opened) -> None:
    """A segment is deleted once the mark has reached its end, and not while the mark is within it."""
    run(it, 2)
    assert readable_segments(it) == ALL
    for segments, left in ((0.5, ALL), (1, ALL[1:]), (2.999, ALL[2:]), (3, ALL[3:])):
        write_mark(it, segments)
        run(it, 2)
        assert readable_segments(it) == left
    assert now(it).held_bytes == SEGMENT_BYTES
    assert now(it).mark == 3 * SEGMENT_BYTES


def test_the_mark_deletes_only_due_segments(it: Opened) -> None:
    """An archive that is ahead of retention changes nothing."""
    write_mark(it, SEGMENTS)
    run(it, 8)
    assert readable_segments(it) == ALL[DUE:]
    assert now(it) == HoldStatistics(SEGMENTS * SEGMENT_BYTES, now(it).mark_age_ms, 0, "", 0)


def test_the_mark_survives_a_restart(tmp_path: Path) -> None:
    """It is read from the file at the first check."""
    it = held(tmp_path)
    write_mark(it, 2)
    it.store.close()
    again = Opened(tmp_path, archive_hold=True, delete_when=tuple(range(24)))
    step(again, 0)
    run(again, 8)
    assert readable_segments(again) == ALL[2:]
    again.store.close()


def test_a_request_for_deletion_respects_the_hold(tmp_path: Path) -> None:
    """DELETE_EXPIRED_COMMITLOG (329) deletes due segments that are archived."""
    it = held(tmp_path, delete_when=())
    write_mark(it, 1)
    it.store.manual_cleanup.delete_due_segments()
    run(it, 3)
    assert readable_segments(it) == ALL[1:]
    it.store.close()


@pytest.mark.parametrize(("used", "left"), [(75, ALL), (76, ALL[DUE:]), (86, ALL[-1:])])
def test_a_crowded_disk_overrides_the_hold(tmp_path: Path, used: int, left: list[int]) -> None:
    """Above diskMaxUsedSpaceRatio due segments are deleted, above the ratio of forced deletion others, too."""
    disk = TestDisk()
    disk.used = lambda path: used
    it = held(tmp_path, disk=disk)
    run(it, 8)
    assert readable_segments(it) == left
    assert now(it).unarchived == SEGMENTS - len(left)
    it.store.close()


@pytest.mark.parametrize(
    ("limit", "waiting"), [(0, 4), (4 * SEGMENT_BYTES, 4), (4 * SEGMENT_BYTES - 1, 3), (2 * SEGMENT_BYTES, 2), (1, 0)]
)
def test_archive_hold_max_bytes_limits_what_waits(tmp_path: Path, limit: int, waiting: int) -> None:
    """The oldest segments above the limit are deleted, and no more than these."""
    it = held(tmp_path, archive_hold_max_bytes=limit)
    run(it, 8)
    assert readable_segments(it) == ALL[DUE - waiting :]
    assert now(it).held_bytes == waiting * SEGMENT_BYTES
    it.store.close()


@pytest.mark.parametrize("has_mark", [False, True])
def test_a_mark_that_is_too_old_holds_nothing(tmp_path: Path, has_mark: bool) -> None:
    """Its age counts from the last run of the job, and without a mark from the time the first segment was due."""
    it = filled(tmp_path, archive_hold=True, archive_hold_max_hours=48)
    set_modified(tmp_path, 0, it.clock.now_ms - 72 * HOUR_MS)
    if has_mark:
        write_mark(it, 0.5)
    step(it, 0)
    step(it, 48 * HOUR_MS)
    assert readable_segments(it) == ALL
    step(it, 10_000)
    assert readable_segments(it) == ALL[1:]
    assert now(it).unarchived == 1
    it.store.close()


def test_a_time_in_the_future_does_not_extend_the_hold(tmp_path: Path) -> None:
    """It counts as the time at which the broker first read this mark."""
    it = held(tmp_path, archive_hold_max_hours=1)
    write_mark(it, 0, updated_ms=(1 << 63) - 1)
    run(it)
    assert readable_segments(it) == ALL
    it.clock.now_ms += HOUR_MS + 10_000
    run(it, 2)
    assert readable_segments(it) == ALL[DUE:]
    it.store.close()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def link(path: Path) -> None:
    other = path.with_name("other.json")
    other.write_bytes(encode_mark(ArchiveMark(SEGMENT_BYTES, 1)))
    path.symlink_to(other)


def of(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


@pytest.mark.parametrize(
    "make",
    [
        fifo, directory, link, of(b""), of(b"{}"), of(b'{"lowWaterMark":-1,"updatedAt":1}'),
        of(b'{"a":' + b"[" * 16_000),
        of(encode_mark(ArchiveMark(SEGMENT_BYTES, 1)).ljust(MAX_MARK_BYTES + 1)),
        of(encode_mark(ArchiveMark(2 * SEGMENTS * SEGMENT_BYTES + 1, 1))),
    ],
)  # fmt: skip
def test_an_unusable_file_deletes_nothing_and_is_logged_once(
    it: Opened, make: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    """Files of other kinds, other content, and marks of another store; the last usable mark stays in effect."""
    write_mark(it, 1)
    run(it)
    path = it.root / "config" / "archive.json"
    path.unlink()
    make(path)
    run(it, 4)
    assert readable_segments(it) == ALL[1:]
    assert [record.message.split(" path=")[0] for record in caplog.records if "not usable" in record.message] == [
        "archive mark not usable"
    ]
    assert now(it).mark == SEGMENT_BYTES


def test_each_change_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The hold begins, is overridden, and ends; each segment that is not archived has a line."""
    caplog.set_level("INFO", "skylarkmq.broker.store.retention.archive_hold")
    it = held(tmp_path, delete_file_batch_max=1)
    run(it, 3)
    it.disk.used = lambda path: 80
    run(it, 1)
    it.disk.used = lambda path: 50
    write_mark(it, 3)
    run(it, 3)
    write_mark(it, SEGMENTS)
    run(it, 3)
    lines = [record.message for record in caplog.records if record.name.endswith("archive_hold")]
    assert [line.split(" mark=")[0].split(" path=")[0] for line in lines] == [
        "archive hold keeps due segments",
        "archive hold overridden because=space",
        "segment was not archived",
        "archive hold keeps due segments",
        "archive hold ended: no expired segment waits for the archive",
    ]
    it.store.close()


def test_the_settings_change_while_the_broker_runs(it: Opened) -> None:
    """Turned off, the hold has no statistics and keeps nothing; a shorter reserved time makes more segments due."""
    config: StoreConfig = it.store._config
    it.store.configure(msgspec.structs.replace(config, file_reserved_time=0))
    run(it)
    assert now(it).held_bytes == (SEGMENTS - 1) * SEGMENT_BYTES
    it.store.configure(msgspec.structs.replace(config, archive_hold=False))
    run(it, 2)
    assert readable_segments(it) == ALL[DUE:]
    assert it.store.statistics().cleaner.hold is None


def test_the_metrics_show_the_hold(it: Opened) -> None:
    """Mark, age, waiting bytes, the reason of an override, and deleted segments; none of them while it is off."""
    write_mark(it, 1.5)
    run(it, 2)
    it.disk.used = lambda path: 76
    step(it, 10_000)
    found = metrics(it)
    age_s = found.pop(("skylark_archive_mark_age_seconds",))
    assert 20 <= age_s <= 40
    assert found == {
        ("skylark_archive_mark_bytes",): 1.5 * SEGMENT_BYTES,
        ("skylark_archive_held_bytes",): 2 * SEGMENT_BYTES,
        ("skylark_archive_hold_overridden", "space"): 1,
        ("skylark_archive_hold_overridden", "bytes"): 0,
        ("skylark_archive_hold_overridden", "age"): 0,
        ("skylark_archive_missed_segments_total",): 1,
    }
    it.store.configure(msgspec.structs.replace(it.store._config, archive_hold=False))
    assert metrics(it) == {}


def metrics(it: Opened) -> dict[tuple[str, ...], Any]:
    values = [value for value in StorageCollector(it.store, it.root)() if isinstance(value, Value)]
    return {(value.name, *value.labels): value.value for value in values if value.name.startswith("skylark_archive")}


def test_a_clock_that_is_set_forward_does_not_end_the_hold(tmp_path: Path) -> None:
    """The age of the mark counts by the time that has passed since the first step."""
    it = filled(tmp_path, archive_hold=True, archive_hold_max_hours=1)
    set_modified(tmp_path, 0, it.clock.now_ms - 72 * HOUR_MS)
    steady = Clock(5_000)
    it.store.step(steady.now_ms)
    it.clock.now_ms += 10 * HOUR_MS
    for _ in range(3):
        steady.now_ms += 60_000
        it.clock.now_ms += 60_000
        it.store.step(steady.now_ms)
    assert readable_segments(it) == ALL
    it.store.close()
