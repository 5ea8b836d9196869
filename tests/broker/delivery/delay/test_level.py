"""One delay level, stepped by hand: when it delivers, what, and how it handles failures."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.delivery.delay.level import PACE_MS, RETRY_MS, DelayLevel
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import SystemTopic
from tests.harness.delayed import delayed, level_of, offsets_of
from tests.harness.stores import BORN_HOST, Opened, message, opened, records_of

SCHEDULE = SystemTopic.SCHEDULE


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Opened]:
    with opened(tmp_path) as it:
        yield it


@pytest.fixture(autouse=True)
def unlimited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only the number of messages limit a slice, so that the speed of the machine does not matter."""
    monkeypatch.setattr("skylarkmq.broker.delivery.delay.level.SLICE_S", 60)


def step_until_idle(it: Opened, level: DelayLevel) -> list[int]:
    """Step at the times that the level returns; return these times, relative to the start."""
    begin = it.clock.now_ms
    times = []
    while (next_ms := level.step(it.clock.now_ms)) is not None:
        it.clock.now_ms = max(next_ms, it.clock.now_ms)
        times.append(it.clock.now_ms - begin)
    return times


def test_a_message_is_delivered_when_due_and_not_before(it: Opened) -> None:
    """To the millisecond; then the level sleeps until an arrival."""
    level = level_of(it)
    assert level.step(it.clock.now_ms) is None
    it.put(delayed(b"one"))
    due = it.clock.now_ms + 1_000
    for early in (1_000, 500, 1):
        it.clock.now_ms = due - early
        assert level.step(it.clock.now_ms) == due
        assert it.store.max_offset("T", 0) is None
    it.clock.now_ms = due
    assert level.step(it.clock.now_ms) is None
    assert it.bodies() == [b"one"]
    assert it.arrivals[-1] == ("T", 0, 1, (0,))
    assert level.statistics().delivered == 1


def test_a_delivered_message_equals_the_sent_one(it: Opened) -> None:
    """Topic, queue, tag, flags, born fields and reconsume times; the stored properties are the same bytes."""
    fields: dict[str, Any] = {"flag": 7, "sys_flag": 8 | 1, "born_timestamp": 5, "reconsume_times": 3}
    (sent,) = it.put(delayed(b"one", queue_id=3, tag="TagA", **fields))
    it.clock.now_ms += 1_000
    level_of(it).step(it.clock.now_ms)
    (record,) = records_of(it.store.get("T", 3, 0, 32))
    assert (record.topic, record.queue_id, record.queue_offset, bytes(record.body)) == ("T", 3, 0, b"one")
    assert (record.flag, record.sys_flag, record.born_timestamp, record.reconsume_times) == (7, 9, 5, 3)
    assert (record.born_host, record.prepared_transaction_offset) == (BORN_HOST, 0)
    assert record.properties == sent.properties
    assert record.store_timestamp == it.clock.now_ms
    assert it.arrivals[-1] == ("T", 3, 1, (2598919,))


def test_messages_are_delivered_in_order_and_on_time(it: Opened) -> None:
    """A hundred messages over a second; those due together are delivered together, none early, none late."""
    begin = it.clock.now_ms
    for n in range(100):
        it.clock.now_ms = begin + n * 10
        it.put(delayed(b"%d" % n))
    it.clock.now_ms = begin + 999
    level = level_of(it)
    step_until_idle(it, level)
    assert it.bodies() == [b"%d" % n for n in range(100)]
    for record in all_records(it):
        due = begin + 1_000 + 10 * int(record.body)
        assert 0 <= record.store_timestamp - due <= PACE_MS
    assert level.statistics().next_offset == level.statistics().max_offset == 100


def all_records(it: Opened) -> list[Any]:
    end = it.store.max_offset("T", 0) or 0
    return [record for offset in range(end) for record in records_of(it.store.get("T", 0, offset, 1))]


