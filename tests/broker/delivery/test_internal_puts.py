"""Messages that the broker itself puts: their statuses, and how few writes they take."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.delivery.internal_puts import InternalPuts
from skylarkmq.broker.store.log.append import PutStatus
from tests.harness.copies import TestCopies
from tests.harness.stores import TestDisk, message, opened
from tests.harness.waiting import until

LOG = "/commitlog/"


def log_writes(disk: TestDisk) -> int:
    return sum(LOG in path for path, _, _ in disk.writes)


async def test_a_put_returns_after_the_message_is_stored(tmp_path: Path) -> None:
    """One message, and its offset."""
    with opened(tmp_path) as it:
        puts = InternalPuts(it.store)
        append = message(b"one")
        assert await puts.put(append) is PutStatus.PUT_OK
        assert (append.queue_offset, it.bodies()) == (0, [b"one"])
        assert repr(puts) == "<InternalPuts puts=1 refused=0>"


async def test_puts_of_one_iteration_are_one_write(tmp_path: Path) -> None:
    """Twenty tasks, one write; each gets its own status."""
    with opened(tmp_path) as it:
        puts = InternalPuts(it.store)
        before = log_writes(it.disk)
        appends = [message(b"%d" % n) for n in range(20)]
        statuses = await asyncio.gather(*map(puts.put, appends))
        assert set(statuses) == {PutStatus.PUT_OK}
        assert log_writes(it.disk) == before + 1
        assert it.bodies() == [b"%d" % n for n in range(20)]


async def test_each_message_has_its_own_status(tmp_path: Path) -> None:
    """A message that the store rejects, or that was rejected before, does not prevent the others from being stored."""
    with opened(tmp_path) as it:
        puts = InternalPuts(it.store)
        refused = message(b"no", status=PutStatus.PROPERTIES_SIZE_EXCEEDED)
        appends = [message(b"a"), message(b"x", "L" * 300), refused, message(b"b")]
        assert await puts.put_each(appends) == [
            PutStatus.PUT_OK,
            PutStatus.MESSAGE_ILLEGAL,
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            PutStatus.PUT_OK,
        ]
        assert it.bodies() == [b"a", b"b"]
        assert (puts.statistics().puts, puts.statistics().refused) == (4, 2)


@pytest.mark.parametrize("waits", [True, False])
async def test_under_sync_flush_a_put_waits_for_the_flush(tmp_path: Path, *, waits: bool) -> None:
    """Unless its `wait_flush` is off."""
    with opened(tmp_path, sync=True, loop=asyncio.get_running_loop()) as it:
        puts = InternalPuts(it.store)
        it.disk.syncs.clear()
        task = asyncio.create_task(puts.put(message(b"one", wait_flush=waits)))
        await until(lambda: it.store.flush.lag > 0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert task.done() is not waits
        it.disk.syncs.set()
        assert await task is PutStatus.PUT_OK


@pytest.mark.parametrize("refusal", [None, PutStatus.SLAVE_NOT_AVAILABLE])
async def test_a_put_waits_for_its_copy(tmp_path: Path, refusal: PutStatus | None) -> None:
    """A message whose copy is missing counts as stored."""
    with opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        puts, copies = InternalPuts(it.store), TestCopies()
        copies.refusal = refusal
        it.store.flush.replicate(copies)
        put = asyncio.ensure_future(puts.put(message(b"one")))
        await until(lambda: it.bodies() == [b"one"])
        it.store.step(it.clock.now_ms + copies.timeout_ms)
        assert await put is (refusal or PutStatus.FLUSH_SLAVE_TIMEOUT)
        assert (puts.statistics().puts, puts.statistics().refused) == (1, 0)


async def test_a_canceled_put_does_not_affect_others(tmp_path: Path) -> None:
    """The other puts of the iteration are stored."""
    with opened(tmp_path) as it:
        puts = InternalPuts(it.store)
        first = asyncio.create_task(puts.put(message(b"one")))
        second = asyncio.create_task(puts.put(message(b"two")))
        await asyncio.sleep(0)
        first.cancel()
        assert await second is PutStatus.PUT_OK
        assert it.bodies() == [b"one", b"two"]


async def test_a_read_in_between_has_its_own_store_time(tmp_path: Path) -> None:
    """Puts wait for the end of the iteration, so the batch of a read never begins before its messages were sent."""
    with opened(tmp_path) as it:
        puts = InternalPuts(it.store)
        task = asyncio.create_task(puts.put(message(b"one")))
        await asyncio.sleep(0)
        it.clock.now_ms += 7
        sent = message(b"two")
        it.store.put(sent)
        it.store.commit()
        assert sent.store_timestamp == it.clock.now_ms
        assert await task is PutStatus.PUT_OK
        assert it.bodies() == [b"two", b"one"]


async def test_a_failing_put_does_not_affect_others(tmp_path: Path) -> None:
    """The other puts of the iteration succeed."""
    with opened(tmp_path) as it:
        puts = InternalPuts(it.store)
        nothing: Any = None
        results = await asyncio.gather(puts.put(message(b"one")), puts.put(message(nothing)), return_exceptions=True)
        assert results[0] is PutStatus.PUT_OK
        assert isinstance(results[1], TypeError)
        assert it.bodies() == [b"one"]
