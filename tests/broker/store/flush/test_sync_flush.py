"""SYNC_FLUSH: no message is acknowledged or visible before the sync that covers it; never after a failed sync."""

import asyncio
import errno
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from skylarkmq.broker.store.flush import log_flush
from skylarkmq.broker.store.log.append import Append, PutStatus
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.stores import Opened, message, opened
from tests.harness.waiting import until


def wait_flushed(it: Opened) -> None:
    """Wait until the flusher has synced everything submitted, then run a step of the store."""
    assert it.store._durability.log._flusher is not None
    it.store._durability.log._flusher.wait_idle()
    it.store.step(it.clock.now_ms)


def finish_one_sync(it: Opened) -> None:
    """Let the blocked sync finish and wait until the next one has begun, which is blocked again."""
    it.disk.sync_started.clear()
    blocked, it.disk.syncs = it.disk.syncs, threading.Event()
    blocked.set()
    assert it.disk.sync_started.wait(WAIT_LIMIT_S)


def test_a_message_is_pending_until_its_sync_ends(tmp_path: Path) -> None:
    """A message whose sync is running is pending and invisible; afterwards it is acknowledged and visible."""
    with opened(tmp_path, sync=True) as it:
        it.disk.syncs.clear()
        (append,) = it.put(message())
        settled: list[PutStatus] = []
        it.store.flush.when_settled(lambda: settled.append(append.status))
        assert it.disk.sync_started.wait(WAIT_LIMIT_S)
        it.store.step(it.clock.now_ms)
        assert append.status is PutStatus.PENDING
        assert (it.bodies(), it.arrivals, settled) == ([], [], [])
        it.disk.syncs.set()
        wait_flushed(it)
        assert settled == [PutStatus.PUT_OK]
        assert it.bodies() == [b"hello"]
        assert it.arrivals == [("T", 0, 1, (0,))]


def test_a_running_sync_does_not_cover_later_commits(tmp_path: Path) -> None:
    """Commits that are written during a sync wait for the next one."""
    with opened(tmp_path, sync=True) as it:
        it.disk.syncs.clear()
        (first,) = it.put(message(b"first"))
        assert it.disk.sync_started.wait(WAIT_LIMIT_S)
        (second,) = it.put(message(b"second"))
        done = it.store._durability.log._flusher
        assert done is not None
        assert done._submitted.end == second.physical_offset + second.size
        finish_one_sync(it)
        it.store.step(it.clock.now_ms)
        assert (first.status, second.status) == (PutStatus.PUT_OK, PutStatus.PENDING)
        assert it.bodies() == [b"first"]
        it.disk.syncs.set()
        wait_flushed(it)
        assert second.status is PutStatus.PUT_OK


def test_one_sync_serves_all_waiting_commits(tmp_path: Path) -> None:
    """Commits that arrive during a sync share the next one."""
    with opened(tmp_path, sync=True) as it:
        it.disk.syncs.clear()
        it.put(message())
        assert it.disk.sync_started.wait(WAIT_LIMIT_S)
        appends = [it.put(message())[0] for _ in range(50)]
        it.disk.syncs.set()
        wait_flushed(it)
        assert {append.status for append in appends} == {PutStatus.PUT_OK}
        assert it.store.statistics().flusher.syncs == 2


def test_wait_false_is_acknowledged_at_once(tmp_path: Path) -> None:
    """A message with WAIT=false is acknowledged by the write; it becomes visible after the sync."""
    with opened(tmp_path, sync=True) as it:
        it.disk.syncs.clear()
        (append,) = it.put(message(wait_flush=False))
        assert append.status is PutStatus.PUT_OK
        assert it.bodies() == []
        it.disk.syncs.set()
        wait_flushed(it)
        assert it.bodies() == [b"hello"]


def test_an_overdue_sync_is_a_timeout(tmp_path: Path) -> None:
    """After syncFlushTimeout a waiter gets FLUSH_DISK_TIMEOUT, once; the message still becomes visible."""
    with opened(tmp_path, sync=True, sync_flush_timeout=5000) as it:
        it.disk.syncs.clear()
        (append,) = it.put(message())
        settled: list[PutStatus] = []
        it.store.flush.when_settled(lambda: settled.append(append.status))
        it.store.step(it.clock.now_ms + 4999)
        assert settled == []
        it.store.step(it.clock.now_ms + 5000)
        assert settled == [PutStatus.FLUSH_DISK_TIMEOUT]
        it.disk.syncs.set()
        wait_flushed(it)
        assert settled == [PutStatus.FLUSH_DISK_TIMEOUT]
        assert append.status is PutStatus.FLUSH_DISK_TIMEOUT
        assert it.bodies() == [b"hello"]


