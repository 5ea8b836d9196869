"""The rules of retention, each at its threshold."""

import time
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.retention.rules import HOUR_MS, DiskUsage, RetentionRules, local_hour, measure
from tests.harness.stores import Clock, TestDisk

NIGHT, DAY = 4, 12


def rules(**settings: object) -> RetentionRules:
    return RetentionRules(StoreConfig(store_path_root_dir=Path(), **settings))  # type: ignore[arg-type]  # of any field


@pytest.mark.parametrize(
    ("hour", "used", "segments", "is_forced", "is_full", "reason"),
    [
        (DAY, 0, 0, False, False, ""),
        (DAY, 75, 0, False, False, ""),
        (DAY, 76, 10, False, False, "space"),
        (DAY, 85, 10, False, False, "space"),
        (DAY, 86, 10, True, False, "space"),
        (DAY, 90, 10, True, False, "space"),
        (DAY, 91, 10, True, True, "space"),
        (DAY, 100, 10, True, True, "space"),
        (NIGHT, 0, 10, False, False, "time"),
        (NIGHT, 75, 10, False, False, "time"),
        (NIGHT, 86, 10, True, False, "space"),
        (NIGHT - 1, 50, 0, False, False, ""),
        (NIGHT + 1, 50, 0, False, False, ""),
    ],
)
def test_a_decision_at_each_threshold(
    hour: int, used: int, segments: int, is_forced: bool, is_full: bool, reason: str
) -> None:
    """Each threshold is exceeded one percent above it; with an empty disk only the hour permits deletion."""
    decided = rules().decide(hour, DiskUsage(used, 0, 0))
    assert (decided.segments, decided.is_forced, decided.is_disk_full, decided.reason) == (
        segments,
        is_forced,
        is_full,
        reason,
    )


@pytest.mark.parametrize("usage", [DiskUsage(91, 1, 1), DiskUsage(1, 91, 1), DiskUsage(1, 1, 91)])
def test_the_fullest_file_system_decides(usage: DiskUsage) -> None:
    """Log, queues or index: if one of them has no space, no message can be stored."""
    assert rules().decide(DAY, usage).is_disk_full


def test_forced_deletion_can_be_turned_off() -> None:
    """Then nothing is deleted before it is due, and a full disk still rejects messages."""
    decided = rules(clean_file_forcibly_enable=False).decide(DAY, DiskUsage(95, 95, 95))
    assert (decided.segments, decided.is_forced, decided.is_disk_full) == (10, False, True)


def test_limits_are_settings() -> None:
    """All numbers of the rules come from the configuration."""
    mine = rules(
        delete_when=(1, 23),
        delete_file_batch_max=3,
        disk_max_used_space_ratio=10,
        disk_space_clean_forcibly_ratio=30,
        disk_space_warning_level_ratio=35,
    )
    assert [mine.decide(hour, DiskUsage(0, 0, 0)).segments for hour in (0, 1, 22, 23)] == [0, 3, 0, 3]
    looks = [mine.decide(DAY, DiskUsage(used, 0, 0)) for used in (10, 11, 30, 31, 35, 36)]
    assert [(look.segments, look.is_forced, look.is_disk_full) for look in looks] == [
        (0, False, False),
        (3, False, False),
        (3, False, False),
        (3, True, False),
        (3, True, False),
        (3, True, True),
    ]


@pytest.mark.parametrize(("age_ms", "is_due"), [(0, False), (72 * HOUR_MS - 1, False), (72 * HOUR_MS, True)])
def test_a_segment_is_due_after_the_reserved_time(age_ms: int, is_due: bool) -> None:
    """To the millisecond, counted from its last modification."""
    now_ms = 1_700_000_000_000
    assert (rules().due_since(now_ms - age_ms) <= now_ms) is is_due
    assert rules(file_reserved_time=0).due_since(now_ms) <= now_ms


def test_local_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hour is in the time zone of the machine, as deleteWhen requires."""

    noon = Clock().now_ms // (24 * HOUR_MS) * (24 * HOUR_MS) + 12 * HOUR_MS
    for zone, hour in (("UTC", 12), ("XXX-8", 20), ("XXX+13", 23)):
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            assert local_hour(noon) == hour
    time.tzset()


def test_each_directory_is_measured(tmp_path: Path) -> None:
    """A directory that does not exist yet counts as on the file system of the root."""
    disk = TestDisk()
    disk.used = lambda path: {"commitlog": 7, "consumequeue": 8}.get(Path(path).name, 50)
    assert measure(tmp_path, disk) == DiskUsage(50, 50, 50)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue").mkdir()
    assert measure(tmp_path, disk) == DiskUsage(7, 8, 50)
    assert 0 <= super(TestDisk, disk).used_percent(str(tmp_path)) <= 100
    with pytest.raises(FileNotFoundError):
        super(TestDisk, disk).used_percent(str(tmp_path / "nowhere"))
