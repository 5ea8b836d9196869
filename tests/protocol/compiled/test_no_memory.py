"""A failed allocation leaves a compiled module's objects unchanged, or one message further. It never leaves a length
beyond the allocated memory.

`_testcapi.set_nomemory(n, n + 1)` makes allocation number n fail, for every n that an operation reaches. It makes
allocations of all threads fail. So the checks run in a process that has no other thread: in a worker of pytest-xdist,
the thread that receives the names of tests would end.
"""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import UNIT, index_keys
from skylarkmq.protocol.record import Record, iterate

record: Any = compiled.load("record")
memory: Any = pytest.importorskip("_testcapi")
pytestmark = pytest.mark.skipif(
    record is None or not hasattr(memory, "set_nomemory"), reason="no compiled modules, or no failing allocator"
)

MOST_ALLOCATIONS = 200


def failing(call: Callable[[], object]) -> Iterator[bool]:
    """Call repeatedly, with the first, second ... allocation failing; yield whether the call failed. End after the
    first call that needs fewer allocations."""
    for number in range(MOST_ALLOCATIONS):
        memory.set_nomemory(number, number + 1)
        try:
            call()
            is_failed = False
        except MemoryError:
            is_failed = True
        finally:
            memory.remove_mem_hooks()
        yield is_failed
        if not is_failed:
            return
    raise AssertionError(f"more than {MOST_ALLOCATIONS} allocations")


def append_of(number: int, queue: Any) -> Any:
    properties = f"UNIQ_KEY\x01A{number}\x02".encode()
    append = record.Append("T", 0, b"body", properties, number, 0, 0, 0, bytes(8), keys=[b"A%d" % number])
    append.physical_offset, append.queue, append.queue_offset, append.size = 1000 * number, queue, number, 100
    append.store_timestamp = number
    return append


def index_entries_grow_completely_or_not_at_all() -> None:
    """The three columns are resized one by one; existing entries stay, and later ones are added within the capacity."""
    entries = compiled.load("index").IndexEntries(index_keys)
    appends = [append_of(number, None) for number in range(20_000)]
    at = failures = 0
    while at < len(appends):
        one = appends[at : at + 1]
        for is_failed in failing(lambda: entries.add(one)):  # noqa: B023 (called at once)
            failures += is_failed
            assert len(entries) == at + (not is_failed)
        at += 1
    assert failures > 5
    offsets = np.frombuffer(entries.columns(1 << 20)[1], np.int64)
    assert offsets.tolist() == [append.physical_offset for append in appends]
    for _ in failing(lambda: entries.drop(7)):
        pass
    assert np.frombuffer(entries.columns(1)[1], np.int64).tolist() == [7000]
    assert len(entries) == len(appends) - 7


def counted_units_are_stored() -> None:
    """A unit for which memory could not be allocated is not counted."""
    dispatch, counts = compiled.load("dispatch"), compiled.load("counts")
    queue = compiled.load("queue_tail").QueueTail("T", 0)
    queue.traffic = Histogram((100, 1_000))
    failures = 0
    for number in range(2_000):
        one = [append_of(number, queue)]
        gather = lambda: dispatch.gather_units(one, lambda append: 0, lambda queue: None)  # noqa: B023, E731
        for is_failed in failing(gather):
            failures += is_failed
            if not is_failed:
                break
            assert queue.pending_next == len(queue.pending) // 20
    assert failures > 2
    assert [code for _, _, code in UNIT.iter_unpack(queue.pending)] == list(range(2_000))
    waiting: dict[Any, None] = {}
    assert dispatch.publish(1 << 20, [queue], waiting, (), None) == (2_000, [])
    counts.note_units(queue)
    assert queue.traffic.counts == [2_000, 0, 0]


def a_batch_has_a_record_for_each_append() -> None:
    """A message is added together with its record, or not at all."""
    record.set_initial_status(PutStatus.PENDING)
    queue = compiled.load("queue_tail").QueueTail("T", 0)
    batch = record.RecordBatch({("T", 0): queue}, bytes(8), lambda append: None)
    batch.unchecked_size = 1 << 30
    batch.open(0, 1 << 40, 1)
    failures = 0
    for number in range(200):
        append = record.Append("T", 0, bytes(5_000), b"", number, 0, 0, 0, bytes(8))
        for is_failed in failing(lambda: batch.put(append)):  # noqa: B023 (called at once)
            failures += is_failed
            assert len(batch.appends) == queue.next_offset == number + (not is_failed)
    assert failures > 2
    with batch.data() as view:
        found = [one for one in iterate(bytes(view)) if isinstance(one, Record)]
    assert [one.queue_offset for one in found] == list(range(200))


CHECKS = (index_entries_grow_completely_or_not_at_all, counted_units_are_stored, a_batch_has_a_record_for_each_append)


@pytest.mark.daemon
@pytest.mark.parametrize("check", CHECKS)
def test_without_memory(check: Callable[[], None]) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        process.submit(check).result()
