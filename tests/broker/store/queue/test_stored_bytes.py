"""Bytes of a topic: always the sum of the sizes in its queue units whose records the log still has."""

import random
from pathlib import Path

import pytest

from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.queue.stored_bytes import KEPT_S
from tests.harness.stores import Clock, config_of, message


def brute_force(store: MessageStore, topic: str) -> int:
    """Return the same from all units of the topic."""
    total = 0
    for queue_id in store.queues.ids_of(topic):
        first, end = store.min_offset(topic, queue_id) or 0, store.max_offset(topic, queue_id) or 0
        total += sum(
            size for _, size, _ in (store.units(topic, queue_id, offset, 1)[0] for offset in range(first, end))
        )
    return total


class Counted:
    """A store whose steady clock the test advances."""

    def __init__(self, root: Path, units_in_memory: int) -> None:
        self.clock = Clock()
        self.now_ms = 0
        config = config_of(root, queue_units_in_memory=units_in_memory, file_reserved_time=1)
        self.store = MessageStore(config, self.clock, steady_ms=lambda: self.now_ms)
        self.store.load()
        self.store.start()

    def put(self, count: int, topic: str = "T", size: int = 100) -> None:
        """Store messages in one iteration."""
        for number in range(count):
            self.store.put(message(b"x" * size, topic, number % 3, ""))
        self.store.commit()

    def step(self) -> None:
        """Let a second pass twice: a count begins, and its result is taken."""
        for _ in range(2):
            self.now_ms += 1_000
            self.store.step(self.now_ms)
            self.store._parts._helper.submit(lambda: None).result()


@pytest.mark.parametrize("units_in_memory", [0, 1_000])
def test_the_bytes_of_a_topic_are_exact_after_every_step(tmp_path: Path, units_in_memory: int) -> None:
    """With units in files and in memory, over a restart, and for topics without messages."""
    chance = random.Random(units_in_memory)
    for _ in range(2):
        counted = Counted(tmp_path, units_in_memory)
        assert counted.store.stored_bytes.of("T") is None
        assert counted.store.stored_bytes.of("None") is None
        counted.step()
        assert counted.store.stored_bytes.of("None") == 0
        counted.store.stored_bytes.of("T")
        for _ in range(30):
            counted.put(chance.randrange(1, 20), size=chance.randrange(1, 400))
            counted.put(2, "Other")
            if counted.store.stored_bytes.of("T") is None:
                counted.step()
            assert counted.store.stored_bytes.of("T") == brute_force(counted.store, "T")
            if chance.random() < 0.3:
                counted.step()
        counted.store.close()


async def test_a_topic_that_is_deleted_begins_again(tmp_path: Path) -> None:
    """Records of before the deletion do not count."""
    counted = Counted(tmp_path, 0)
    counted.put(10)
    counted.store.stored_bytes.of("T")
    while counted.store.stored_bytes.of("T") is None:
        counted.step()
    await counted.store.delete_topic("T")
    assert counted.store.stored_bytes.of("T") is None
    counted.put(1)
    while counted.store.stored_bytes.of("T") is None:
        counted.step()
    assert counted.store.stored_bytes.of("T") == brute_force(counted.store, "T")
    counted.store.close()


def test_expired_records_do_not_count(tmp_path: Path) -> None:
    """After the first segments of the log are deleted, the bytes are counted again within two steps."""
    counted = Counted(tmp_path, 0)
    counted.put(1)
    counted.store.stored_bytes.of("T")
    counted.step()
    for _ in range(40):
        counted.put(30, size=200)
    before = counted.store.stored_bytes.of("T")
    assert before == brute_force(counted.store, "T")
    first = counted.store.min_physical_offset
    counted.store._log.files.remove_first().close()
    assert counted.store.min_physical_offset > first
    counted.step()
    after = counted.store.stored_bytes.of("T")
    assert after == brute_force(counted.store, "T")
    assert before is not None
    assert after is not None
    assert after < before
    counted.store.close()


def test_a_topic_that_is_not_asked_for_is_forgotten(tmp_path: Path) -> None:
    """A limit that was removed costs nothing more."""
    counted = Counted(tmp_path, 0)
    counted.store.stored_bytes.of("T")
    for _ in range(KEPT_S // 2 + 1):
        counted.step()
    assert repr(counted.store.stored_bytes) == "<StoredBytes topics=0>"
    counted.store.close()
