"""Copies on other machines: a message is acknowledged after them, and never claims a copy that does not exist."""

import asyncio
import errno
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.flush.flusher import Target
from skylarkmq.broker.store.log.append import Append, PutStatus
from tests.harness.copies import TestCopies
from tests.harness.stores import Opened, message, opened

SLOW_POOL: dict[str, Any] = {
    "transient_store_pool_enable": True,
    "commit_interval_commit_log": 600_000,
    "wake_commit_when_put_message": False,
    "commit_commit_log_thorough_interval": 600_000,
}
EVERY_FLUSH = pytest.mark.parametrize("sync", [True, False])


def replicate(it: Opened, **settings: Any) -> TestCopies:
    """Give the store copies, of which none has any byte yet."""
    copies = TestCopies(**settings)
    it.store.flush.replicate(copies)
    return copies


def end_of(append: Append) -> int:
    """Return the offset after a record."""
    return append.physical_offset + append.size


def wait_flushed(it: Opened) -> None:
    """Wait until the threads have finished everything submitted, then run a step of the store."""
    log = it.store._durability.log
    if log._committer is not None:
        log._committer.expedite()
        log._committer.wait_idle()
        it.store.step(it.clock.now_ms)
    assert log._flusher is not None
    log._flusher.expedite()
    log._flusher.wait_idle()
    it.store.step(it.clock.now_ms)


def settled(it: Opened, append: Append) -> list[PutStatus]:
    """Return a list that gets the status of an append each time that its waiter is called."""
    statuses: list[PutStatus] = []
    it.store.flush.when_settled(lambda: statuses.append(append.status))
    return statuses


@EVERY_FLUSH
def test_a_message_is_pending_until_it_is_copied(tmp_path: Path, sync: bool) -> None:
    """In classic replication it is visible before, as the own flush decides; also under ASYNC_FLUSH it is pending."""
    with opened(tmp_path, sync=sync) as it:
        copies = replicate(it)
        (append,) = it.put(message())
        statuses = settled(it, append)
        wait_flushed(it)
        assert (append.status, statuses, it.bodies()) == (PutStatus.PENDING, [], [b"hello"])
        assert not it.store.flush.is_settled()
        copies.move(end_of(append) - 1)
        assert statuses == []
        copies.move(end_of(append))
        assert (statuses, it.store.flush.is_settled()) == ([PutStatus.PUT_OK], True)
        assert copies.commit_s.count == 1


def test_a_copied_message_waits_for_the_own_flush(tmp_path: Path) -> None:
    """Under SYNC_FLUSH a copy alone neither acknowledges a message nor makes it visible."""
    with opened(tmp_path, sync=True) as it:
        copies = replicate(it)
        it.disk.syncs.clear()
        (append,) = it.put(message())
        statuses = settled(it, append)
        copies.move(end_of(append))
        it.store.step(it.clock.now_ms)
        assert (statuses, it.bodies()) == ([], [])
        it.disk.syncs.set()
        wait_flushed(it)
        assert (statuses, it.bodies()) == ([PutStatus.PUT_OK], [b"hello"])


def test_a_lone_commit_waits_for_its_copy(tmp_path: Path) -> None:
    """The loop does not sync it itself: the flusher does, while the copy is made."""
    with opened(tmp_path, sync=True) as it:
        copies = replicate(it)
        append = message()
        it.store.put(append)
        it.store.write(is_lone=True)
        wait_flushed(it)
        assert (append.status, it.bodies()) == (PutStatus.PENDING, [b"hello"])
        copies.move(end_of(append))
        assert append.status is PutStatus.PUT_OK


@EVERY_FLUSH
def test_an_overdue_copy_is_a_slave_timeout(tmp_path: Path, sync: bool) -> None:
    """After slaveTimeout a waiter gets FLUSH_SLAVE_TIMEOUT, once; a later copy changes nothing."""
    with opened(tmp_path, sync=sync) as it:
        copies = replicate(it, timeout_ms=3_000)
        (append,) = it.put(message())
        statuses = settled(it, append)
        wait_flushed(it)
        it.store.step(it.clock.now_ms + 2_999)
        assert statuses == []
        it.store.step(it.clock.now_ms + 3_000)
        copies.move(end_of(append))
        assert statuses == [append.status] == [PutStatus.FLUSH_SLAVE_TIMEOUT]
        assert it.bodies() == [b"hello"]
        assert copies.commit_s.count == 0


