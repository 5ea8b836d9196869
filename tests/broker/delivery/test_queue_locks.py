"""Locks of queues: one owner at a time, for as long as it asks again."""

import logging

import pytest

from skylarkmq.broker.delivery.queue_locks import QueueLocks
from skylarkmq.protocol.bodies.message_queue import MessageQueue

LIVE_MS = 60_000
A, B, C = (MessageQueue("T", "b", queue_id) for queue_id in range(3))


def test_a_queue_has_one_owner() -> None:
    """Who asks later gets what is left; groups do not meet."""
    locks = QueueLocks(LIVE_MS)
    assert locks.lock("G", "one", [A, B], 0) == [A, B]
    assert locks.lock("G", "two", [A, B, C], 1) == [C]
    assert locks.lock("H", "two", [A], 1) == [A]


def test_a_lock_that_is_asked_for_again_does_not_run_out(caplog: pytest.LogCaptureFixture) -> None:
    """One that is not may be taken by another member, a millisecond after its time; the log says from whom."""
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
    """What others hold, and what nobody holds, stays as it is."""
    locks = QueueLocks(LIVE_MS)
    locks.lock("G", "one", [A], 0)
    locks.unlock("G", "two", [A, B])
    locks.unlock("nobody", "two", [A])
    assert locks.lock("G", "two", [A], 1) == []
    locks.unlock("G", "one", [A, B])
    assert locks.lock("G", "two", [A], 1) == [A]


def test_a_group_is_orderly_while_it_holds_a_queue() -> None:
    """Until the last of its locks has run out or is given up."""
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


def test_what_has_run_out_is_dropped() -> None:
    """Some at each step, and nothing that lives."""
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


def test_there_are_not_more_than_a_certain_number(caplog: pytest.LogCaptureFixture) -> None:
    """What is locked can still be renewed; what is refused is counted, and told once."""
    locks = QueueLocks(LIVE_MS, most=2)
    assert locks.lock("G", "one", [A, B, C], 0) == [A, B]
    assert locks.lock("G", "one", [A, B, C], 1) == [A, B]
    assert locks.statistics().refused == 2
    assert len(caplog.records) == 1
    locks.unlock("G", "one", [A])
    assert locks.lock("G", "one", [C], 2) == [C]


def test_a_deleted_groups_locks_go_with_it() -> None:
    """Whatever their age."""
    locks = QueueLocks(LIVE_MS)
    locks.lock("G", "one", [A, B], 0)
    locks.lock("H", "one", [A], 0)
    locks.remove_group("G")
    locks.remove_group("G")
    assert (locks.is_orderly("G", 0), locks.is_orderly("H", 0)) == (False, True)
    assert locks.statistics().locks == 1


def test_how_long_locks_live_can_be_changed() -> None:
    """It holds for those that there are, too."""
    locks = QueueLocks(LIVE_MS)
    locks.lock("G", "one", [A], 0)
    locks.configure(10)
    assert locks.lock("G", "two", [A], 11) == [A]
