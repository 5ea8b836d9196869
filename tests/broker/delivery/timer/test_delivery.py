"""Timers of a store, stepped by hand: when they are delivered, what delays them, and what a restart keeps."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.delivery.dropped_entries import MOST_LOGGED
from skylarkmq.broker.delivery.timer.timers import Timers
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.timer.files import RETRY_MS as RETRY_WRITE_MS
from skylarkmq.protocol.codes import ResponseCode, SystemTopic
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import decode_properties
from skylarkmq.protocol.timers import DEQUEUE_MS, ENQUEUE_MS, ROLL_TIMES, TimerCheck
from tests.harness.cold_files import ColdFiles
from tests.harness.stores import Opened, message, opened, records_of
from tests.harness.timed import WHEEL_SLOTS, deletion, stop, timed, timers_of
from tests.harness.timers import SteppedLoop
from tests.harness.waiting import until

BEGIN = 1_700_000_000_000


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Opened]:
    with opened(tmp_path, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000) as it:
        yield it


def loaded(it: Opened, **fields: Any) -> Timers:
    timers = timers_of(it, **fields)
    timers.delivery.load()
    return timers


def run(it: Opened, timers: Timers, until_ms: int) -> None:
    """Step until a time, and advance the clock whenever nothing is due."""
    while True:
        next_ms = timers.delivery.step(it.clock.now_ms)
        if next_ms is None or next_ms > until_ms:
            it.clock.now_ms = max(until_ms, it.clock.now_ms)
            return
        it.clock.now_ms = max(next_ms, it.clock.now_ms)


def test_a_slot_is_delivered_when_its_step_is_over(it: Opened) -> None:
    """Not a millisecond before; all messages of the slot in the order of their arrival."""
    timers = loaded(it)
    it.put(*(timed(b"%d" % n, BEGIN + 4_000) for n in range(100)), timed(b"later", BEGIN + 5_000))
    run(it, timers, BEGIN + 4_999)
    assert it.bodies() == []
    run(it, timers, BEGIN + 5_000)
    assert it.bodies() == [b"%d" % n for n in range(100)]
    run(it, timers, BEGIN + 6_000)
    assert it.bodies()[-1] == b"later"
    assert timers.delivery.step(it.clock.now_ms) is None
    slots = timers.statistics().slots
    assert (slots.delivered, slots.dropped, timers.files.wheel.waiting) == (101, 0, 0)
    stop(it, timers)


def test_a_delivered_message_equals_the_sent_one(it: Opened) -> None:
    """Its properties get the times of its wait; nothing else has changed."""
    timers = loaded(it)
    fields: dict[str, Any] = {"flag": 7, "sys_flag": 1, "born_timestamp": 5, "reconsume_times": 3}
    (sent,) = it.put(timed(b"one", BEGIN + 1_000, queue_id=3, more={"TAGS": "TagA"}, **fields))
    run(it, timers, BEGIN + 2_000)
    (record,) = records_of(it.store.get("T", 3, 0, 32))
    assert (record.topic, record.queue_id, bytes(record.body), record.flag, record.sys_flag) == ("T", 3, b"one", 7, 1)
    assert (record.born_timestamp, record.reconsume_times) == (5, 3)
    added = {ENQUEUE_MS: str(BEGIN), DEQUEUE_MS: str(BEGIN + 2_000)}
    assert decode_properties(record.properties.decode()) == decode_properties(sent.properties.decode()) | added
    assert it.arrivals[-1] == ("T", 3, 1, (2598919,))
    stop(it, timers)


def test_a_deletion_drops_the_message_of_its_key(it: Opened) -> None:
    """At any position in their slot, and no message of another topic or of another slot."""
    timers = loaded(it)
    out = BEGIN + 3_000
    it.put(deletion(out, "a"), timed(b"gone", out, key="a"), timed(b"too", out, key="b"), deletion(out, "b"))
    it.put(timed(b"stays", out, "U", key="a"), timed(b"later", out + 1_000, key="a"))
    run(it, timers, out + 2_000)
    assert (it.bodies(), it.bodies("U")) == ([b"later"], [b"stays"])
    assert timers.statistics().slots.deleted == 2
    assert timers.counts.statistics().counts == {"T": 0, "U": 0}
    stop(it, timers)


def test_a_message_beyond_the_window_is_rolled(it: Opened) -> None:
    """It returns to the timer topic at the end of the window, or at half if too little remains; it is on time."""
    timers = loaded(it, window_slots=30)
    it.put(timed(b"far", BEGIN + 70_000), timed(b"near", BEGIN + 31_000), deletion(BEGIN + 70_000, "k"))
    it.put(timed(b"gone", BEGIN + 70_000, key="k"))
    run(it, timers, BEGIN + 1)
    assert {time_ms - BEGIN for time_ms, _ in timers.files.wheel.slots()} == {30_000, 15_000}
    run(it, timers, BEGIN + 70_999)
    assert it.bodies() == [b"near"]
    run(it, timers, BEGIN + 71_000)
    assert it.bodies() == [b"near", b"far"]
    (far,) = records_of(it.store.get("T", 0, 1, 1))
    assert decode_properties(far.properties.decode())[ROLL_TIMES] == "2"
    slots = timers.statistics().slots
    assert (slots.delivered, slots.deleted, slots.dropped) == (2, 1, 0)
    stop(it, timers)


def test_a_late_message_waits_for_the_next_slot(it: Opened) -> None:
    """Its own slot is over: it is delivered one step later, and not lost."""
    timers = loaded(it)
    it.put(timed(b"one", BEGIN))
    run(it, timers, BEGIN + 1_000)
    it.put(timed(b"late", BEGIN))
    run(it, timers, BEGIN + 1_999)
    assert it.bodies() == [b"one"]
    run(it, timers, BEGIN + 2_000)
    assert it.bodies() == [b"one", b"late"]
    stop(it, timers)


def test_nothing_is_written_before_the_first_message(it: Opened) -> None:
    """No wheel, no log, no check file."""
    timers = loaded(it)
    run(it, timers, BEGIN + 10_000)
    timers.step(it.clock.now_ms)
    stop(it, timers)
    assert not list(it.root.rglob("*timer*"))


def test_after_a_stop_each_message_is_delivered_once(it: Opened) -> None:
    """Messages of a slot that was over meanwhile are delivered at once, and deletions take effect."""
    timers = loaded(it)
    it.put(timed(b"before", BEGIN + 1_000), timed(b"behind", BEGIN + 5_000), timed(b"gone", BEGIN + 5_000, key="k"))
    run(it, timers, BEGIN + 3_000)
    assert it.bodies() == [b"before"]
    stop(it, timers)
    it.put(deletion(BEGIN + 5_000, "k"))
    it.clock.now_ms = BEGIN + 60_000
    timers = loaded(it)
    assert timers.counts.statistics().counts == {"T": 2}
    run(it, timers, BEGIN + 60_000)
    assert it.bodies() == [b"before", b"behind"]
    stop(it, timers)
    check = loaded(it).delivery.check()
    assert (check.read_ms, check.queue_offset) == (BEGIN + 6_000, 4)


def test_invalid_messages_are_dropped(it: Opened) -> None:
    """Without a time or a destination, for topics that get no deliveries, and of a deleted topic."""
    timers = loaded(it)
    it.put(message(b"none", SystemTopic.TIMER, 0), timed(b"loop", BEGIN, SystemTopic.TIMER))
    it.put(timed(b"half", BEGIN, SystemTopic.TRANSACTION_HALF), timed(b"x", BEGIN, more={"REAL_QID": "x"}))
    it.put(timed(b"gone", BEGIN, "Gone"), timed(b"good", BEGIN))
    asyncio.run(it.store.delete_topic("Gone", may_have_delayed=True))
    run(it, timers, BEGIN + 5_000)
    assert it.bodies() == [b"good"]
    statistics = timers.statistics()
    assert (statistics.enqueue.invalid, statistics.slots.dropped, statistics.slots.delivered) == (4, 1, 1)
    stop(it, timers)


BAD: list[dict[str, Any]] = [
    {"more": {"TIMER_OUT_MS": "9" * 5_000}},
    {"more": {"TIMER_OUT_MS": str(2**63)}},
    {"more": {"TIMER_OUT_MS": "-1"}},
    {"more": {"TIMER_OUT_MS": "٣"}},
    {"more": {"REAL_QID": str(2**31)}},
    {"more": {"REAL_QID": "9" * 5_000}},
    *({"topic": topic} for topic in ("../../x", "a/b", ".", "a\0b", "T" * 256, "RMQ_SYS_TRANS_OP_HALF_TOPIC")),
]


def test_after_a_restart_bad_entries_do_not_stop_delivery(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In a store that another version filled with them, the messages between them are delivered once, on time."""
    bad = [timed(b"bad", BEGIN + 1_000, **fields) for fields in BAD]
    sizes: Any = {"mapped_file_size_commit_log": 1 << 20}
    with opened(tmp_path, **sizes) as it:
        it.put(timed(b"first", BEGIN + 1_000), *bad, timed(b"last", BEGIN + 1_000), timed(b"later", BEGIN + 9_000))
    with opened(tmp_path, **sizes) as it:
        timers = loaded(it)
        run(it, timers, BEGIN + 2_000)
        assert it.bodies() == [b"first", b"last"]
        assert timers.statistics().enqueue.invalid == len(bad)
        assert timers.counts.statistics().counts == {"T": 1}
        stop(it, timers)
    with opened(tmp_path, **sizes) as it:
        timers = loaded(it)
        run(it, timers, BEGIN + 10_000)
        assert it.bodies() == [b"first", b"last", b"later"]
        assert timers.statistics().enqueue.invalid == 0
        stop(it, timers)
    lines = [record for record in caplog.records if "timer message dropped" in record.message]
    assert len(lines) == MOST_LOGGED
    assert max(len(record.message) for record in lines) < 1_000


