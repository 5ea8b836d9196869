"""Allocation agrees with AllocateMessageQueueAveragely of RocketMQ's clients."""

import random

import pytest

from clients.rebalance import allocate_averagely, utf16_order
from protocol.bodies.message_queue import MessageQueue


def queues(count: int, topic: str = "T", broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, n) for n in range(count)]


# queues, members -> queue ids of each member, in the order of their ids
WORKED = [
    (4, 1, [[0, 1, 2, 3]]),
    (4, 2, [[0, 1], [2, 3]]),
    (4, 3, [[0, 1], [2], [3]]),
    (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
    (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    (2, 3, [[0], [1], []]),
    (3, 3, [[0], [1], [2]]),
    (1, 2, [[0], []]),
    (0, 2, [[], []]),
]


@pytest.mark.parametrize(("count", "members", "expected"), WORKED)
def test_worked_cases(count: int, members: int, expected: list[list[int]]) -> None:
    """Rows of neighbours, the first members one more, nothing for members beyond the queues."""
    ids = [f"10.0.0.1@{n}#1" for n in range(members)]
    shares = [[queue.queue_id for queue in allocate_averagely(queues(count), ids, own)] for own in ids]
    assert shares == expected


def test_every_queue_has_one_owner_whatever_the_order_of_the_lists() -> None:
    """Members that see the same lists, in any order, share all queues without overlap."""
    chance = random.Random(7)
    for _ in range(200):
        every = [queue for broker in "ba" for queue in queues(chance.randrange(9), broker=broker)]
        ids = [f"192.168.0.{n}@{n * 7}" for n in range(chance.randrange(1, 9))]
        owned: list[MessageQueue] = []
        for own in ids:
            chance.shuffle(every)
            owned += allocate_averagely(every, chance.sample(ids, len(ids)), own)
        assert sorted(owned) == sorted(every)


def test_who_is_not_a_member_owns_nothing() -> None:
    """An id that the broker does not list gets no queue."""
    assert allocate_averagely(queues(4), ["a", "b"], "c") == ()


def test_queues_are_sorted_by_topic_broker_and_number() -> None:
    """Broker name before number, number as a number."""
    every = queues(11, broker="b") + queues(2, broker="a")
    share = allocate_averagely(every, ["me"], "me")
    assert [(queue.broker_name, queue.queue_id) for queue in share] == [("a", 0), ("a", 1)] + [
        ("b", n) for n in range(11)
    ]


def test_text_is_compared_by_utf16_units() -> None:
    """A character beyond the BMP sorts by its surrogates, before U+FF5E, where Python would sort it after."""
    assert sorted(["\uff5e", "\U0001f600"], key=utf16_order) == ["\U0001f600", "\uff5e"]
    assert allocate_averagely(queues(2), ["\uff5e", "\U0001f600"], "\U0001f600") == (MessageQueue("T", "broker-a", 0),)
