"""Timer messages of a restored store: those that wait are delivered once, those that were delivered are not."""

import asyncio
import json
import os
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.broker.delivery.timer.timers import Timers
from skylarkmq.broker.store.backup import BackupError, Restored
from tests.broker.store.backup import backups
from tests.broker.store.backup.backups import back_up, problems
from tests.harness.stores import Opened, opened
from tests.harness.timed import WHEEL_SLOTS, stop, timed, timers_of
from tests.harness.waiting import until

BEGIN: Final = 1_700_000_000_000
FLUSH_AT_ONCE: Final[dict[str, Any]] = {"flush_interval_commit_log": 1, "flush_commit_log_least_pages": 0}


def restored(source: Path, target: Path, **options: Any) -> Restored:
    """Restore a backup of a store with a small wheel."""
    return backups.restored(source, target, timer_slots=WHEEL_SLOTS, **options)


def loaded_timers(it: Opened) -> Timers:
    """Return the timers of an opened store."""
    timers = timers_of(it)
    timers.delivery.load()
    return timers


def advance(it: Opened, timers: Timers, now_ms: int) -> None:
    """Let the time pass, and deliver what is due."""
    it.clock.now_ms = now_ms
    while (next_ms := timers.delivery.step(it.clock.now_ms)) is not None and next_ms <= it.clock.now_ms:
        pass
    it.store.commit()


def save(it: Opened, timers: Timers) -> None:
    """Have the timer files written, as the broker does every second, until they have all progress."""
    steady_ms = count(it.clock.now_ms, 10)

    def is_saved() -> bool:
        now_ms = next(steady_ms)
        it.store.step(now_ms)
        timers.delivery.write(now_ms)
        saved, now = timers.files.statistics().checked, timers.delivery.check()
        return (saved.log_position, saved.queue_offset, saved.read_ms) == (
            timers.files.log.end,
            now.queue_offset,
            now.read_ms,
        )

    asyncio.run(until(is_saved))


def delivered(root: Path, now_ms: int) -> list[bytes]:
    """Return what a broker that starts on this store delivers until then, beside what it has delivered."""
    with opened(root) as it:
        it.clock.now_ms = max(now_ms - 1_000, it.clock.now_ms)
        timers = loaded_timers(it)
        before = len(it.bodies())
        advance(it, timers, now_ms)
        found = it.bodies()[before:]
        stop(it, timers)
        return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a backup of a running store: 30 timers at 10 s to 50 s, of which those at 10 s and 20 s are delivered."""
    with opened(tmp_path / "store", **FLUSH_AT_ONCE) as it:
        it.clock.now_ms = BEGIN
        timers = loaded_timers(it)
        it.put(*(timed(b"%d" % n, BEGIN + 10_000 * (1 + n % 5)) for n in range(30)))
        advance(it, timers, BEGIN + 21_500)
        save(it, timers)
        it.put(timed(b"late", BEGIN + 40_000))  # is not on the wheel yet
        back_up(it.root, tmp_path / "backup")
        stop(it, timers)
    return tmp_path


def test_waiting_timers_are_delivered_once(store: Path) -> None:
    """Those of the timer log, in several files, and the one that was only in the timer topic."""
    done = restored(store / "backup", store / "new")
    assert done.damage == []
    assert len(list((store / "new" / "timerlog").iterdir())) == 2
    assert problems(store / "new") == []
    expected = {b"%d" % n for n in range(30) if n % 5 >= 2} | {b"late"}
    found = delivered(store / "new", BEGIN + 60_000)
    assert (set(found), len(found)) == (expected, len(expected))


def test_a_damaged_timer_log_is_refused(store: Path) -> None:
    """Its checksums are compared; a file that is too short is refused without them, too."""
    path = min((store / "backup" / "log" / "timerlog").iterdir())
    data = bytearray(path.read_bytes())
    data[8] ^= 1
    path.write_bytes(data)
    with pytest.raises(BackupError, match=r"timerlog/0+ is damaged \(checksum\): repeat the backup"):
        restored(store / "backup", store / "new")
    os.truncate(path, 8)
    with pytest.raises(BackupError, match=r"timerlog/0+ has 8 of \d+ bytes: repeat the backup"):
        restored(store / "backup", store / "new", is_verified=False)


@pytest.mark.parametrize("size", [0, 1, 1 << 41])
def test_a_timer_log_of_impossible_files_is_refused(store: Path, size: int) -> None:
    path = store / "backup" / "backup.json"
    manifest = json.loads(path.read_bytes()) | {"timerSegmentSize": size}
    path.write_text(json.dumps(manifest))
    with pytest.raises(BackupError, match="use another backup"):
        restored(store / "backup", store / "new")


def test_a_later_state_delivers_again_what_was_due_after_the_end(store: Path) -> None:
    """Units of messages that the log does not have are dropped; all that was due by then counts as not delivered."""
    done = restored(store / "backup", store / "new", until_ms=BEGIN, uses_later_state=True)
    assert done.records == 30
    assert problems(store / "new") == []
    found = delivered(store / "new", BEGIN + 60_000)
    assert sorted(found) == sorted(b"%d" % n for n in range(30))


def test_a_later_backup_continues_the_timer_log(store: Path) -> None:
    """Its earlier files are not copied again, and new timers are in it."""
    with opened(store / "store", **FLUSH_AT_ONCE) as it:
        it.clock.now_ms = BEGIN + 22_000
        timers = loaded_timers(it)
        it.put(*(timed(b"new%d" % n, BEGIN + 50_000) for n in range(25)))
        advance(it, timers, it.clock.now_ms)
        save(it, timers)
        end = it.store.max_physical_offset
        done = back_up(it.root, store / "backup")
        assert done.log_end == end
        assert done.warnings == []
        stop(it, timers)
    restored(store / "backup", store / "new")
    assert problems(store / "new") == []
    found = delivered(store / "new", BEGIN + 70_000)
    assert sorted(found) == sorted(
        [*(b"%d" % n for n in range(30) if n % 5 >= 2), b"late", *(b"new%d" % n for n in range(25))]
    )


def test_a_timer_log_that_began_anew_is_copied_anew(store: Path) -> None:
    """Earlier states then have no timers, which the backup and a restore of such a state print."""
    first_end = restored(store / "backup", store / "first").log_end
    with opened(store / "store", **FLUSH_AT_ONCE) as it:
        for path in (it.root / "timerlog").iterdir():
            path.unlink()
        (it.root / "config" / "timercheck").unlink()
        (it.root / "timerwheel").unlink()
        it.clock.now_ms = BEGIN + 22_000
        timers = loaded_timers(it)
        it.put(timed(b"x", BEGIN + 40_000))
        advance(it, timers, BEGIN + 22_000)
        save(it, timers)
        end = it.store.max_physical_offset
        done = back_up(it.root, store / "backup")
        stop(it, timers)
    assert done.log_end == end
    assert "earlier states no longer have timers" in done.warnings[0]
    newest = restored(store / "backup", store / "old", until_offset=first_end)
    assert newest.missing[0] == "the timer log of this state: timer messages in the log are delivered again"
    restored(store / "backup", store / "new")
    assert problems(store / "new") == []