def test_a_time_in_the_distant_past_does_not_use_the_slot_of_a_later_one(it: Opened) -> None:
    """Times that are a revolution of the wheel apart share a position, so such a late message is put into a younger
    slot and delivered at once, and so is one whose age would not fit into a unit."""
    timers = loaded(it)
    run(it, timers, now_ms := BEGIN + 2_000_000)
    it.put(timed(b"waits", now_ms + 100_000))
    run(it, timers, now_ms)
    it.put(timed(b"late", now_ms + 100_000 - WHEEL_SLOTS * 1_000), timed(b"zero", 0))
    run(it, timers, now_ms + 2_000)
    assert sorted(it.bodies()) == [b"late", b"zero"]
    run(it, timers, now_ms + 101_000)
    assert sorted(it.bodies()) == [b"late", b"waits", b"zero"]
    stop(it, timers)


class Running:
    """Timers over a store, in a loop that is stepped."""

    def __init__(self, it: Opened) -> None:
        self.it = it
        self.timers = loaded(it)
        self.loop = SteppedLoop(it.clock)
        self.timers.delivery.start(self.loop)

    def put(self, *appends: Append) -> None:
        """Put messages in one iteration, and notify the delivery."""
        self.it.put(*appends)
        self.timers.arrived(*self.it.arrivals[-1][1:])


