"""The choice of the queue of a message."""

import pytest

from skylarkmq.clients.sdk.producing.queue_selection import RoundRobin, queue_of_key
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
def test_a_key_selects_the_queue_of_java(key: str, count: int, expected: int) -> None:
    """|hash rem n|; the remainder has the sign of the hash."""
    assert queue_of_key(QUEUES[:count], key) is QUEUES[expected]


def test_round_robin_uses_all_queues() -> None:
    """Each queue once in n choices of n queues."""
    turn = RoundRobin(start=5)
    assert sorted(turn.choose(QUEUES) for _ in QUEUES) == sorted(QUEUES)


def test_round_robin_skips_failed_brokers() -> None:
    """While there is another broker; without one, the failed broker is used."""
    turn = RoundRobin()
    assert {turn.choose(QUEUES, ["a"]).broker_name for _ in range(20)} == {"b"}
    assert turn.choose(QUEUES, ["a", "b"]) in QUEUES


def test_round_robin_continues_with_fewer_queues() -> None:
    """A shorter route causes no index error."""
    turn = RoundRobin(start=7)
    assert turn.choose(QUEUES[:1]) is QUEUES[0]