@pytest.mark.parametrize("sync", [True, False])
def test_a_failed_sync_makes_the_store_read_only(tmp_path: Path, sync: bool) -> None:
    """After one failed sync all waiting and later messages are refused, reads continue, and `abort` stays."""
    it = Opened(tmp_path, sync=sync, flush_interval_commit_log=1, flush_commit_log_least_pages=0)
    it.put(message(b"good"))
    wait_flushed(it)
    failures = iter([OSError(errno.EIO, "injected")])

    def refuse(call: str, path: str) -> None:
        if call == "fdatasync" and "/commitlog/" in path and (failure := next(failures, None)):
            raise failure

    it.disk.refuse = refuse
    (append,) = it.put(message(b"lost"))
    settled: list[PutStatus] = []
    it.store.flush.when_settled(lambda: settled.append(append.status))
    wait_flushed(it)
    (late,) = it.put(message(b"late"))
    assert settled == [PutStatus.SERVICE_NOT_AVAILABLE if sync else PutStatus.PUT_OK]
    assert late.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert not it.store.is_writable
    assert it.bodies()[0] == b"good"
    it.store.step(it.clock.now_ms + 60_000)
    assert not it.store.is_writable
    it.store.close()
    assert (tmp_path / "abort").exists()


async def test_results_arrive_through_the_event_loop(tmp_path: Path) -> None:
    """With an event loop, waiters are called without a step."""
    it = Opened(tmp_path, sync=True, loop=asyncio.get_running_loop())
    (append,) = it.put(message())
    settled = asyncio.get_running_loop().create_future()
    it.store.flush.when_settled(lambda: settled.set_result(append.status))
    assert await asyncio.wait_for(settled, WAIT_LIMIT_S) is PutStatus.PUT_OK
    it.store.close()


def test_a_topic_deleted_while_its_message_waits(tmp_path: Path) -> None:
    """A message whose topic is deleted before its sync is acknowledged, and its queue is not created again."""
    with opened(tmp_path, sync=True) as it:
        it.disk.syncs.clear()
        (append,) = it.put(message())
        assert asyncio.run(it.store.delete_topic("T")) == 1
        it.disk.syncs.set()
        wait_flushed(it)
        assert append.status is PutStatus.PUT_OK
        assert it.arrivals == []
        assert not (tmp_path / "consumequeue" / "T").exists()


def test_async_flush_settles_every_commit_at_once(tmp_path: Path) -> None:
    """Under ASYNC_FLUSH every commit is settled when it returns."""
    with opened(tmp_path) as it:
        it.put(message())
        called: list[bool] = []
        it.store.flush.when_settled(lambda: called.append(True))
        assert called == [True]


@pytest.mark.parametrize("is_quick", [True, False])
async def test_a_quick_sync_is_announced_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_quick: bool
) -> None:
    """But no later than at a step, and never two in a row."""
    monkeypatch.setattr(log_flush, "_QUICK_S", 600.0 if is_quick else 0.0)
    it = Opened(tmp_path, sync=True, loop=asyncio.get_running_loop())
    it.disk.syncs.clear()
    appends = it.put(message(b"first"))
    assert it.disk.sync_started.wait(WAIT_LIMIT_S)
    settled_counts: list[int] = []
    for body in (b"second", b"third", b"fourth", b"fifth"):
        appends += it.put(message(body))
        finish_one_sync(it)
        await asyncio.sleep(0.01)  # the loop handles the announcement
        settled_counts.append(sum(append.status is PutStatus.PUT_OK for append in appends))
        assert len(it.bodies()) == settled_counts[-1]
    assert settled_counts == ([0, 2, 2, 4] if is_quick else [1, 2, 3, 4])
    appends += it.put(message(b"sixth"))
    finish_one_sync(it)
    await asyncio.sleep(0.01)
    it.store.step(it.clock.now_ms)
    assert [append.status for append in appends] == [PutStatus.PUT_OK] * 5 + [PutStatus.PENDING]
    it.disk.syncs.set()
    it.store.close()