def test_delivery_does_not_run_without_due_messages(it: Opened) -> None:
    """There is no polling; an arrival wakes the delivery, and a timer does when the slot is over."""
    running = Running(it)
    running.loop.pass_ms(3_000)
    assert (running.loop.iterations, running.loop.pending()) == (1, 0)
    running.put(timed(b"one", BEGIN + 4_000))
    running.put(timed(b"two", BEGIN + 4_000))
    running.loop.pass_ms(1_000)
    assert running.loop.iterations <= 5
    running.loop.pass_ms(999)
    assert it.bodies() == []
    running.loop.pass_ms(1)
    assert it.bodies() == [b"one", b"two"]
    turns = running.loop.iterations
    running.loop.pass_ms(5_000)
    assert (running.loop.iterations, running.loop.pending()) == (turns, 0)
    stop(it, running.timers)


def test_a_put_that_the_store_rejects_is_repeated(it: Opened) -> None:
    """No message is lost or delivered twice; the delay is reported."""
    running = Running(it)
    running.put(*(timed(b"%d" % n, BEGIN) for n in range(40)))
    running.loop.pass_ms(900)

    def refuse(call: str, path: str) -> None:
        if call == "pwrite" and "/commitlog/" in path:
            raise OSError(errno.ENOSPC, "no space")

    it.disk.refuse = refuse
    running.loop.pass_ms(2_000)
    assert it.bodies() == []
    assert running.timers.statistics().behind_ms == 1_900
    it.disk.refuse = lambda call, path: None
    it.store.step(it.clock.now_ms)
    running.loop.pass_ms(300)
    assert it.bodies() == [b"%d" % n for n in range(40)]
    slots = running.timers.statistics().slots
    assert (slots.delivered, slots.dropped, slots.refused > 0) == (40, 0, True)
    stop(it, running.timers)


