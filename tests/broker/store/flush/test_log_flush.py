"""The flush of the log: how far the disk may lag, and how waiters are called."""

import errno
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.flush.log_flush import pace_of
from skylarkmq.broker.store.log.append import PutStatus
from tests.harness.stores import Opened, config_of, message, opened

LIMIT = 10_000


def wait_flushed(it: Opened) -> None:
    """Wait until the flusher has synced everything submitted, then run a step of the store."""
    flusher = it.store._durability.log._flusher
    assert flusher is not None
    flusher.wait_idle()
    it.store.step(it.clock.now_ms)


def listen(it: Opened) -> list[bool]:
    """Return the notifications that the remoting layer would get."""
    notified: list[bool] = []
    it.store.flush.lag_limit.watch(lambda: None, lambda: notified.append(it.store.flush.is_behind))
    return notified


@pytest.mark.parametrize("sync", [True, False])
def test_the_store_is_behind_until_the_disk_has_caught_up(tmp_path: Path, sync: bool) -> None:
    """Above the limit the store is behind until the disk has caught up. It notifies once, and no message is lost."""
    with opened(tmp_path, sync=sync, flush_lag_limit=LIMIT) as it:
        notified = listen(it)
        it.disk.syncs.clear()
        appends = it.put(message(b"x" * 5_000))
        assert (it.store.flush.is_behind, it.store.statistics().flush_lag > LIMIT) == (False, False)
        appends += it.put(message(b"x" * 6_000))
        assert (it.store.flush.is_behind, it.store.statistics().flush_lag > LIMIT) == (True, True)
        it.store.step(it.clock.now_ms)
        assert (it.store.flush.is_behind, notified) == (True, [])
        it.disk.syncs.set()
        wait_flushed(it)
        assert (it.store.flush.is_behind, notified) == (False, [False])
        assert {append.status for append in appends} == {PutStatus.PUT_OK}
        assert len(it.bodies()) == 2


def test_a_lagging_store_is_flushed_at_once(tmp_path: Path) -> None:
    """Interval and least pages do not delay the flush of a store that is behind."""
    slow: dict[str, Any] = {"flush_interval_commit_log": 600_000, "flush_commit_log_least_pages": 1_000}
    with opened(tmp_path, flush_lag_limit=1, **slow) as it:
        notified = listen(it)
        it.put(message())
        assert it.store.flush.is_behind
        wait_flushed(it)
        assert notified == [False]


def test_the_flush_begins_at_a_quarter_of_the_limit(tmp_path: Path) -> None:
    """From there on a flush does not wait for its interval, so that producers rarely have to wait."""
    slow: dict[str, Any] = {"flush_interval_commit_log": 600_000, "flush_commit_log_least_pages": 1_000}
    with opened(tmp_path, flush_lag_limit=4 * LIMIT, **slow) as it:
        for _ in range(3):
            it.put(message(b"x" * 5_000))
            assert 5_000 < it.store.statistics().flush_lag < LIMIT
            it.put(message(b"x" * 6_000))
            assert not it.store.flush.is_behind
            wait_flushed(it)
            assert it.store.statistics().flush_lag == 0


def test_bytes_in_a_pool_buffer_count_as_lag(tmp_path: Path) -> None:
    """Bytes in a buffer are not flushed, and do not wait for the committer's interval."""
    slow: dict[str, Any] = {"commit_interval_commit_log": 600_000, "commit_commit_log_thorough_interval": 600_000}
    with opened(
        tmp_path, transient_store_pool_enable=True, flush_lag_limit=1, flush_interval_commit_log=600_000, **slow
    ) as it:
        notified = listen(it)
        it.put(message())
        assert it.store.flush.is_behind
        committer = it.store._durability.log._committer
        assert committer is not None
        committer.wait_idle()
        it.store.step(it.clock.now_ms)
        wait_flushed(it)
        assert notified == [False]
        assert it.bodies() == [b"hello"]


def test_a_failed_sync_resumes_producers(tmp_path: Path) -> None:
    """After a failed sync there is nothing to wait for: producers resume and get SERVICE_NOT_AVAILABLE (14)."""
    with opened(tmp_path, flush_lag_limit=1) as it:
        notified = listen(it)

        def refuse(call: str, path: str) -> None:
            if call == "fdatasync" and "/commitlog/" in path:
                raise OSError(errno.EIO, "injected")

        it.disk.refuse = refuse
        it.put(message())
        wait_flushed(it)
        assert notified == [False]
        assert it.put(message())[0].status is PutStatus.SERVICE_NOT_AVAILABLE
        assert not it.store.flush.is_behind


@pytest.mark.parametrize(
    ("timed", "wakes", "is_woken"),
    [(True, False, False), (True, True, False), (False, False, False), (False, True, True)],
)
def test_settings_that_let_a_put_end_the_interval(tmp_path: Path, timed: bool, wakes: bool, is_woken: bool) -> None:
    """A put ends the interval only if it is not timed and puts may wake the flusher."""
    config = config_of(tmp_path, flush_commit_log_timed=timed, wake_flush_when_put_message=wakes)
    assert pace_of(config).is_woken is is_woken


def test_a_put_wakes_an_untimed_flusher(tmp_path: Path) -> None:
    """The put is flushed long before the interval has passed."""
    rhythm: dict[str, Any] = {"flush_interval_commit_log": 600_000, "flush_commit_log_least_pages": 0}
    with opened(tmp_path, flush_commit_log_timed=False, wake_flush_when_put_message=True, **rhythm) as it:
        it.put(message())
        wait_flushed(it)
        assert it.store.statistics().flush_lag == 0


@pytest.mark.parametrize("pool", [False, True])
def test_when_flushed_expedites_the_threads(tmp_path: Path, pool: bool) -> None:
    """Everything written is flushed, the open batch included, before the callback; without lag it is called at once."""
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


def test_when_flushed_calls_back_after_a_failed_sync(tmp_path: Path) -> None:
    """The log will never be flushed, which `flushed_offset` shows."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False

        def refuse(call: str, path: str) -> None:
            if call == "fdatasync" and "/commitlog/" in path:
                raise OSError(errno.EIO, "bad")

        it.disk.refuse = refuse
        it.put(message())
        called: list[bool] = []
        it.store.when_flushed(lambda: called.append(True))
        while not called:
            it.store.step(it.clock.now_ms)
        assert it.store.flushed_offset == 0
        it.store.when_flushed(lambda: called.append(True))
        assert called == [True, True]
