"""How much a batch takes."""

from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.clients.spark.source.limits import TriggerRule, backlog_of, shared
from skylarkmq.protocol.bodies.message_queue import MessageQueue

QUEUES = [MessageQueue("T", "b", n) for n in range(40)]


@given(st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 10**12), min_size=1), st.integers(1, 10**6))
def test_shares_add_up_and_stay_within_the_backlog(backlog: dict[MessageQueue, int], most: int) -> None:
    """The sum is the limit, or all there is; nobody gets more than waits, and nobody nothing while there is enough."""
    shares = shared(backlog, most)
    assert sum(shares.values()) == min(most, sum(backlog.values()))
    assert all(0 <= shares[queue] <= backlog[queue] for queue in backlog)
    if most >= len(backlog):
        assert all(shares.values())


def test_shares_are_in_proportion() -> None:
    """To what waits in each queue."""
    assert shared(dict(zip(QUEUES, (700, 200, 100), strict=False)), 100) == dict(
        zip(QUEUES, (69, 20, 11), strict=False)
    )


def test_the_backlog_is_what_lies_ahead() -> None:
    """Queues that are read to their ends, or behind them, have none."""
    a, b, c = QUEUES[:3]
    assert backlog_of({a: 5, b: 5, c: 9}, {a: 7, b: 5, c: 4}) == {a: 2}


def test_a_batch_waits_for_enough_or_for_long_enough() -> None:
    """The delay counts from the last batch that there was."""
    rule = TriggerRule(10, 1_000, now_ms=0)
    assert not rule.lets(9, 999)
    assert rule.lets(10, 999)
    assert not rule.lets(9, 1_998)
    assert rule.lets(9, 1_999)
    assert rule.lets(0, 3_000)  # nothing waits: no batch, and no new delay
    assert rule.lets(1, 3_001)
    assert TriggerRule(None, 1_000, 0).lets(1, 1)