@pytest.mark.parametrize(
    ("is_copied", "status"), [(True, PutStatus.FLUSH_DISK_TIMEOUT), (False, PutStatus.FLUSH_SLAVE_TIMEOUT)]
)
def test_a_failure_of_the_copy_overrides_one_of_the_flush(tmp_path: Path, is_copied: bool, status: PutStatus) -> None:
    """A commit is settled when both are decided: not at slaveTimeout, but at the later syncFlushTimeout."""
    with opened(tmp_path, sync=True, sync_flush_timeout=5_000) as it:
        copies = replicate(it, timeout_ms=3_000)
        it.disk.syncs.clear()
        (append,) = it.put(message())
        statuses = settled(it, append)
        it.store.step(it.clock.now_ms + 3_000)
        if is_copied:
            copies.move(end_of(append))
        it.store.step(it.clock.now_ms + 4_999)
        assert statuses == []
        it.store.step(it.clock.now_ms + 5_000)
        assert statuses == [status]
        it.disk.syncs.set()
        wait_flushed(it)
        assert it.bodies() == [b"hello"]


@EVERY_FLUSH
def test_without_a_replica_the_message_is_stored_and_reported(tmp_path: Path, sync: bool) -> None:
    """SLAVE_NOT_AVAILABLE comes as soon as the own flush allows, and overrides its timeout."""
    with opened(tmp_path, sync=sync) as it:
        copies = replicate(it)
        copies.refusal = PutStatus.SLAVE_NOT_AVAILABLE
        (append,) = it.put(message(b"first"))
        statuses = settled(it, append)
        assert statuses == ([] if sync else [PutStatus.SLAVE_NOT_AVAILABLE])
        wait_flushed(it)
        assert statuses == [PutStatus.SLAVE_NOT_AVAILABLE]
        it.disk.syncs.clear()
        (overdue,) = it.put(message(b"second"))
        it.store.step(it.clock.now_ms + 60_000)
        assert overdue.status is PutStatus.SLAVE_NOT_AVAILABLE
        it.disk.syncs.set()
        wait_flushed(it)
        assert it.bodies() == [b"first", b"second"]


@EVERY_FLUSH
@pytest.mark.parametrize("refusal", [None, PutStatus.SLAVE_NOT_AVAILABLE])
def test_wait_false_waits_for_no_copy(tmp_path: Path, sync: bool, refusal: PutStatus | None) -> None:
    """A message with WAIT=false is acknowledged by the write, whether a replica is there or not."""
    with opened(tmp_path, sync=sync) as it:
        copies = replicate(it)
        copies.refusal = refusal
        hasty, patient = it.put(message(wait_flush=False), message())
        assert hasty.status is PutStatus.PUT_OK
        wait_flushed(it)
        copies.move(end_of(patient))
        assert (hasty.status, patient.status) == (PutStatus.PUT_OK, refusal or PutStatus.PUT_OK)
        assert len(it.bodies()) == 2


def test_commits_are_settled_in_order(tmp_path: Path) -> None:
    """A report settles all commits up to it, oldest first; a commit that needs no copy waits for those before it."""
    with opened(tmp_path) as it:
        copies = replicate(it)
        order: list[int] = []
        appends = []
        for number in range(3):
            appends += it.put(message())
            it.store.flush.when_settled(partial(order.append, number))
        copies.refusal = PutStatus.SLAVE_NOT_AVAILABLE
        appends += it.put(message())
        it.store.flush.when_settled(lambda: order.append(3))
        copies.move(end_of(appends[1]))
        assert order == [0, 1]
        it.store.step(it.clock.now_ms + 3_000)
        assert order == [0, 1, 2, 3]
        assert [append.status.name for append in appends] == [
            "PUT_OK",
            "PUT_OK",
            "FLUSH_SLAVE_TIMEOUT",
            "SLAVE_NOT_AVAILABLE",
        ]


def test_a_replica_that_is_ahead_settles_at_once(tmp_path: Path) -> None:
    """Under ASYNC_FLUSH a commit whose copies exist already is settled when it returns."""
    with opened(tmp_path) as it:
        replicate(it).copied = 1 << 40
        (append,) = it.put(message())
        assert (append.status, it.store.flush.is_settled()) == (PutStatus.PUT_OK, True)


def test_with_a_pool_visibility_waits_for_the_committer_and_the_status_for_the_copy(tmp_path: Path) -> None:
    """Bytes in a buffer cannot be copied. The replicas are notified when they are in the file."""
    with opened(tmp_path, **SLOW_POOL) as it:
        copies = replicate(it)
        readable: list[int] = []
        it.store.flush.on_growth(readable.append, None)
        (append,) = it.put(message())
        statuses = settled(it, append)
        assert (it.bodies(), it.store.readable_offset, statuses) == ([], 0, [])
        wait_flushed(it)
        assert (it.bodies(), it.store.readable_offset, statuses) == ([b"hello"], end_of(append), [])
        assert readable[-1] == end_of(append)
        copies.move(end_of(append))
        assert statuses == [PutStatus.PUT_OK]


