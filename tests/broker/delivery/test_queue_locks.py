"""Queue locks: one owner at a time, as long as it renews its lock."""

import logging

import pytest

from skylarkmq.broker.delivery.queue_locks import QueueLocks
from skylarkmq.protocol.bodies.message_queue import MessageQueue

LIVE_MS = 60_000
A, B, C = (MessageQueue("T", "b", queue_id) for queue_id in range(3))


def test_a_queue_has_one_owner() -> None:
    """A later client gets the remaining queues; groups are independent."""
    locks = QueueLocks(LIVE_MS)
    assert locks.lock("G", "one", [A, B], 0) == [A, B]
    assert locks.lock("G", "two", [A, B, C], 1) == [C]
    assert locks.lock("H", "two", [A], 1) == [A]


def test_a_renewed_lock_does_not_expire(caplog: pytest.LogCaptureFixture) -> None:
    """Another member may take an expired lock a millisecond after its time; the log contains both owners."""
    locks = QueueLocks(LIVE_MS)
    locks.lock("G", "one", [A, B], 0)
    locks.lock("G", "one", [B], 30_000)
    assert locks.lock("G", "two", [A, B], LIVE_MS) == []
    with caplog.at_level(logging.INFO):
        assert locks.lock("G", "two", [A, B], LIVE_MS + 1) == [A]
    assert "queue lock taken over group=G queue=T@b:0 from=one to=two" in caplog.text
    assert locks.lock("G", "one", [A, B], LIVE_MS + 2) == [B]
    assert locks.statistics().taken_over == 1


def test_only_the_owner_unlocks() -> None:
    """Queues of other owners, and free ones, stay unchanged."""
    locks = QueueLocks(LIVE_MS)
    locks.lock("G", "one", [A], 0)
    locks.unlock("G", "two", [A, B])
    locks.unlock("nobody", "two", [A])
    assert locks.lock("G", "two", [A], 1) == []
    locks.unlock("G", "one", [A, B])
    assert locks.lock("G", "two", [A], 1) == [A]


def test_a_group_is_orderly_while_it_holds_a_queue() -> None:
    """Until the last of its locks has expired or is released."""
    locks = QueueLocks(LIVE_MS)
    assert not locks.is_orderly("G", 0)
    locks.lock("G", "one", [A, B], 0)
    locks.lock("G", "one", [A], 10)
    assert locks.is_orderly("G", LIVE_MS + 10)
    assert not locks.is_orderly("G", LIVE_MS + 11)
    locks.unlock("G", "one", [A])
    assert locks.is_orderly("G", LIVE_MS)
    assert not locks.is_orderly("G", LIVE_MS + 1)
    locks.unlock("G", "one", [B])
    assert not locks.is_orderly("G", 0)


def test_expired_locks_are_dropped() -> None:
    """A limited number at each step, and no valid one."""
    locks = QueueLocks(LIVE_MS)
    many = [MessageQueue("T", "b", queue_id) for queue_id in range(700)]
    locks.lock("G", "one", many, 0)
    locks.lock("H", "one", [A], 1)
    locks.lock("G", "one", many[:2], 2)
    locks.step(LIVE_MS)
    assert locks.statistics().locks == 701
    locks.step(LIVE_MS + 1)
    assert locks.statistics().locks == 201
    locks.step(LIVE_MS + 2)
    assert (locks.statistics().groups, locks.statistics().locks) == (1, 2)
    locks.step(LIVE_MS + 3)
    assert repr(locks) == "<QueueLocks groups=0 locks=0>"


def test_the_number_of_locks_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    """Locked queues can still be renewed; rejections are counted, and logged once."""
    locks = QueueLocks(LIVE_MS, most=2)
    assert locks.lock("G", "one", [A, B, C], 0) == [A, B]
    assert locks.lock("G", "one", [A, B, C], 1) == [A, B]
    assert locks.statistics().refused == 2
    assert len(caplog.records) == 1
    locks.unlock("G", "one", [A])
    assert locks.lock("G", "one", [C], 2) == [C]


def test_locks_are_removed_with_their_group() -> None:
    """Whatever their age."""
    locks = QueueLocks(LIVE_MS)
    locks.lock("G", "one", [A, B], 0)
    locks.lock("H", "one", [A], 0)
    locks.remove_group("G")
    locks.remove_group("G")
    assert (locks.is_orderly("G", 0), locks.is_orderly("H", 0)) == (False, True)
    assert locks.statistics().locks == 1


def test_the_lifetime_of_locks_can_be_changed() -> None:
    """Existing locks are affected, too."""
    locks = QueueLocks(LIVE_MS)
    locks.lock("G", "one", [A], 0)
    locks.configure(10)
    assert locks.lock("G", "two", [A], 11) == [A]