def test_a_slice_is_limited_and_the_rest_follows_at_once(it: Opened) -> None:
    """A level with more due messages returns the current time, so that other work can run in between."""
    it.put(*(delayed(b"x" * 100) for _ in range(150)))
    it.clock.now_ms += 1_000
    level = level_of(it)
    steps = 1
    while level.step(it.clock.now_ms) == it.clock.now_ms:
        steps += 1
    assert steps >= 5
    assert level.statistics().delivered == 150


def test_a_slice_is_one_write(it: Opened) -> None:
    """One write to the log; the units of the queue are another one."""
    it.put(*(delayed(b"%d" % n) for n in range(8)))
    it.clock.now_ms += 1_000
    before = len(it.disk.writes)
    level_of(it).step(it.clock.now_ms)
    assert sum("/commitlog/" in path for path, _, _ in it.disk.writes[before:]) == 1
    assert len(it.bodies()) == 8


def test_a_message_due_after_a_delivery_waits_for_the_pace(it: Opened) -> None:
    """A stream takes one write per pace and not one per message."""
    it.put(delayed(b"first"))
    it.clock.now_ms += 1
    it.put(delayed(b"second"))
    it.clock.now_ms += 999
    assert level_of(it).step(it.clock.now_ms) == it.clock.now_ms + PACE_MS


# ------------------------------------------------------------------------------------------------------- tables, clocks


def test_a_shorter_delay_applies_to_waiting_messages(it: Opened) -> None:
    """A level of 5 s that becomes one of 1 s: all messages wait one second from the start on."""
    it.put(*(delayed(b"%d" % n, level=3) for n in range(3)))
    it.clock.now_ms += 10
    start = it.clock.now_ms
    level = level_of(it, number=3, delay_ms=1_000)  # its messages have a delay of 10 s
    assert level.step(start) == start + 1_000
    it.clock.now_ms = start + 1_000
    assert level.step(it.clock.now_ms) is None
    assert it.bodies() == [b"0", b"1", b"2"]


def test_with_a_clock_set_back_no_message_is_early_or_late(it: Opened) -> None:
    """An hour back: waiting messages are due one delay after the change is noticed."""
    it.put(delayed(b"one"))
    it.clock.now_ms += 900
    level = level_of(it)
    assert level.step(it.clock.now_ms) == it.clock.now_ms + 100
    it.clock.now_ms -= 3_600_000
    assert level.step(it.clock.now_ms) == it.clock.now_ms + 1_000
    it.clock.now_ms += 1_000
    assert level.step(it.clock.now_ms) is None
    assert it.bodies() == [b"one"]


def test_a_level_removed_from_the_table_is_delivered(it: Opened) -> None:
    """Its messages keep their due times."""
    it.put(delayed(b"one", level=2))
    level = level_of(it, number=2, delay_ms=None)
    assert level.step(it.clock.now_ms) == it.clock.now_ms + 5_000
    it.clock.now_ms += 5_000
    assert level.step(it.clock.now_ms) is None
    assert it.bodies() == [b"one"]


# ------------------------------------------------------------------------------------------------------------- offsets


def test_an_offset_after_the_queue_moves_to_its_end(it: Opened) -> None:
    """After a power cut, or with the file of another store: later messages are delivered."""
    offsets = offsets_of(it)
    offsets.load(b'{"offsetTable":{1:7}}')
    it.put(delayed(b"passed over"))
    level = level_of(it, offsets)
    assert level.step(it.clock.now_ms) is None
    assert offsets.next_of(1) == 1
    it.put(delayed(b"next"))
    it.clock.now_ms += 1_000
    assert level.step(it.clock.now_ms) is None
    assert it.bodies() == [b"next"]


