"""Tests of a follower that campaigns: when it does, with which set, and how a campaign ends."""

from typing import Final

import pytest

from skylarkmq.broker.ha.core.epochs import EpochHistory, founded
from skylarkmq.broker.ha.core.events import (
    BeginTerm,
    Connect,
    EndSet,
    Event,
    Feed,
    HaState,
    KeepEpochs,
    Life,
    LifeSeen,
    Linked,
    LinkFailed,
    Reached,
    Read,
    StoreState,
    Swap,
    SwapRefused,
    SwapUnknown,
    Synced,
    Tick,
    Unlinked,
    Write,
    Written,
)
from skylarkmq.broker.ha.core.local import Log
from skylarkmq.broker.ha.core.messages import Ack, Data, Refused, Welcome
from skylarkmq.broker.ha.core.record import FORMAT, GroupRecord, Member
from tests.broker.ha.core.driven import HISTORY, LOG_END, Driven, campaigning, follower, following, linked, record

FOUNDED = founded("a")

EMPTY: Final = Log(0, 0, EpochHistory())
REACHED: Final = (Reached("n2"), Reached("n3"))


def candidate(
    value: GroupRecord, *seen: Event, state: HaState | None = None, reached: tuple[Event, ...] = REACHED
) -> Driven:
    """Return a node that has seen these events, 1 s later; its read was answered."""
    node = follower(value, state=state)
    for event in seen:
        node.step(event)
    node.run(1, *reached)
    if node.node.decisions.busy:
        node.read_again()
    return node


EXPIRED: Final = LifeSeen("n2", None)


@pytest.mark.parametrize(
    ("value", "seen", "promises"),
    [
        (record(), [EXPIRED], True),
        (record(), [LifeSeen("n2", Life("b", None))], True),  # it has restarted
        (record(), [LinkFailed("n2", refused=True)], True),  # its process has ended
        (record(leader=""), [], True),  # it has resigned
        (record(leader="n1"), [], True),  # this node led before its restart
        (record(), [], False),  # nothing is known of it
        (record(), [LifeSeen("n2", Life("b", 1))], False),
        (record(), [LinkFailed("n2", refused=False)], False),  # it does not respond: the network, perhaps
        (record(), [LinkFailed("n3", refused=True)], False),  # not the leader
        (record(in_sync="bc"), [EXPIRED], False),  # this store is not in the set
        (record(in_sync="xbc"), [EXPIRED], False),  # a wiped disk under the old name has another store
        (record(in_sync="ac", min=3), [EXPIRED], True),  # below min already: the set stays as it is
        (record(in_sync="abc", min=4), [EXPIRED], True),
        (record(format=FORMAT), [EXPIRED], True),
        (record(format=FORMAT + 1), [EXPIRED], False),  # this version cannot read the log
    ],
)
def test_which_node_campaigns(value: GroupRecord, seen: list[Event], *, promises: bool) -> None:
    """A store of the set, if the leader is gone as far as this node has seen."""
    node = candidate(value, *seen)
    assert [effect.state.promised for effect in node.all(StoreState)] == ([2] if promises else [])


@pytest.mark.parametrize(
    ("reached", "minimum", "in_sync"),
    [
        ((Reached("n3"),), 2, ("a", "c")),  # one swap also leaves out the store that is not reached
        (REACHED, 2, ("a", "b", "c")),
        ((), 1, ("a",)),
        ((), 2, None),
        ((Reached("n2"),), 3, None),
    ],
)
def test_a_candidate_reaches_min_stores(
    reached: tuple[Event, ...], minimum: int, in_sync: tuple[str, ...] | None
) -> None:
    """Rule 5: fewer than `min` stores in reach, and there is no campaign."""
    node = candidate(record(min=minimum, leader=""), reached=reached)
    if in_sync is None:
        assert node.all(StoreState) == []
        return
    node.store_state()
    assert (node.the(Swap).record.in_sync, node.the(Swap).record.epoch) == (in_sync, 2)


def test_a_member_whose_store_was_replaced_is_not_in_the_new_set() -> None:
    """n2 has store x now; b, which no member has any more, is left out."""
    members = {"n1": Member("a"), "n2": Member("x"), "n3": Member("c")}
    node = candidate(record(leader="", members=members))
    node.store_state()
    assert node.the(Swap).record.in_sync == ("a", "c")


@pytest.mark.parametrize(
    ("seen", "absent"), [(EXPIRED, "n2"), (LinkFailed("n2", refused=True), None), (LifeSeen("n2", Life("b", 9)), None)]
)
def test_the_swap_requires_that_an_expired_sign_of_life_is_still_absent(seen: Event, absent: str | None) -> None:
    """A leader whose process ended has a sign of life for 3 s more, which must not hinder the swap."""
    node = follower(record())
    node.step(seen)
    if node.node.decisions.busy:
        node.read_again()
    node.run(1, *REACHED)
    node.read_again()
    node.store_state()
    assert node.the(Swap).absent == absent


def test_a_won_campaign_begins_a_term() -> None:
    """The link to the old leader is closed when the campaign begins; the term's record is the first effect of it."""
    node = following()
    node.step(EXPIRED)
    node.run(1, *REACHED)
    assert list(node.closed()) == [1]
    node.read_again()
    node.store_state()
    assert node.node.leading is None
    node.swapped()
    assert node.effects == [BeginTerm(2, ("a", "b", "c"))]
    assert node.node.leading == 2