def test_a_stop_finishes_the_slot_although_the_disk_is_behind(it: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop in the middle of a slot waits for the store: the next start delivers no message a second time."""
    timers = loaded(it)
    bodies = [b"%d" % n for n in range(100)]
    it.put(*(timed(body, BEGIN + 1_000) for body in bodies))
    it.clock.now_ms = BEGIN + 2_000
    while not it.bodies():
        timers.delivery.step(it.clock.now_ms)
    assert len(it.bodies()) < 100
    behind = iter([True, True])
    monkeypatch.setattr(type(it.store.flush), "is_behind", property(lambda _: next(behind, False)))
    stop(it, timers)
    assert it.bodies() == bodies
    again = loaded(it)
    run(it, again, BEGIN + 10_000)
    assert it.bodies() == bodies
    stop(it, again)


def test_a_failed_write_to_the_timer_log_is_repeated(it: Opened) -> None:
    """The message is put on the wheel later; meanwhile others are rejected, with the reason."""
    running = Running(it)
    entry = running.timers.admission

    def refuse(call: str, path: str) -> None:
        if "/timerlog/" in path:
            raise OSError(errno.ENOSPC, "no space")

    it.disk.refuse = refuse
    running.put(timed(b"one", BEGIN + 1_000))
    running.loop.pass_ms(5_000)
    assert (it.bodies(), running.timers.files.wheel.waiting) == ([], 0)
    with pytest.raises(RequestError, match=r"not accepted at present.*no space") as refusal:
        entry.defer(message(b"two"), {"TIMER_DELAY_SEC": "1"}, it.clock.now_ms)
    assert refusal.value.code is ResponseCode.SERVICE_NOT_AVAILABLE
    it.disk.refuse = lambda call, path: None
    running.loop.pass_ms(RETRY_WRITE_MS)
    assert (it.bodies(), running.timers.files.problem) == ([b"one"], "")
    assert entry.defer(message(b"two"), {"TIMER_DELAY_SEC": "1"}, it.clock.now_ms) is None
    stop(it, running.timers)


async def test_cold_messages_and_units_are_fetched(tmp_path: Path) -> None:
    """Threads fetch them; the loop waits for no disk."""
    with opened(tmp_path) as it:
        timers = loaded(it)
        it.put(*(timed(b"%d" % n + b"x" * 2_000, BEGIN + 1_000) for n in range(40)))
        while timers.files.wheel.waiting < 40:
            timers.delivery.step(it.clock.now_ms)
        timers.files.finish(it.clock.now_ms, timers.delivery.check())
    paths = [*(tmp_path / "commitlog").iterdir(), *(tmp_path / "timerlog").iterdir()]
    with ColdFiles() as cold, opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        timers = loaded(it)
        timers.files.reads.start(asyncio.get_running_loop())
        it.clock.now_ms += 5_000
        cold.freeze(*paths)
        loop = SteppedLoop(it.clock)
        timers.delivery.start(loop)
        await until(lambda: loop.run_iteration() or (it.store.max_offset("T", 0) or 0) == 40)
        assert cold.waits
        assert not any(in_loop for _, in_loop in cold.waits)
        await timers.delivery.stop()


async def test_a_slave_does_not_put_a_rolled_message_on_its_wheel_again(it: Opened) -> None:
    """Its master has rolled it, and the copy is in the topic: the slot of the older record is delivered there."""
    timers = loaded(it, window_slots=100)
    it.put(timed(b"far", BEGIN + 300_000))
    it.clock.now_ms = BEGIN + 150_000
    it.put(timed(b"far", BEGIN + 300_000))
    check = TimerCheck(read_ms=BEGIN + 120_000, master_queue_offset=2)
    timers.follow(check)
    await until(lambda: timers.delivery.check().read_ms == check.read_ms)
    assert [slot.messages for _, slot in timers.files.wheel.slots()] == [1]
    assert it.bodies() == []
    timers.delivery.close()