async def test_messages_synced_before_a_failed_sync_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if their announcement was deferred to that of the failed sync."""
    monkeypatch.setattr(log_flush, "_QUICK_S", 600.0)
    it = Opened(tmp_path, sync=True, loop=asyncio.get_running_loop())
    it.disk.syncs.clear()
    (first,) = it.put(message(b"first"))
    assert it.disk.sync_started.wait(WAIT_LIMIT_S)
    (second,) = it.put(message(b"second"))
    finish_one_sync(it)
    await asyncio.sleep(0.01)
    assert (first.status, second.status) == (PutStatus.PENDING, PutStatus.PENDING)

    def refuse(call: str, path: str) -> None:
        if call == "fdatasync" and "/commitlog/" in path:
            raise OSError(errno.EIO, "injected")

    it.disk.refuse = refuse
    it.disk.syncs.set()
    await until(lambda: PutStatus.PENDING not in (first.status, second.status))
    assert (first.status, second.status) == (PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE)
    assert it.bodies() == [b"first"]
    it.store.close()


def test_a_put_during_dispatch_keeps_the_order(tmp_path: Path) -> None:
    """Messages that are flushed during a dispatch are dispatched after it, in log order. A consumer that reads on does
    not overtake the index, which accepts messages in log order only."""
    with opened(tmp_path, sync=True) as it:
        dispatch, flusher = it.store._durability._dispatch_appends, it.store._durability.log._flusher
        dispatched: list[bytes] = []
        assert flusher is not None

        def dispatch_and_put(appends: Sequence[Append]) -> None:
            if not dispatched:
                it.put(message(b"second"))
                flusher.wait_idle()
                it.put(message(b"third"))  # this put finds the second one flushed
                assert dispatched == []
            dispatch(appends)
            dispatched.extend(bytes(append.body) for append in appends)

        it.store._durability.log._dispatch = dispatch_and_put
        it.put(message(b"first"))
        flusher.wait_idle()
        it.store.step(it.clock.now_ms)
        wait_flushed(it)
        assert it.bodies() == dispatched == [b"first", b"second", b"third"]


def put_alone(it: Opened) -> Append:
    """Put a message as a lone producer."""
    append = message()
    it.store.put(append)
    it.store.write(is_lone=True)
    it.store.make_visible()
    return append


def test_a_lone_commit_is_synced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a thread: it is settled and visible when the commit returns."""
    monkeypatch.setattr(log_flush, "monotonic", lambda: 0.0)  # no sync counts as slow
    with opened(tmp_path, sync=True) as it:
        threads = set()
        it.disk.refuse = lambda call, path: threads.add(threading.current_thread()) if call == "fdatasync" else None
        appends = [put_alone(it) for _ in range(2)]
        assert [append.status for append in appends] == [PutStatus.PUT_OK] * 2
        assert (it.bodies(), threads) == ([b"hello"] * 2, {threading.main_thread()})
        assert it.store.statistics().flusher.syncs == 2


def test_a_lone_commit_waits_for_a_running_sync(tmp_path: Path) -> None:
    """While the thread syncs, a lone commit waits for it like others."""
    with opened(tmp_path, sync=True) as it:
        it.disk.syncs.clear()
        it.put(message())
        append = put_alone(it)
        assert (append.status, it.bodies()) == (PutStatus.PENDING, [])
        it.disk.syncs.set()
        wait_flushed(it)
        assert append.status is PutStatus.PUT_OK


def test_a_slow_disk_is_synced_by_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a slow sync the loop makes none for twenty times its duration."""
    now_s = 0.0
    monkeypatch.setattr(log_flush, "monotonic", lambda: now_s)

    def take_time(call: str, path: str) -> None:
        nonlocal now_s
        if call == "fdatasync" and "/commitlog/" in path and threading.current_thread() is threading.main_thread():
            now_s += 0.006

    with opened(tmp_path, sync=True) as it:
        it.disk.refuse = take_time
        assert put_alone(it).status is PutStatus.PUT_OK
        it.disk.syncs.clear()
        now_s += 0.119
        left = put_alone(it)
        assert left.status is PutStatus.PENDING
        it.disk.syncs.set()
        wait_flushed(it)
        now_s += 0.002
        assert put_alone(it).status is PutStatus.PUT_OK


def test_a_lone_commit_whose_sync_fails_is_refused(tmp_path: Path) -> None:
    """As with the thread: the message is refused, and the store is read-only afterwards."""
    it = Opened(tmp_path, sync=True)
    it.must_be_consistent = False
    failures = iter([OSError(errno.EIO, "injected")])

    def refuse(call: str, path: str) -> None:
        if call == "fdatasync" and "/commitlog/" in path and (failure := next(failures, None)):
            raise failure

    it.disk.refuse = refuse
    append = put_alone(it)
    assert (append.status, it.bodies()) == (PutStatus.PENDING, [])
    it.store.step(it.clock.now_ms)
    assert append.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert (it.bodies(), it.store.is_writable) == ([], False)
    assert put_alone(it).status is PutStatus.SERVICE_NOT_AVAILABLE
    it.store.close()
