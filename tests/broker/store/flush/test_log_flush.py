"""How far the disk may be behind: those who send wait, and nobody is forgotten."""

import errno
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.flush.log_flush import pace_of
from skylarkmq.broker.store.log.append import PutStatus
from tests.harness.stores import Opened, config_of, message, opened

LIMIT = 10_000


def wait_flushed(it: Opened) -> None:
    """Until the flusher has done all that it was given; then the store takes note."""
    flusher = it.store._durability.log._flusher
    assert flusher is not None
    flusher.wait_idle()
    it.store.step(it.clock.now_ms)


def listen(it: Opened) -> list[bool]:
    """What the remoting layer would hear."""
    heard: list[bool] = []
    it.store.on_flush_lag(lambda: None, lambda: heard.append(it.store.is_flush_behind))
    return heard


@pytest.mark.parametrize("sync", [True, False])
def test_behind_until_caught_up(tmp_path: Path, sync: bool) -> None:
    """Beyond the limit the store is behind until the disk has caught up; it says so once, and nothing is lost."""
    with opened(tmp_path, sync=sync, flush_lag_limit=LIMIT) as it:
        heard = listen(it)
        it.disk.syncs.clear()
        appends = it.put(message(b"x" * 5_000))
        assert (it.store.is_flush_behind, it.store.statistics().flush_lag > LIMIT) == (False, False)
        appends += it.put(message(b"x" * 6_000))
        assert (it.store.is_flush_behind, it.store.statistics().flush_lag > LIMIT) == (True, True)
        it.store.step(it.clock.now_ms)
        assert (it.store.is_flush_behind, heard) == (True, [])
        it.disk.syncs.set()
        wait_flushed(it)
        assert (it.store.is_flush_behind, heard) == (False, [False])
        assert {append.status for append in appends} == {PutStatus.PUT_OK}
        assert len(it.bodies()) == 2


def test_a_slow_rhythm_is_not_waited_for(tmp_path: Path) -> None:
    """A store that is behind is flushed at once, whatever interval and least pages say."""
    slow: dict[str, Any] = {"flush_interval_commit_log": 600_000, "flush_commit_log_least_pages": 1_000}
    with opened(tmp_path, flush_lag_limit=1, **slow) as it:
        heard = listen(it)
        it.put(message())
        assert it.store.is_flush_behind
        wait_flushed(it)
        assert heard == [False]


def test_the_disk_begins_early(tmp_path: Path) -> None:
    """From a quarter of the limit on a flush does not wait for its rhythm, so that senders seldom have to."""
    slow: dict[str, Any] = {"flush_interval_commit_log": 600_000, "flush_commit_log_least_pages": 1_000}
    with opened(tmp_path, flush_lag_limit=4 * LIMIT, **slow) as it:
        for _ in range(3):
            it.put(message(b"x" * 5_000))
            assert 5_000 < it.store.statistics().flush_lag < LIMIT
            it.put(message(b"x" * 6_000))
            assert not it.store.is_flush_behind
            wait_flushed(it)
            assert it.store.statistics().flush_lag == 0


def test_with_a_pool_the_buffer_counts(tmp_path: Path) -> None:
    """What stands in a buffer is not flushed either, and does not wait for the committer's rhythm."""
    slow: dict[str, Any] = {"commit_interval_commit_log": 600_000, "commit_commit_log_thorough_interval": 600_000}
    with opened(
        tmp_path, transient_store_pool_enable=True, flush_lag_limit=1, flush_interval_commit_log=600_000, **slow
    ) as it:
        heard = listen(it)
        it.put(message())
        assert it.store.is_flush_behind
        committer = it.store._durability.log._committer
        assert committer is not None
        committer.wait_idle()
        it.store.step(it.clock.now_ms)
        wait_flushed(it)
        assert heard == [False]
        assert it.bodies() == [b"hello"]


def test_a_disk_that_fails_holds_nobody(tmp_path: Path) -> None:
    """After a failed sync there is nothing to wait for: producers go on, to be told 14."""
    with opened(tmp_path, flush_lag_limit=1) as it:
        heard = listen(it)

        def refuse(call: str, path: str) -> None:
            if call == "fdatasync" and "/commitlog/" in path:
                raise OSError(errno.EIO, "told to")

        it.disk.refuse = refuse
        it.put(message())
        wait_flushed(it)
        assert heard == [False]
        assert it.put(message())[0].status is PutStatus.SERVICE_NOT_AVAILABLE
        assert not it.store.is_flush_behind


@pytest.mark.parametrize(
    ("timed", "wakes", "is_woken"),
    [(True, False, False), (True, True, False), (False, False, False), (False, True, True)],
)
def test_what_ends_the_interval(tmp_path: Path, timed: bool, wakes: bool, is_woken: bool) -> None:
    """A put ends the interval only if it is not timed and puts may wake the flusher."""
    config = config_of(tmp_path, flush_commit_log_timed=timed, wake_flush_when_put_message=wakes)
    assert pace_of(config).is_woken is is_woken


def test_a_put_wakes_an_untimed_flusher(tmp_path: Path) -> None:
    """Then a put is flushed long before the interval has passed."""
    rhythm: dict[str, Any] = {"flush_interval_commit_log": 600_000, "flush_commit_log_least_pages": 0}
    with opened(tmp_path, flush_commit_log_timed=False, wake_flush_when_put_message=True, **rhythm) as it:
        it.put(message())
        wait_flushed(it)
        assert it.store.statistics().flush_lag == 0


@pytest.mark.parametrize("pool", [False, True])
def test_who_waits_for_the_disk_has_it_hurry(tmp_path: Path, pool: bool) -> None:
    """All that is written is flushed, open batch included, and then it is said; with nothing to flush at once."""
    slow: dict[str, Any] = {"flush_interval_commit_log": 600_000, "flush_commit_log_least_pages": 1_000}
    if pool:
        slow |= {"transient_store_pool_enable": True, "commit_interval_commit_log": 600_000}
        slow |= {"wake_commit_when_put_message": False, "commit_commit_log_thorough_interval": 600_000}
    with opened(tmp_path, **slow) as it:
        ends: list[int] = []
        it.store.when_flushed(lambda: ends.append(it.store.flushed_offset))
        assert ends == [0]
        it.put(message())
        it.store.put(message())
        it.store.when_flushed(lambda: ends.append(it.store.flushed_offset))
        while len(ends) < 2:
            it.store.step(it.clock.now_ms)
        assert ends[1] == it.store.max_physical_offset > 0


def test_who_waits_for_a_dead_disk_is_told(tmp_path: Path) -> None:
    """It will never be flushed; `flushed_offset` says so."""
    with opened(tmp_path) as it:
        it.must_be_sound = False

        def refuse(call: str, path: str) -> None:
            if call == "fdatasync" and "/commitlog/" in path:
                raise OSError(errno.EIO, "bad")

        it.disk.refuse = refuse
        it.put(message())
        told: list[bool] = []
        it.store.when_flushed(lambda: told.append(True))
        while not told:
            it.store.step(it.clock.now_ms)
        assert it.store.flushed_offset == 0
        it.store.when_flushed(lambda: told.append(True))
        assert told == [True, True]
