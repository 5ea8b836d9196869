"""Tests of what a node has seen of the others."""

import pytest

from skylarkmq.broker.ha.core.events import Life
from skylarkmq.broker.ha.core.peers import Peers
from skylarkmq.broker.ha.core.timings import Timings
from tests.broker.ha.core.driven import record


@pytest.mark.parametrize(("after", "is_reached"), [(0, True), (1.1, True), (1.2, False)])
def test_a_member_is_reached_for_two_pings(after: float, *, is_reached: bool) -> None:
    """A response counts for two intervals and the time of a rank."""
    peers = Peers(Timings(beat_s=0.5, rank_s=0.1))
    assert not peers.is_reached("n2", 100)
    peers.reached("n2", 100)
    assert peers.is_reached("n2", 100 + after) is is_reached


@pytest.mark.parametrize(
    ("seen", "leads", "expired", "has_store"),
    [
        ([], True, False, False),  # nothing is known: no reason to act
        ([Life("b", 1)], True, False, True),
        ([Life("b", None)], False, False, True),  # it has restarted
        ([Life("b", 2)], False, False, True),  # another term
        ([Life("x", 1)], True, False, False),
        ([Life("b", 1), None], False, True, False),
    ],
)
def test_a_sign_of_life_says_whether_the_recorded_leader_leads(
    seen: list[Life | None], *, leads: bool, expired: bool, has_store: bool
) -> None:
    """The leader of epoch 1 is n2 with store b."""
    peers = Peers(Timings())
    for life in seen:
        peers.life_seen("n2", life)
    assert (peers.leads(record()), peers.has_expired("n2"), peers.has_store("n2", "b")) == (leads, expired, has_store)
