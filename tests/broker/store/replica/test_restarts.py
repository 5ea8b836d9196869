"""What a follower keeps over a crash: synced records with zeros at their end, and undecided records."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.recovery.queue_order import QueueOrder, QueuePrefix
from skylarkmq.protocol.record import BLANK, BLANK_SIZE, MAGIC_BLANK, Record, encode, iterate
from tests.broker.store.replica.test_replica_log import log_of
from tests.harness.stores import BORN_HOST, Opened, config_of

SEGMENT = 2_048
BEGIN_MS = 1_700_000_000_000


class Log:
    """The bytes of a log of small segments, to which records are added."""

    def __init__(self) -> None:
        self.data = b""
        self.now_ms = BEGIN_MS

    def add(self, topic: str, queue_offset: int, *, properties: bytes = b"", pause_ms: int = 10, flag: int = 0) -> None:
        size = 91 + len(topic) + len(properties) + 40
        room = SEGMENT - len(self.data) % SEGMENT
        if size + BLANK_SIZE > room:
            self.data += BLANK.pack(room, MAGIC_BLANK).ljust(room, b"\0")
        self.data += encode(
            topic=topic,
            body=b"x" * 40,
            properties=properties,
            queue_id=0,
            queue_offset=queue_offset,
            physical_offset=len(self.data),
            born_timestamp=BEGIN_MS,
            born_host=BORN_HOST,
            store_timestamp=self.now_ms,
            store_host=BORN_HOST,
            sys_flag=flag,
        )
        self.now_ms += pause_ms


def follower(root: Path) -> Opened:
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": SEGMENT, "mapped_file_size_consume_queue": 2_000}
    return Opened(root, is_follower=True, sync=True, **sizes)


def settle(it: Opened) -> None:
    """Run the flushers until the log and the queues of this round are synced."""
    while True:
        it.store.step(it.clock.now_ms)
        flusher = it.store._durability._queue_flusher
        if log_of(it).synced == log_of(it).end and flusher is not None and flusher.is_idle:
            return
        time.sleep(0.001)


def follow(it: Opened, data: bytes) -> None:
    log_of(it).append(log_of(it).end, data)
    log_of(it).show(log_of(it).end)
    settle(it)


@pytest.mark.parametrize("is_clean", [True, False])
def test_zeros_in_properties_do_not_end_a_synced_log(tmp_path: Path, is_clean: bool) -> None:
    """A message may have them. Below the committed mark, and after a clean stop, no record lacks bytes."""
    written = Log()
    for number in range(5):
        written.add("T", number, properties=b"k\x01\0\0" if number in (2, 4) else b"k\x01v")
    it = follower(tmp_path)
    follow(it, written.data)
    it.store.close() if is_clean else it.crash()
    store = MessageStore(it.store._config, it.clock)
    recovered = store.load(show_to=None if is_clean else len(written.data))
    assert (recovered.end, recovered.lacks_bytes) == (len(written.data), False)
    store.close()


def test_above_the_mark_such_zeros_may_be_missing_bytes(tmp_path: Path) -> None:
    """The log ends before that record, and the recovery says so: the node may have acknowledged the record."""
    written = Log()
    for number in range(5):
        written.add("T", number, properties=b"k\x01\0\0" if number == 2 else b"k\x01v")
    it = follower(tmp_path)
    follow(it, written.data)
    it.crash()
    it = follower(tmp_path)
    assert (it.recovered.records, it.recovered.lacks_bytes) == (2, True)
    it.store.close()


def test_a_record_that_may_have_been_whole_is_announced_before_it_is_cleared(tmp_path: Path) -> None:
    """A leader's log ends there too. Below `synced_to` the record stays."""
    written = Log()
    for number in range(5):
        written.add("T", number, properties=b"k\x01\0\0" if number == 2 else b"k\x01v")
    it = follower(tmp_path)
    follow(it, written.data)
    it.crash()
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": SEGMENT, "mapped_file_size_consume_queue": 2_000}
    config = config_of(tmp_path, sync=True, **sizes)
    size = len(written.data)
    store = MessageStore(config, it.clock)
    assert store.load(show_to=10, synced_to=size).end == size
    store.close()
    ends: list[bytes] = []
    log_file = tmp_path / "commitlog" / f"{0:020}"
    store = MessageStore(config, it.clock)
    recovered = store.load(show_to=10, before_loss=lambda: ends.append(log_file.read_bytes()[:size]))
    assert (recovered.records, recovered.lacks_bytes) == (2, True)
    assert ends == [written.data]
    store.close()


def test_the_list_outlives_rounds_that_leave_queues_out(tmp_path: Path) -> None:
    """A queue began again in the last record of a segment. Its next record comes later, and a recovery begins between
    them, because no later checkpoint covers the queues."""
    written = Log()
    for number in range(6):
        written.add("A", number)
    written.add("A", 0)
    number = 0
    while len(written.data) % SEGMENT > 200 or len(written.data) < SEGMENT:
        written.add("B", number)
        number += 1
    for later in range(number, number + 6):
        written.add("B", later, pause_ms=2_000)
    first = len(written.data)
    for number in range(1, 5):
        written.add("A", number)

    it = follower(tmp_path / "follower")
    queues = tmp_path / "follower" / "consumequeue"
    follow(it, written.data[:first])
    it.clock.now_ms += 61_000
    settle(it)
    shutil.copytree(queues, tmp_path / "synced")
    follow(it, written.data[first:])
    for _ in range(3):
        it.clock.now_ms += 1_100
        settle(it)
    it.crash()
    shutil.rmtree(queues)
    shutil.copytree(tmp_path / "synced", queues)
    it = follower(tmp_path / "follower")
    assert it.store.max_offset("A", 0) == 5
    assert it.recovered.skipped == 0
    it.store.close()


class NoQueues:
    """Evidence of queues that have 3 records before the scan."""

    def unit(self, key: tuple[str, int], offset: int) -> tuple[int, int] | None:
        return None

    def prefix(self, record: Record) -> QueuePrefix | None:
        return QueuePrefix(3, 0)


def test_two_undecided_records_of_one_queue_are_recalled() -> None:
    """The second one decides about the first."""
    written, accepted = Log(), list[int]()
    for number in (3, 4):
        written.add("T", number, flag=0x80)
    order = QueueOrder(NoQueues(), lambda record, _: accepted.append(record.queue_offset), lambda *_: None)
    for record in iterate(memoryview(written.data)):
        assert isinstance(record, Record)
        order.recall(record)
    assert (accepted, len(order.undecided)) == ([3], 1)