def test_with_a_pool_a_timeout_does_not_wait_for_the_committer(tmp_path: Path) -> None:
    """Under ASYNC_FLUSH only the copy is awaited."""
    with opened(tmp_path, **SLOW_POOL) as it:
        replicate(it)
        (append,) = it.put(message())
        it.store.step(it.clock.now_ms + 3_000)
        assert append.status is PutStatus.FLUSH_SLAVE_TIMEOUT
        wait_flushed(it)
        assert it.bodies() == [b"hello"]


@EVERY_FLUSH
def test_on_a_link_visible_is_committed(tmp_path: Path, sync: bool) -> None:
    """A message is invisible until it is copied, and then acknowledged and visible at once."""
    with opened(tmp_path, sync=sync) as it:
        copies = replicate(it, is_visible_first=False)
        first, second = it.put(message(b"first"))[0], it.put(message(b"second"))[0]
        statuses = settled(it, second)
        wait_flushed(it)
        assert (first.status, it.bodies(), it.arrivals) == (PutStatus.PENDING, [], [])
        copies.move(end_of(first))
        assert (first.status, it.bodies(), statuses) == (PutStatus.PUT_OK, [b"first"], [])
        copies.move(end_of(second))
        assert (it.bodies(), statuses) == ([b"first", b"second"], [PutStatus.PUT_OK])


@EVERY_FLUSH
def test_on_a_link_an_overdue_message_is_refused_and_visible_once_committed(tmp_path: Path, sync: bool) -> None:
    """The producer gets SERVICE_NOT_AVAILABLE after slaveTimeout; the message stays in the log and may still commit."""
    with opened(tmp_path, sync=sync) as it:
        copies = replicate(it, is_visible_first=False)
        (append,) = it.put(message())
        statuses = settled(it, append)
        wait_flushed(it)
        it.store.step(it.clock.now_ms + 3_000)
        assert (statuses, it.bodies()) == ([PutStatus.SERVICE_NOT_AVAILABLE], [])
        copies.move(end_of(append))
        assert (statuses, it.bodies()) == ([PutStatus.SERVICE_NOT_AVAILABLE], [b"hello"])
        assert it.arrivals == [("T", 0, 1, (0,))]


def test_on_a_link_the_own_flush_is_part_of_the_commit(tmp_path: Path) -> None:
    """Even if the copies claim more, nothing is visible that this store has not flushed; slaveTimeout is the limit."""
    with opened(tmp_path, sync=True, sync_flush_timeout=5_000) as it:
        copies = replicate(it, is_visible_first=False)
        it.disk.syncs.clear()
        (append,) = it.put(message())
        copies.move(end_of(append))
        it.store.step(it.clock.now_ms)
        assert (append.status, it.bodies()) == (PutStatus.PENDING, [])
        it.store.step(it.clock.now_ms + 3_000)
        assert append.status is PutStatus.SERVICE_NOT_AVAILABLE
        it.disk.syncs.set()
        wait_flushed(it)
        assert it.bodies() == [b"hello"]


async def test_on_a_link_a_flush_that_settles_nothing_costs_no_call(tmp_path: Path) -> None:
    """The acknowledgements of the copies follow it; then all is settled at once."""
    it = Opened(tmp_path, sync=True, loop=asyncio.get_running_loop())
    copies = replicate(it, is_visible_first=False)
    calls: list[int] = []
    it.store.flush.on_settled = lambda: calls.append(it.store.flush.is_settled())
    flushed, settled = asyncio.Event(), asyncio.Event()
    it.store.flush.on_growth(None, lambda _: flushed.set())
    (append,) = it.put(message())
    it.store.flush.when_settled(settled.set)
    await flushed.wait()
    await asyncio.sleep(0)
    assert calls == []
    copies.move(end_of(append))
    assert settled.is_set()
    assert (calls, append.status, it.bodies()) == ([True], PutStatus.PUT_OK, [b"hello"])
    it.store.close()


@pytest.mark.parametrize("has_copies", [False, True])
def test_the_loop_spins_only_for_its_own_flush(tmp_path: Path, has_copies: bool) -> None:
    """Copies on other machines take longer than a wake-up."""
    with opened(tmp_path, sync=True) as it:
        it.store.flush.is_interpreted = False
        if has_copies:
            replicate(it)
        assert it.store.flush.is_polled is not has_copies