def test_an_offset_before_the_queue_moves_to_its_start(tmp_path: Path) -> None:
    """Messages that expired before they were due are gone."""
    with opened(tmp_path, mapped_file_size_commit_log=4_096, file_reserved_time=0) as it:
        it.put(*(delayed(b"x" * 500) for _ in range(12)))
        queue = it.store.queues.by_key[SCHEDULE, 0]
        queue.min_offset, queue._corrected_for = 5, it.store.min_physical_offset
        it.clock.now_ms += 1_000
        level = level_of(it)
        while level.step(it.clock.now_ms) is not None:
            pass
        assert level.statistics().delivered == 7


def test_offsets_are_settled_after_the_flush(tmp_path: Path) -> None:
    """The offsets in the file follow the disk; those of the process do not wait for it."""
    with opened(tmp_path, sync=True) as it:
        offsets = offsets_of(it)
        it.put(delayed(b"one"))
        flush(it)
        it.disk.syncs.clear()
        it.clock.now_ms += 1_000
        level_of(it, offsets).step(it.clock.now_ms)
        offsets.settle(it.store.flushed_offset)
        assert (offsets.next_of(1), offsets.statistics().settled) == (1, {})
        it.disk.syncs.set()
        flush(it)
        offsets.settle(it.store.flushed_offset)
        assert offsets.statistics().settled == {1: 1}
        assert it.bodies() == [b"one"]


def flush(it: Opened) -> None:
    """Flush all that is written, and let the store process this."""
    flusher = it.store._durability.log._flusher
    assert flusher is not None
    flusher.wait_idle()
    it.store.step(it.clock.now_ms)


# ------------------------------------------------------------------------------------------- undeliverable messages


BAD_TOPICS = (
    b"../../x", b"a/b", b".", b"..", b"a\0b", b"a\nb", b"T" * 256, "é".encode(),
    b"rmq_sys_wheel_timer", b"rmq_sys_REVIVE_LOG_C", b"RMQ_SYS_TRANS_OP_HALF_TOPIC",
)  # fmt: skip
BAD_QUEUE_IDS = (b"2147483648", b"9" * 5_000, "٣".encode(), b"1e3", b"0x1", b" 1")


