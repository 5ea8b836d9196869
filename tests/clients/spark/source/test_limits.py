"""Limits of the size of a batch."""

from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.clients.spark.source.limits import TriggerRule, backlog_of, shares_of
from skylarkmq.protocol.bodies.message_queue import MessageQueue

QUEUES = [MessageQueue("T", "b", n) for n in range(40)]


@given(st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 10**12), min_size=1), st.integers(1, 10**6))
def test_shares_add_up_and_stay_within_the_backlog(backlog: dict[MessageQueue, int], most: int) -> None:
    """The sum is the limit or the whole backlog; no share exceeds its backlog, and none is zero if the limit allows."""
    shares = shares_of(backlog, most)
    assert sum(shares.values()) == min(most, sum(backlog.values()))
    assert all(0 <= shares[queue] <= backlog[queue] for queue in backlog)
    if most >= len(backlog):
        assert all(shares.values())


def test_shares_are_proportional() -> None:
    """To the backlog of each queue."""
    assert shares_of(dict(zip(QUEUES, (700, 200, 100), strict=False)), 100) == dict(
        zip(QUEUES, (69, 20, 11), strict=False)
    )


def test_backlog_is_the_number_of_unread_offsets() -> None:
    """Queues that are read to their end, or beyond it, have none."""
    a, b, c = QUEUES[:3]
    assert backlog_of({a: 5, b: 5, c: 9}, {a: 7, b: 5, c: 4}) == {a: 2}


def test_a_batch_waits_for_the_minimum_or_the_delay() -> None:
    """The delay counts from the last batch that had messages."""
    rule = TriggerRule(10, 1_000, now_ms=0)
    assert not rule.allows(9, 999)
    assert rule.allows(10, 999)
    assert not rule.allows(9, 1_998)
    assert rule.allows(9, 1_999)
    assert rule.allows(0, 3_000)  # empty backlog: no batch, and the delay does not restart
    assert rule.allows(1, 3_001)
    assert TriggerRule(None, 1_000, 0).allows(1, 1)