def test_no_campaign_during_a_truncation() -> None:
    """The epoch record is appended at the log's end, which is not known before the truncation is on the disk."""
    node = linked()
    node.receive(1, Welcome(1, 900, 0, HISTORY))
    node.step(Unlinked(1))
    node.step(EXPIRED)
    node.run(1.5, *REACHED)
    assert not node.all(Read)
    node.step(EndSet(900))
    assert any(isinstance(effect, Read) for effect in node.run(1, *REACHED))


def test_a_link_that_is_established_during_a_campaign_is_closed() -> None:
    """So is one that is established after the campaign was won."""
    node = campaigning()
    node.step(Linked(1, "n2"))
    assert list(node.closed()) == [1]
    node = campaigning()
    node.store_state()
    node.swapped()
    node.step(Linked(1, "n2"))
    assert list(node.closed()) == [1]


def test_a_follower_rejects_its_former_leader_from_its_promise_on() -> None:
    """Between the promise and the swap, data of the old leader are refused with the new epoch."""
    node = following(epoch=3)
    assert node.node.local.promised == 3
    node.node.local.promise(5, lambda: None)
    node.receive(1, Data(3, LOG_END, 0, b"x" * 8))
    assert node.sent(Refused)[0].epoch == 5
    assert (node.all(Write), list(node.closed())) == ([], [1])
    node = following(epoch=3)
    node.receive(1, Data(3, LOG_END, 0, b"x" * 8))
    node.node.local.promise(5, lambda: None)
    node.step(Written(LOG_END + 8))
    node.step(Synced(LOG_END + 8))
    assert node.sent(Ack) == []


@pytest.mark.parametrize("response", [SwapUnknown(), SwapRefused()])
def test_a_campaign_without_success_leaves_a_promise_and_waits_longer(response: Event) -> None:
    """After the read shows another leader, this node follows it."""
    node = campaigning()
    node.store_state()
    node.step(response)
    node.read(record(epoch=5, leader="n3", nonce="other-1"))
    assert node.node.local.promised == 2
    node.run(0.5, *REACHED)
    assert node.the(Connect).node == "n3"


def test_a_swap_that_takes_effect_after_its_campaign_ended_is_followed_by_another_campaign() -> None:
    """The record names this node, which does not lead: a node never resumes a term."""
    node = campaigning()
    node.store_state()
    late = node.the(Swap)
    node.step(SwapUnknown())
    node.run(2)  # the other nodes are not in reach any more
    node.read_again()
    assert node.node.leading is None
    node.run(2)
    node.took_effect(late)
    node.until(StoreState, *REACHED)
    node.store_state()
    assert (node.the(Swap).record.epoch, node.the(Swap).record.leader) == (3, "n1")


def test_campaigns_without_success_back_off() -> None:
    """Each one that a sign of life refuses doubles the time before the next."""
    node, waits = campaigning(), []
    for _ in range(4):
        node.store_state()
        node.step(SwapRefused())
        node.read_again()
        waits.append(node.until(StoreState, *REACHED))
    assert waits == pytest.approx([0.4, 0.8, 1.6, 3.2], abs=0.25)


def test_a_refused_connection_counts_for_the_term_in_which_it_was_refused() -> None:
    """n2 restarts and leads again: a refusal from before that is no reason to campaign."""
    node = follower(record())
    node.step(LinkFailed("n2", refused=True))
    node.read(record(epoch=2))
    node.run(1.5, *REACHED)
    assert not node.all(Read)


# A new group


FOUNDING: Final = record(epoch=0, leader="n1", in_sync="a", members={"n1": Member("a")})


def founding(state: HaState, log: Log) -> Driven:
    """Return a node that may found a group, 1 s after it found that there is no record."""
    node = Driven(state, log, lambda _: FOUNDING)
    node.run(0.1)
    node.read(None)
    node.run(1)
    if node.node.decisions.busy:
        node.read_again()
    return node


def test_the_founder_writes_the_first_record() -> None:
    """A new group has one store; the founder's history begins with the entry of its bytes from before."""
    node = founding(state=HaState(0, "a", LOG_END), log=Log(0, LOG_END, EpochHistory()))
    node.store_state()
    assert (node.the(Swap).revision, node.the(Swap).record.epoch) == (node.revision, 1)
    node.swapped()
    assert node.effects == [KeepEpochs(EpochHistory((FOUNDED,))), BeginTerm(1, ("a",))]


def test_a_store_that_was_in_a_group_founds_none() -> None:
    """The record is lost, but this log has an epoch: an operator has to act."""
    assert founding(HaState(0, "a", 0), Log(0, 9, HISTORY)).all(StoreState) == []


def test_a_founding_that_failed_several_times_is_tried_again() -> None:
    """Each try leaves a higher promise behind: kills during the first start do not leave a group without a record."""
    node = founding(HaState(7, "a", 0), EMPTY)
    node.store_state()
    assert (node.the(Swap).record.epoch, node.the(Swap).record.in_sync) == (8, ("a",))


def test_a_node_without_permission_founds_no_group() -> None:
    """It waits for the record."""
    node = Driven(HaState(0, "a", 0), EMPTY)
    node.run(0.1)
    node.step(Tick())
    node.read(None)
    assert not [effect for effect in node.run(1.5) if isinstance(effect, StoreState | Feed)]
