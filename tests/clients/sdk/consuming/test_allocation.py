"""Allocation rules return the results of RocketMQ's clients (tests/golden/allocation)."""

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from skylarkmq.clients.sdk.consuming.allocation import (
    Allocation,
    averagely,
    by_machine_room,
    consistent_hash,
    fixed,
    in_turn,
    nearby,
    share,
    utf16_order,
)
from skylarkmq.protocol.bodies.message_queue import MessageQueue


def queues(count: int, topic: str = "T", broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, n) for n in range(count)]


# queues, members -> queue ids of each member, in the order of their ids
AVERAGE = [
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


@pytest.mark.parametrize(("count", "members", "expected"), AVERAGE)
def test_averagely_allocates_contiguous_blocks(count: int, members: int, expected: list[list[int]]) -> None:
    """The first members have one queue more; members beyond the number of queues have none."""
    ids = [f"10.0.0.1@{n}#1" for n in range(members)]
    shares = [[queue.queue_id for queue in share(averagely, queues(count), ids, own)] for own in ids]
    assert shares == expected


def test_every_queue_has_one_owner_in_any_order_of_the_lists() -> None:
    """Members that see the same lists, in any order, share all queues without overlap."""
    chance = random.Random(7)
    for _ in range(200):
        every = [queue for broker in "ba" for queue in queues(chance.randrange(9), broker=broker)]
        ids = [f"192.168.0.{n}@{n * 7}" for n in range(chance.randrange(1, 9))]
        owned: list[MessageQueue] = []
        for own in ids:
            chance.shuffle(every)
            owned += share(averagely, every, chance.sample(ids, len(ids)), own)
        assert sorted(owned) == sorted(every)


def test_a_client_that_is_not_a_member_has_no_queues() -> None:
    """The broker does not list its id."""
    assert share(averagely, queues(4), ["a", "b"], "c") == ()


def test_queues_are_sorted_by_topic_broker_and_number() -> None:
    """The broker name comes before the number, which is compared as a number."""
    every = queues(11, broker="b") + queues(2, broker="a")
    mine = share(averagely, every, ["me"], "me")
    assert [(queue.broker_name, queue.queue_id) for queue in mine] == [("a", 0), ("a", 1)] + [
        ("b", n) for n in range(11)
    ]


def test_text_is_compared_by_utf16_units() -> None:
    """A character beyond the BMP sorts by its surrogates, before U+FF5E, where Python would sort it after."""
    assert sorted(["\uff5e", "\U0001f600"], key=utf16_order) == ["\U0001f600", "\uff5e"]
    assert share(averagely, queues(2), ["\uff5e", "\U0001f600"], "\U0001f600") == (MessageQueue("T", "broker-a", 0),)


# ------------------------------------------------------------------------------------------------- RocketMQ's results

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "allocation" / "allocations.json").read_text())


def before_dash(name: str) -> str:
    return name.partition("-")[0]


RULES: dict[str, Allocation] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": in_turn,
    "MACHINE_ROOM": by_machine_room(["r1", "r2"]),
    "MACHINE_ROOM_NEARBY-AVG": nearby(averagely, lambda queue: before_dash(queue.broker_name), before_dash),
    "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE": nearby(in_turn, lambda queue: before_dash(queue.broker_name), before_dash),
    "CONSISTENT_HASH": consistent_hash(),
    "CONSISTENT_HASH-3": consistent_hash(3),
}


@pytest.mark.parametrize("name", RULES)
def test_shares_are_those_of_rocketmq(name: str) -> None:
    """The same queues for each member of each group, in the same order, in 4.9.8 and 5.3.3."""
    for case in GOLDEN["cases"]:
        every = [MessageQueue(*queue) for queue in case["queues"]]
        shares = [
            [every.index(queue) for queue in share(RULES[name], every, case["members"], own)] for own in case["members"]
        ]
        assert shares == case["shares"][name], case


def test_fixed_queues_are_those_that_exist() -> None:
    """Queues that the rule does not name are not read, even if no other member reads them."""
    rule = fixed([*queues(1), MessageQueue("T", "broker-a", 9), *queues(1, topic="Other")])
    assert share(rule, queues(4), ["a", "b"], "b") == (MessageQueue("T", "broker-a", 0),)


def test_any_callable_is_a_rule() -> None:
    """It gets sorted lists, and can neither invent queues nor name one twice."""

    def last(queues: Iterable[MessageQueue], members: Iterable[str], own_id: str) -> list[MessageQueue]:
        assert list(members) == ["a", "b"]
        *_, found = queues
        return [found, found, MessageQueue("T", "nowhere", 0)]

    assert share(last, queues(3)[::-1], ["b", "a"], "a") == (MessageQueue("T", "broker-a", 2),)


def test_a_member_or_queue_without_a_room_raises() -> None:
    """As in RocketMQ; a ring without positions is rejected when it is made."""
    with pytest.raises(ValueError, match="has no room"):
        share(nearby(averagely, lambda queue: "", before_dash), queues(1), ["a"], "a")
    with pytest.raises(ValueError, match="virtual_nodes=0"):
        consistent_hash(0)
