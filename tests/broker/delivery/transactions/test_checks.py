"""The background work of transactions: starts, scheduled rounds, stops, and failures."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.broker.delivery.transactions import checks
from skylarkmq.broker.delivery.transactions.progress import GROUP
from tests.harness.cold_files import ColdFiles
from tests.harness.stores import Opened, opened
from tests.harness.transacted import HALF, OP, Transacted, received_checks


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Opened]:
    with opened(tmp_path, loop=asyncio.get_running_loop()) as store:
        yield store


async def started(parts: Transacted) -> Transacted:
    parts.checks.start(asyncio.get_running_loop())
    await parts.transactions.loaded.wait()
    return parts


async def advance(parts: Transacted, ms: int) -> None:
    """Advance the clock, and complete the work that begins."""
    parts.it.clock.now_ms += ms
    parts.checks.step(parts.it.clock.now_ms)
    task = parts.checks._task
    assert task is not None
    await task


async def test_rounds_begin_at_their_interval(it: Opened) -> None:
    """The first one begins an interval after the start; a changed interval applies at once."""
    parts = await started(Transacted(it, is_loaded=False))
    producer = parts.producer()
    parts.send()
    counts = []
    for ms in (29_999, 1, 29_999, 1):
        await advance(parts, ms)
        counts.append(len(received_checks(producer)))
    assert counts == [0, 1, 0, 1]
    parts.transactions.configure(
        parts.config.__class__(
            broker_ip="", broker_name="b", store_host=parts.config.store_host, transaction_check_interval=1_000
        )
    )
    await advance(parts, 1_000)
    assert len(received_checks(producer)) == 1
    assert parts.checks.statistics().asked == 3
    assert repr(parts.checks) == "<TransactionChecks rounds=3 asked=3>"
    await parts.checks.stop()


async def test_a_stop_saves_what_the_next_start_needs(it: Opened) -> None:
    """The current offsets, and the log on disk."""
    parts = await started(Transacted(it, is_loaded=False))
    halves = [parts.send(b"%d" % n) for n in range(3)]
    parts.end(halves[0])
    parts.end(halves[1])
    await parts.checks.stop()
    assert it.store.flush.lag == 0
    assert parts.offsets.committed(GROUP, HALF, 0) == 2
    again = await started(Transacted(it, parts.offsets, is_loaded=False))
    assert again.open_offsets()[-1:] == [2]
    again.end(halves[2])
    await again.checks.stop()
    assert (parts.offsets.committed(GROUP, HALF, 0), parts.offsets.committed(GROUP, OP, 0)) == (3, 3)


async def test_no_checks_are_sent_after_a_stop(it: Opened) -> None:
    """Even if `step` is still called."""
    parts = await started(Transacted(it, is_loaded=False))
    producer = parts.producer()
    parts.send()
    await parts.checks.stop()
    it.clock.now_ms += 60_000
    parts.checks.step(it.clock.now_ms)
    await asyncio.sleep(0)
    assert received_checks(producer) == []


async def test_failed_work_is_repeated(
    it: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The load as well; failures are logged with their traceback."""
    parts = Transacted(it, is_loaded=False)
    parts.send()

    class Broken:
        def __init__(self, *_: object) -> None:
            raise OSError(5, "bad disk")

    with monkeypatch.context() as patched:
        patched.setattr(checks, "Loading", Broken)
        parts.checks.start(asyncio.get_running_loop())
        await advance(parts, 0)
    assert "transactions cannot be checked" in caplog.text
    assert not parts.transactions.loaded.is_set()
    await advance(parts, checks.RETRY_MS - 1)
    assert not parts.transactions.loaded.is_set()
    await advance(parts, 1)
    assert parts.transactions.loaded.is_set()
    await parts.checks.stop()


async def test_cold_half_messages_are_fetched(tmp_path: Path) -> None:
    """By a thread: the loop waits for no disk, neither at a start nor in a round."""
    loop = asyncio.get_running_loop()
    with opened(tmp_path, loop=loop) as it:
        parts = Transacted(it)
        for n in range(40):
            parts.send(b"%d" % n)
    with opened(tmp_path, loop=loop) as it, ColdFiles() as cold:
        cold.freeze(*(tmp_path / "commitlog").iterdir(), *(tmp_path / "consumequeue" / HALF / "0").iterdir())
        parts = await started(Transacted(it, is_loaded=False))
        producer = parts.producer()
        assert len(parts.open_offsets()) == 40
        await advance(parts, 30_000)
        assert len(received_checks(producer)) == 40
        assert cold.waits
        assert not any(is_loop for _, is_loop in cold.waits)
        await parts.checks.stop()