def test_on_a_link_wait_false_is_acknowledged_at_once(tmp_path: Path) -> None:
    """But it becomes visible with the others."""
    with opened(tmp_path) as it:
        copies = replicate(it, is_visible_first=False)
        (append,) = it.put(message(wait_flush=False))
        assert (append.status, it.bodies()) == (PutStatus.PUT_OK, [])
        copies.move(end_of(append))
        assert it.bodies() == [b"hello"]


@pytest.mark.parametrize("is_visible_first", [True, False])
def test_a_failed_sync_refuses_what_it_covers(tmp_path: Path, is_visible_first: bool) -> None:
    """Messages that were flushed before still wait for their copies; the others are refused and never visible."""
    with opened(tmp_path, sync=True) as it:
        it.must_be_consistent = False
        copies = replicate(it, is_visible_first=is_visible_first)
        (good,) = it.put(message(b"good"))
        wait_flushed(it)

        def refuse(call: str, path: str) -> None:
            if call == "fdatasync" and "/commitlog/" in path:
                raise OSError(errno.EIO, "injected")

        it.disk.refuse = refuse
        (lost,) = it.put(message(b"lost"))
        statuses = settled(it, lost)
        wait_flushed(it)
        assert (good.status, statuses) == (PutStatus.PENDING, [PutStatus.SERVICE_NOT_AVAILABLE])
        copies.move(end_of(lost))
        assert (good.status, it.bodies()) == (PutStatus.PUT_OK, [b"good"])
        assert statuses == [PutStatus.SERVICE_NOT_AVAILABLE]


@pytest.mark.parametrize(
    ("is_visible_first", "status"),
    [(True, PutStatus.FLUSH_SLAVE_TIMEOUT), (False, PutStatus.SERVICE_NOT_AVAILABLE)],
)
@EVERY_FLUSH
def test_a_stop_ends_the_waiting(tmp_path: Path, sync: bool, is_visible_first: bool, status: PutStatus) -> None:
    """No producer waits for a copy that can be reported no more."""
    it = Opened(tmp_path, sync=sync)
    replicate(it, is_visible_first=is_visible_first)
    (append,) = it.put(message())
    statuses = settled(it, append)
    it.store.close()
    assert statuses == [status]


async def test_reports_of_one_iteration_are_handled_once(tmp_path: Path) -> None:
    """However often `moved` is called, the next iteration settles all that was copied, and `on_settled` is called once.
    A report that settles nothing costs no call at all."""
    it = Opened(tmp_path, loop=asyncio.get_running_loop())
    copies = replicate(it)
    calls: list[int] = []
    appends = [it.put(message())[0] for _ in range(3)]
    it.store.flush.on_settled = lambda: calls.append(sum(append.status is PutStatus.PUT_OK for append in appends))
    copies.move(end_of(appends[0]) - 1)
    await asyncio.sleep(0)
    assert calls == []
    for append in appends:
        copies.move(end_of(append))
        copies.moved()
    assert calls == []
    await asyncio.sleep(0.01)
    assert calls == [3]
    copies.moved()
    await asyncio.sleep(0.01)
    assert calls == [3]
    it.store.close()


@EVERY_FLUSH
def test_replicas_are_notified_of_written_and_of_flushed_bytes(tmp_path: Path, sync: bool) -> None:
    """`on_growth` reports the end of the log after each write, and after each sync."""
    with opened(tmp_path, sync=sync) as it:
        readable: list[int] = []
        flushed: list[int] = []
        it.store.flush.on_growth(readable.append, flushed.append)
        ends = [end_of(it.put(message())[0]) for _ in range(2)]
        assert (readable, it.store.readable_offset) == (ends, ends[-1])
        wait_flushed(it)
        assert flushed[-1] == ends[-1]
        it.store.flush.on_growth(None, None)
        it.put(message())
        assert readable == ends


def test_replicas_are_notified_before_the_own_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their copies take longer, and begin earlier so."""
    with opened(tmp_path, sync=True) as it:
        flusher = it.store.flush._flusher
        assert flusher is not None
        calls: list[str] = []
        submit = flusher.submit

        def note(target: Target) -> None:
            calls.append("flush")
            submit(target)

        monkeypatch.setattr(flusher, "submit", note)
        it.store.flush.on_growth(lambda _: calls.append("notify"), None)
        it.put(message())
        assert calls == ["notify", "flush"]
