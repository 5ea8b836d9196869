"""All levels together: their wake-ups, their turns, starts and stops. Tests control the clock."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.delivery.delay.delivery import AFTER_FAILURE_MS, DelayDelivery
from skylarkmq.broker.delivery.delay.level import DelayLevel
from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.protocol.record import Record
from tests.harness.cold_files import ColdFiles
from tests.harness.delayed import DELAYS_MS, delayed, offsets_of
from tests.harness.stores import Opened, opened, records_of
from tests.harness.timers import SteppedLoop
from tests.harness.waiting import until


class Running:
    """A delivery over a store, in a loop that is stepped."""

    def __init__(self, it: Opened, offsets: DelayOffsetTable | None = None) -> None:
        self.it = it
        self.offsets = offsets or offsets_of(it)
        self.delivery = DelayDelivery(it.store, self.offsets, DELAYS_MS, it.clock)
        self.loop = SteppedLoop(it.clock)
        self.delivery.start(self.loop)

    def put(self, *levels: int) -> None:
        """Put a message to each of these levels, and notify the delivery."""
        for level in levels:
            self.it.put(delayed(b"%d" % level, level))
            queue_id, end, tags_codes = self.it.arrivals[-1][1:]
            self.delivery.arrived(queue_id, end, tags_codes)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with opened(
        tmp_path,
        message_delay_level="1s 5s 10s",
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20_000,
    ) as it:
        yield Running(it)


def test_each_level_delivers_at_its_time(running: Running) -> None:
    """To the millisecond, whatever the other levels do."""
    begin = running.it.clock.now_ms
    running.put(3, 1, 2, 1)
    running.loop.pass_ms(999)
    assert running.it.bodies() == []
    running.loop.pass_ms(1)
    assert running.it.bodies() == [b"1", b"1"]
    running.loop.pass_ms(9_000)
    times = {bytes(record.body): record.store_timestamp - begin for record in all_records(running.it)}
    assert times == {b"1": 1_000, b"2": 5_000, b"3": 10_000}
    assert running.delivery.statistics().delivered == 4
    assert repr(running.delivery) == "<DelayDelivery levels=3 delivered=4>"


def all_records(it: Opened) -> Iterator[Record]:
    offset = 0
    while (found := it.store.get("T", 0, offset, 32)).regions:
        yield from records_of(found)
        offset = found.next_begin_offset


def test_levels_without_due_messages_do_not_run(running: Running) -> None:
    """No level runs before its message is due, or without a message: there is no polling."""
    running.loop.pass_ms(5_000)
    assert (running.loop.iterations, running.loop.pending()) == (0, 0)
    running.put(1)
    running.loop.pass_ms(999)
    assert running.loop.iterations == 0
    running.loop.pass_ms(100)
    assert (running.loop.iterations, running.loop.pending()) == (1, 0)


def test_a_stream_is_delivered_in_few_iterations(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two messages each millisecond for half a second: at most PACE_MS late, with one iteration per pace."""
    monkeypatch.setattr("skylarkmq.broker.delivery.delay.level.SLICE_S", 60)  # so that a slow machine does not matter
    for _ in range(500):
        running.put(1, 1)
        running.loop.pass_ms(1)
    running.loop.pass_ms(1_010)
    statistics = running.delivery.statistics()
    assert (statistics.delivered, statistics.waiting) == (1_000, 0)
    assert running.loop.iterations <= 55
    assert sum(running.delivery.lateness.counts[:3]) == 1_000  # within 10 ms


def test_messages_that_waited_at_the_start_are_delivered(tmp_path: Path) -> None:
    """Messages that came due meanwhile, and later ones; delivery continues where the last process stopped."""
    with opened(tmp_path) as it:
        it.put(*(delayed(b"%d" % n) for n in range(3)), delayed(b"later", 2))
        it.clock.now_ms += 2_000
        offsets = offsets_of(it)
        offsets.load(b'{"offsetTable":{1:1}}')
        running = Running(it, offsets)
        running.loop.pass_ms(1)
        assert it.bodies() == [b"1", b"2"]
        running.loop.pass_ms(3_000)
        assert it.bodies() == [b"1", b"2", b"later"]


def test_levels_run_one_slice_in_turn(running: Running) -> None:
    """A level with many messages does not delay another: each gets a slice."""
    running.it.put(*(delayed(b"many", 1) for _ in range(300)))
    running.it.put(delayed(b"one", 2))
    running.it.clock.now_ms += 10_000
    running.delivery.start(running.loop)
    running.loop.run_iteration()
    assert running.it.bodies().count(b"one") == 1
    assert len(running.it.bodies()) <= 1 + 3 * 32
    running.loop.pass_ms(1)
    assert len(running.it.bodies()) == 301


