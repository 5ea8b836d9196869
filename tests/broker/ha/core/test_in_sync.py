"""Tests of the set that the leader wants: stores that keep up, and never fewer than the minimum."""

from typing import Final

import pytest

from skylarkmq.broker.ha.core.in_sync import Progresses
from skylarkmq.broker.ha.core.timings import Timings

TIMINGS: Final = Timings(behind_s=1.5, keep_up_s=5.0, longest_wait_s=12.0)
NONE: Final = frozenset[str]()


def progresses() -> Progresses:
    return Progresses(TIMINGS, 0.0)


def wanted(one: Progresses, now: float, in_sync: str = "abc", minimum: int = 2, may_join: str = "") -> str:
    return "".join(sorted(one.wanted(frozenset(in_sync), "a", minimum, frozenset(may_join), now)))


def keep_up(one: Progresses, store_id: str, start: float, end: float) -> None:
    for n in range(int((end - start) * 2) + 1):
        one.acknowledged(store_id, 100, 100, start + n / 2)


@pytest.mark.parametrize(("now", "stays"), [(1.5, "abc"), (1.51, "ab")])
def test_a_store_that_is_behind_for_too_long_leaves(now: float, stays: str) -> None:
    """One that has never acknowledged is behind since the term began; the limit itself is not too long."""
    one = progresses()
    one.acknowledged("b", 0, 0, 1.4)
    assert wanted(one, now) == stays


def test_a_store_under_steady_load_is_not_behind() -> None:
    """It has to have synced the end of its acknowledgement before, not the end of now."""
    one = progresses()
    for n in range(100):
        one.acknowledged("b", 100 * n, 100 * (n + 1), n / 10)
        one.acknowledged("c", 100 * (n // 2), 100 * (n + 1), n / 10)  # half as fast
    assert wanted(one, 10) == "ab"


def test_a_store_whose_sync_stalls_is_behind_since_it_had_all_bytes() -> None:
    """Its acknowledgements of BEATs go on: they repeat an end that the log had once, and count for no later time."""
    one = progresses()
    for store_id in "bc":
        one.acknowledged(store_id, 100, 100, 10.0)
    for n in range(1, 4):
        one.acknowledged("b", 100, 200, 10.0 + n / 2)
        one.acknowledged("c", 200, 200, 10.0 + n / 2)
    assert wanted(one, 11.5) == "abc"
    assert wanted(one, 11.6) == "ac"


def test_the_leader_never_leaves_and_the_set_never_falls_below_the_minimum() -> None:
    """If all are behind, the store that kept up last stays."""
    one = progresses()
    one.acknowledged("b", 100, 100, 1)
    one.acknowledged("c", 100, 100, 2)
    assert wanted(one, 60) == "ac"
    assert wanted(one, 60, minimum=1) == "a"
    assert wanted(one, 60, minimum=3) == "abc"


@pytest.mark.parametrize(("now", "joined"), [(4.9, "ab"), (5.0, "abc")])
def test_a_store_joins_after_it_kept_up(now: float, joined: str) -> None:
    """`keep_up_s` counts from its first acknowledgement."""
    one = progresses()
    keep_up(one, "b", 0, now)
    keep_up(one, "c", 0, now)
    assert wanted(one, now, in_sync="ab", may_join="bc") == joined
    assert wanted(one, now, in_sync="ab") == "ab"  # it has not all committed bytes


def test_a_lost_store_is_replaced_at_once_in_one_change() -> None:
    """At the minimum, a store that keeps up joins without a wait in the change that removes the lost one."""
    one = progresses()
    one.acknowledged("b", 100, 100, 0)
    one.acknowledged("d", 100, 100, 1)
    assert wanted(one, 1.5, in_sync="ab", may_join="d") == "ab"
    assert wanted(one, 1.6, in_sync="ab", may_join="d") == "ad"


def test_a_set_below_the_minimum_grows_without_a_wait() -> None:
    """A new group has one store in sync; the first follower that has all committed bytes completes the set."""
    one = progresses()
    one.acknowledged("b", 0, 0, 3)
    assert wanted(one, 3, in_sync="a", may_join="b") == "ab"


def test_each_removal_doubles_the_wait_up_to_the_longest() -> None:
    """5 s, 10 s, then 12 s."""
    for removals, wait in ((0, 5.0), (1, 10.0), (2, 12.0), (9, 12.0)):
        one = progresses()
        keep_up(one, "c", 0, wait - 1)
        for _ in range(removals):
            one.removed("c")
        for now, expected in ((wait - 0.1, "ab"), (wait, "abc")):
            one.acknowledged("b", 100, 100, now)
            one.acknowledged("c", 100, 100, now)
            assert wanted(one, now, in_sync="ab", may_join="c") == expected


@pytest.mark.parametrize("back", [5.5, 65.5])
def test_a_store_that_fell_behind_starts_its_wait_again(back: float) -> None:
    """Neither the time before it fell behind counts, nor that of its absence."""
    one = progresses()
    keep_up(one, "b", 0, 80)
    keep_up(one, "c", 0, 3)
    assert wanted(one, 5) == "ab"
    keep_up(one, "c", back, back + 4.5)
    assert wanted(one, back + 4.9, in_sync="ab", may_join="c") == "ab"
    keep_up(one, "c", back + 5, back + 5)
    assert wanted(one, back + 5, in_sync="ab", may_join="c") == "abc"


def test_a_store_is_heard_when_it_acknowledges() -> None:
    """Before its first acknowledgement the beginning of the term counts; a store that is behind is heard."""
    one = progresses()
    assert one.heard_at("b") == 0.0
    one.acknowledged("b", 0, 1000, 7)
    one.acknowledged("b", 0, 1000, 9)
    assert one.heard_at("b") == 9
    one.removed("x")  # a store that never linked