@pytest.mark.parametrize(
    "properties",
    [
        b"DELAY\x011\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01T\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01SCHEDULE_TOPIC_XXXX\x02REAL_QID\x010\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01" + b"L" * 200 + b"\x02REAL_QID\x010\x02",
        *(b"DELAY\x011\x02REAL_TOPIC\x01" + topic + b"\x02REAL_QID\x010\x02" for topic in BAD_TOPICS),
        *(b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01" + number + b"\x02" for number in BAD_QUEUE_IDS),
    ],
)
def test_undeliverable_messages_are_dropped(it: Opened, properties: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Without a destination, half messages, topics that the store rejects: logged; the next message is delivered."""
    it.put(delayed(b"never", properties=properties), delayed(b"next"))
    it.clock.now_ms += 1_000
    level = level_of(it)
    assert level.step(it.clock.now_ms) is None
    assert it.bodies() == [b"next"]
    assert (level.statistics().delivered, level.statistics().dropped) == (1, 1)
    assert "delayed message of level 1 dropped total=1 offset=0 reason=" in caplog.text
    assert len(caplog.text) < 1_000


def test_after_a_restart_bad_entries_do_not_stop_delivery(tmp_path: Path) -> None:
    """In a store that another version filled with them, the messages between them are delivered, each once."""
    bad = [b"DELAY\x011\x02REAL_TOPIC\x01" + topic + b"\x02REAL_QID\x010\x02" for topic in BAD_TOPICS]
    with opened(tmp_path) as it:
        it.put(delayed(b"first"), *(delayed(b"bad", properties=each) for each in bad), delayed(b"last"))
    with opened(tmp_path) as it:
        it.clock.now_ms += 1_000
        offsets = offsets_of(it)
        level = level_of(it, offsets)
        while level.step(it.clock.now_ms) is not None:
            it.clock.now_ms += 1
        assert it.bodies() == [b"first", b"last"]
        assert level.statistics().dropped == len(bad)
    with opened(tmp_path) as it:
        it.clock.now_ms += 2_000
        assert level_of(it, offsets).step(it.clock.now_ms) is None
        assert it.bodies() == [b"first", b"last"]
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["SCHEDULE_TOPIC_XXXX", "T"]


async def test_messages_of_a_deleted_topic_are_dropped(it: Opened) -> None:
    """A message sent before the deletion is dropped, even if the topic was created again; a later one is delivered."""
    it.put(delayed(b"before"))
    await it.store.delete_topic("T", may_have_delayed=True)
    it.put(delayed(b"behind"))
    it.clock.now_ms += 1_000
    level = level_of(it)
    assert level.step(it.clock.now_ms) is None
    assert it.bodies() == [b"behind"]
    assert level.statistics().dropped == 1


def test_a_full_disk_delays_delivery_and_loses_nothing(it: Opened) -> None:
    """A failed write is repeated from the same message on; the offset does not move meanwhile."""
    it.put(*(delayed(b"%d" % n) for n in range(5)))
    it.clock.now_ms += 1_000
    level = level_of(it)

    def refuse(call: str, path: str) -> None:
        if call == "pwrite" and "/commitlog/" in path:
            raise OSError(errno.ENOSPC, "full")

    it.disk.refuse = refuse
    assert level.step(it.clock.now_ms) == it.clock.now_ms + RETRY_MS
    assert level.step(it.clock.now_ms) == it.clock.now_ms + RETRY_MS  # without an attempt: the store is read-only
    assert (level.statistics().next_offset, level.statistics().refused) == (0, 1)
    it.disk.refuse = lambda call, path: None
    it.clock.now_ms += 1_100
    it.store.step(it.clock.now_ms)
    assert level.step(it.clock.now_ms) is None
    assert it.bodies() == [b"%d" % n for n in range(5)]


def test_messages_put_before_a_rejection_are_delivered_once(it: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next segment cannot be created: earlier messages are stored, and not put again."""
    it.put(*(delayed(b"%d" % n) for n in range(5)))
    it.clock.now_ms += 1_000
    level = level_of(it)
    put, left = it.store.put, [3]

    def put_three(append: Append) -> None:
        if left[0]:
            left[0] -= 1
            put(append)
        else:
            append.status = PutStatus.CREATE_MAPPED_FILE_FAILED

    monkeypatch.setattr(it.store, "put", put_three)
    assert level.step(it.clock.now_ms) == it.clock.now_ms + RETRY_MS
    assert level.statistics().next_offset == 3
    left[0] = 9
    assert level.step(it.clock.now_ms) is None
    assert it.bodies() == [b"%d" % n for n in range(5)]


def test_filler_units_are_skipped(it: Opened) -> None:
    """A queue that begins with filler units, or has a damaged record: the other messages are delivered."""
    it.put(message(bytes(300), "Before"))  # three other records precede record #3
    queue = it.store.queues.make(SCHEDULE, 0)
    queue.next_offset = 3
    it.put(delayed(b"one"))
    it.clock.now_ms += 1_000
    level = level_of(it)
    while level.step(it.clock.now_ms) is not None:
        pass
    assert it.bodies() == [b"one"]


def test_a_message_without_a_body_is_delivered(it: Opened) -> None:
    """An empty body is valid."""
    it.put(delayed(b""))
    it.clock.now_ms += 1_000
    assert level_of(it).step(it.clock.now_ms) is None
    assert it.bodies() == [b""]


def test_delivered_messages_count_as_delayed_ones(it: Opened) -> None:
    """In the traffic of their topic."""
    it.put(message(b"normal"), delayed(b"late"))
    it.clock.now_ms += 1_000
    level_of(it).step(it.clock.now_ms)
    kinds = it.store.traffic()["T"].by_message_type()
    assert {kind: sizes.count for kind, sizes in kinds.items()} == {"normal": 1, "delay": 1}
