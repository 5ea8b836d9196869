"""Tests of the commit rule: what the acknowledgements of one term commit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylarkmq.broker.ha.core.commit import CommitRule
from tests.harness.rounds import rounds

AB, ABC, AC = frozenset("ab"), frozenset("abc"), frozenset("ac")


def rule(in_sync: frozenset[str] = AB, committed: int = 50, term_end: int = 100, minimum: int = 2) -> CommitRule:
    return CommitRule(committed=committed, term_end=term_end, in_sync=in_sync, minimum=minimum)


def acknowledge(commit: CommitRule, **ends: int) -> int:
    for store_id, end in ends.items():
        commit.acknowledged(store_id, end)
    commit.advance()
    return commit.committed


@pytest.mark.parametrize(
    ("ends", "committed"),
    [
        ({}, 50),
        ({"a": 100}, 50),  # b is missing
        ({"a": 100, "c": 100}, 50),  # c does not count
        ({"a": 99, "b": 100}, 50),  # rule 6: just below the end of the epoch record
        ({"a": 100, "b": 100}, 100),
        ({"a": 120, "b": 110, "c": 1}, 110),
    ],
)
def test_committed_is_the_lowest_synced_end_of_the_set(ends: dict[str, int], committed: int) -> None:
    """A store of the set that has not acknowledged stops it, and so does an end before that of the epoch record."""
    assert acknowledge(rule(), **ends) == committed


def test_an_acknowledgement_never_goes_back() -> None:
    """A late, lower acknowledgement changes nothing."""
    commit = rule()
    acknowledge(commit, a=120, b=120)
    assert acknowledge(commit, b=90) == 120
    assert commit.synced("b") == 120
    assert commit.synced("c") is None


def test_nothing_is_committed_below_the_minimum() -> None:
    """A set of one with min 2 commits nothing, whatever it has synced."""
    commit = rule(in_sync=frozenset("a"))
    assert acknowledge(commit, a=500) == 50
    commit.propose(AB)
    assert acknowledge(commit, b=400) == 50  # proposed, not recorded
    commit.settle(AB)
    assert acknowledge(commit) == 400


def test_an_addition_counts_before_it_is_requested() -> None:
    """From the proposal on the new store is needed, whether its swap took effect or not (#5663)."""
    commit = rule()
    acknowledge(commit, a=100, b=100)
    commit.propose(ABC)
    assert acknowledge(commit, a=200, b=200) == 100
    assert acknowledge(commit, c=150) == 150
    commit.settle(AB)  # the swap did not take effect
    assert acknowledge(commit) == 200


def test_a_removal_counts_once_it_is_recorded() -> None:
    """A store that is to be removed is needed until the record has changed (#6662)."""
    commit = rule(in_sync=ABC)
    acknowledge(commit, a=100, b=100, c=100)
    commit.propose(AB)
    assert acknowledge(commit, a=200, b=200) == 100
    commit.settle(AB)
    assert acknowledge(commit) == 200


def test_a_lost_store_is_replaced_in_one_swap() -> None:
    """While the swap from {a, b} to {a, c} is open, all three are needed."""
    commit = rule()
    commit.propose(AC)
    assert commit.counted == ABC
    assert acknowledge(commit, a=200, c=200) == 50
    commit.settle(AC)
    assert acknowledge(commit) == 200


def test_all_proposals_at_one_revision_count() -> None:
    """Each of several swaps without a response may still take effect."""
    commit = rule(in_sync=frozenset("a"), minimum=1)
    commit.propose(AB)
    commit.propose(AC)
    assert commit.counted == ABC


@pytest.mark.parametrize(("synced", "has_it"), [(None, False), (49, False), (199, False), (200, True), (201, True)])
def test_a_store_needs_the_epoch_record_to_be_added(synced: int | None, *, has_it: bool) -> None:
    """The leader before may have committed everything before the epoch record, which this leader has not heard."""
    commit = rule(term_end=200)
    if synced is not None:
        commit.acknowledged("c", synced)
    assert commit.has_committed("c") is has_it


@pytest.mark.parametrize(("synced", "has_it"), [(None, False), (149, False), (150, True), (151, True)])
def test_only_a_store_with_all_committed_bytes_is_added(synced: int | None, *, has_it: bool) -> None:
    """A store that has acknowledged one byte less than what is committed may not join."""
    commit = rule(committed=150)
    if synced is not None:
        commit.acknowledged("c", synced)
    assert commit.has_committed("c") is has_it


def test_a_record_without_copies_commits_nothing() -> None:
    """A set that an operator emptied by hand gives no exception."""
    assert acknowledge(rule(in_sync=frozenset(), minimum=0), a=500) == 50


@pytest.mark.parametrize(("synced", "visible"), [(99, 50), (100, 100), (130, 130)])
def test_with_acks_of_the_leader_its_own_sync_is_enough(synced: int, visible: int) -> None:
    """Messages are acknowledged by the leader alone, after its epoch record; committed stays the minimum of the set."""
    commit = rule()
    commit.acknowledged("a", synced)
    assert not commit.advance()
    assert commit.visible("leader", "a") == visible
    assert commit.visible("all", "a") == commit.committed == 50


events = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), st.sampled_from("abc"), st.integers(0, 20)),
        st.tuples(st.just("propose"), st.sets(st.sampled_from("bc")), st.just(0)),
        st.tuples(st.just("settle"), st.booleans(), st.just(0)),
    )
)


@settings(max_examples=rounds(100))
@given(events)
def test_all_stores_of_each_possible_record_have_what_is_committed(steps: list[tuple[str, object, int]]) -> None:
    """Whichever of the open swaps took effect, every store of the recorded set has all committed bytes."""
    commit = rule(in_sync=frozenset("a"), committed=0, term_end=1, minimum=1)
    ends, possible = dict.fromkeys("abc", 0), [frozenset("a")]
    for kind, value, end in steps:
        before = commit.committed
        match kind, value:
            case "ack", str(store_id):
                ends[store_id] = max(end, ends[store_id])
                commit.acknowledged(store_id, end)
            case "propose", set(stores):
                wanted = frozenset({"a", *(store for store in stores if commit.has_committed(store))})
                commit.propose(wanted)
                possible.append(wanted)
            case "settle", _:
                possible = [possible[-1] if value else possible[0]]
                commit.settle(possible[0])
        commit.advance()
        assert commit.committed >= before
        assert all(ends[store] >= commit.committed for in_sync in possible for store in in_sync)
