"""Which queue a message goes to."""

import pytest

from skylarkmq.clients.producing.queue_selection import RoundRobin, queue_of_key
from skylarkmq.protocol.bodies.message_queue import MessageQueue

QUEUES = [MessageQueue("T", broker, n) for broker in ("a", "b") for n in range(4)]


@pytest.mark.parametrize(
    ("key", "count", "expected"),
    [
        ("", 4, 0),
        ("a", 4, 97 % 4),
        ("order-1", 8, 6),  # hash -1,207,111,310
        ("order-1", 7, 6),
        ("Ünïcode", 8, 2),
        ("polygenelubricants", 8, 0),  # hash -2^31, which has no absolute value in Java
        ("polygenelubricants", 3, 2),
        ("\U0001f600", 5, (31 * 0xD83D + 0xDE00) % 5),
    ],
)
def test_key_chooses_as_java_does(key: str, count: int, expected: int) -> None:
    """|hash rem n|, where rem keeps the sign of the hash."""
    assert queue_of_key(QUEUES[:count], key) is QUEUES[expected]


def test_round_robin_visits_all() -> None:
    """Every queue once in as many choices as there are queues."""
    turn = RoundRobin(start=5)
    assert sorted(turn.choose(QUEUES) for _ in QUEUES) == sorted(QUEUES)


def test_round_robin_passes_over_failed_brokers() -> None:
    """A broker that just failed is left out while there is another, and taken when there is none."""
    turn = RoundRobin()
    assert {turn.choose(QUEUES, ["a"]).broker_name for _ in range(20)} == {"b"}
    assert turn.choose(QUEUES, ["a", "b"]) in QUEUES


def test_round_robin_survives_fewer_queues() -> None:
    """A route that shrank does not lead out of the list."""
    turn = RoundRobin(start=7)
    assert turn.choose(QUEUES[:1]) is QUEUES[0]