def test_a_late_level_runs_more_slices_per_iteration(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four slices instead of one, until its first message is hardly late. Only the number of messages ends a slice."""
    monkeypatch.setattr("skylarkmq.broker.delivery.delay.level.SLICE_S", 60.0)
    running.it.put(*(delayed(b"many", 1) for _ in range(300)))
    running.it.clock.now_ms += 1_010
    running.delivery.start(running.loop)
    running.loop.run_iteration()
    assert running.delivery.statistics().delivered <= 32
    running.it.clock.now_ms += 100
    before = running.delivery.statistics().delivered
    running.loop.run_iteration()
    assert 64 < running.delivery.statistics().delivered - before <= 128


def test_a_level_that_is_not_in_the_table_is_delivered(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once."""
    running.put(7, 7)
    assert caplog.text.count("level not in messageDelayLevel") == 1
    running.loop.pass_ms(10_000)  # the store gave it the longest existing delay
    assert running.it.bodies() == [b"7", b"7"]
    assert running.delivery.progress() == {7: (2, 2)}


def test_a_clock_set_forward_is_noticed(running: Running) -> None:
    """No level sleeps through it."""
    running.put(3)
    running.it.clock.now_ms += 9_500
    running.loop.pass_ms(999)
    assert running.it.bodies() == []
    running.loop.pass_ms(1)
    assert running.it.bodies() == [b"3"]


def test_a_failing_level_continues_later(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with its traceback; the others continue meanwhile."""
    step = DelayLevel.step

    def fail_once(level: DelayLevel, now_ms: int) -> int | None:
        if level.number == 1:
            monkeypatch.setattr(DelayLevel, "step", step)
            raise OSError(5, "bad disk")
        return step(level, now_ms)

    monkeypatch.setattr(DelayLevel, "step", fail_once)
    running.put(1, 2)
    running.loop.pass_ms(5_000)
    assert running.it.bodies() == [b"2"]
    assert "bad disk" in caplog.text
    running.loop.pass_ms(1_000 + AFTER_FAILURE_MS - 5_000)
    assert running.it.bodies() == [b"2", b"1"]


async def test_after_a_stop_nothing_is_delivered(tmp_path: Path) -> None:
    """Delivered messages count as delivered, because they are on disk; arrivals are left for the next start."""
    with opened(tmp_path, loop=asyncio.get_running_loop(), flush_interval_commit_log=600_000) as it:
        running = Running(it)
        running.put(1, 2)
        running.loop.pass_ms(1_000)
        running.offsets.settle(it.store.flushed_offset)
        assert running.offsets.statistics().settled == {}
        await running.delivery.stop()
        assert running.offsets.statistics().settled == {1: 1}
        running.put(1)
        running.loop.pass_ms(9_000)
        assert (it.bodies(), running.loop.pending()) == ([b"1"], 0)
        again = Running(it, running.offsets)
        again.loop.pass_ms(1)
        assert sorted(it.bodies()) == [b"1", b"1", b"2"]


async def test_a_stop_does_not_wait_for_a_hanging_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The delivered messages do not count as delivered then, and are delivered again."""
    monkeypatch.setattr("skylarkmq.broker.delivery.delay.delivery.FLUSH_LIMIT_S", 0.01)
    with opened(tmp_path, loop=asyncio.get_running_loop(), flush_interval_commit_log=600_000) as it:
        running = Running(it)
        running.put(1)
        it.disk.syncs.clear()
        running.loop.pass_ms(1_000)
        await running.delivery.stop()
        assert running.offsets.statistics().settled == {}
        assert "log not flushed in time" in caplog.text


async def test_a_cold_read_does_not_delay_other_levels(tmp_path: Path) -> None:
    """A thread reads the bytes, and the level continues."""
    with opened(tmp_path) as it:
        it.put(delayed(b"x" * 40_000, 1), delayed(b"y" * 40_000, 1))
        it.put(delayed(b"warm", 2))
    segment, _ = sorted((tmp_path / "commitlog").iterdir())[:2]
    with ColdFiles() as cold, opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        it.clock.now_ms += 20_000
        cold.gate.clear()
        cold.freeze(segment)
        running = Running(it)
        await until(lambda: running.loop.run_iteration() or it.bodies() == [b"warm"])
        cold.gate.set()
        await until(lambda: running.loop.run_iteration() or len(it.bodies()) == 3)
        assert not any(in_loop for _, in_loop in cold.waits)
        await running.delivery.stop()
