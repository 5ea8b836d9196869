"""Tests of what a leader requests of the store of decisions: set changes, another term, resignation; and its end."""

from typing import Any, Final

import pytest

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import (
    BeginTerm,
    Life,
    LifeRenewed,
    LifeSeen,
    Read,
    ReadFailed,
    Restart,
    Show,
    Stop,
    StoreState,
    Swap,
    SwapRefused,
    SwapUnknown,
    Synced,
    Written,
)
from skylarkmq.broker.ha.core.messages import Hello, Message, Refused
from skylarkmq.broker.ha.core.record import GroupRecord
from tests.broker.ha.core.driven import LOG_END, Driven, acknowledged, campaigning, hello, leading, record, welcomed

TERM_END: Final = LOG_END + 8
TWO: Final = record(leader="", in_sync="ab")
THREE: Final = record(leader="")


def with_followers(value: GroupRecord = THREE, stores: str = "bc", **arguments: Any) -> Driven:
    """Return a leader to which the nodes of these stores are linked; all have acknowledged everything."""
    node = leading(value, **arguments)
    for link, store_id in enumerate(stores, 1):
        welcomed(node, link, store_id, {"b": "n2", "c": "n3"}.get(store_id, f"node-{store_id}"))
        acknowledged(node, link, TERM_END)
    return node


def run(node: Driven, seconds: float, *links: int, end: int = TERM_END) -> None:
    """Let time pass while these followers acknowledge, until the leader requests a swap. Reads show no change."""
    for _ in range(round(seconds * 10)):
        for link in links:
            acknowledged(node, link, end)
        node.healthy(0.1)
        if node.all(Read):
            node.read_again()
        if node.all(Swap):
            return


# Changes of the set


def test_a_follower_that_falls_behind_is_removed_once_the_record_says_so() -> None:
    """Rule 3: until the swap is confirmed its acknowledgement is needed."""
    node = with_followers()
    run(node, 1.8, 1)
    assert node.the(Swap).record.in_sync == ("a", "b")
    node.step(Written(TERM_END + 8))
    node.step(Synced(TERM_END + 8))
    acknowledged(node, 1, TERM_END + 8)
    assert not node.all(Show)
    node.swapped()
    assert [effect.end for effect in node.all(Show)] == [TERM_END + 8]


@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_addition_without_a_response_counts_either_way(*, takes_effect: bool) -> None:
    """While the swap may take effect, c is needed; a read at a new revision settles it."""
    node = with_followers(TWO)
    run(node, 6, 1, 2)
    swap = node.the(Swap)
    assert swap.record.in_sync == ("a", "b", "c")
    node.step(SwapUnknown())
    node.read_again()  # it has not taken effect yet
    node.step(Written(TERM_END + 8))
    node.step(Synced(TERM_END + 8))
    acknowledged(node, 1, TERM_END + 8)
    assert not node.all(Show)
    node.healthy(0.1)  # the change is requested again, at the same revision
    assert node.the(Swap).revision == swap.revision
    node.step(SwapRefused())
    if takes_effect:
        node.took_effect(swap)
        assert not node.all(Show)
        acknowledged(node, 2, TERM_END + 8)
    else:
        node.read(record(epoch=2, leader="n1", in_sync="ab", nonce="an operator"))
    assert node.all(Show) == [Show(TERM_END + 8)]


def test_a_lost_store_is_replaced_in_one_swap() -> None:
    """Rule 5: at the minimum, c joins in the swap that removes b; until then b, c and the leader are all needed."""
    node = with_followers(TWO)
    run(node, 2, 2)
    assert node.the(Swap).record.in_sync == ("a", "c")
    node.swapped()
    acknowledged(node, 2, TERM_END)
    assert node.node.refusal is None


def test_a_store_that_lacks_committed_bytes_is_not_added() -> None:
    """c links and keeps acknowledging the same end, one byte below what is committed."""
    node = leading(TWO)
    welcomed(node, 1)
    acknowledged(node, 1, TERM_END)
    node.receive(2, hello("c", "n3", end=LOG_END - 1))
    acknowledged(node, 2, LOG_END - 1)
    run(node, 8, 1)
    assert not node.all(Swap)


def test_one_request_at_a_time() -> None:
    """While a swap is without a response, neither time nor refusals of followers cause a second request."""
    node = with_followers()
    run(node, 1.8, 1)
    assert node.all(Swap)
    node.receive(1, Refused(7, "epoch 2 is over"))
    for _ in range(30):
        node.healthy(0.1)
        assert not node.all(Swap) + node.all(Read)


def test_an_operator_who_takes_the_leaders_store_out_of_the_set_ends_the_term() -> None:
    """A record edited by hand: what this leader has synced proves nothing any more."""
    node = with_followers()
    run(node, 2.1, 1, 2)
    node.step(Written(TERM_END + 8))
    node.node.decisions.read(node.now)
    node.read(record(epoch=2, leader="n1", in_sync="bc"))
    assert "removed from the set" in node.the(Restart).reason


# Another term


def refused(node: Driven, epoch: int = 7) -> None:
    """A follower that promised a higher epoch refuses this leader; the leader asks for the record."""
    node.receive(1, Refused(epoch, "epoch 2 is over"))
    assert node.all(Read) == [Read()]


def test_a_leader_that_is_refused_and_still_recorded_takes_a_higher_term() -> None:
    """Rule 2: a promise whose swap failed is healed by the leader, above it. The links of the old term end, and
    acknowledgements of it count no more."""
    node = with_followers()
    refused(node)
    assert node.the(StoreState).state.promised == 7
    node.read_again()
    assert node.the(StoreState).state.promised == 8
    node.store_state()
    swap = node.the(Swap)
    assert (swap.record.epoch, swap.record.leader, swap.record.in_sync, swap.absent) == (8, "n1", ("a", "b", "c"), None)
    node.swapped()
    assert node.all(BeginTerm) == [BeginTerm(8, ("a", "b", "c"))]
    assert list(node.closed()) == [2]
    assert (node.node.leading, node.node.refusal) == (8, "the epoch record is not written yet")
    acknowledged(node, 2, TERM_END)
    assert list(node.closed()) == [2]


def test_a_hello_with_a_higher_promise_has_the_same_effect() -> None:
    """The follower gets the promise back, so it can connect again after the new term has begun."""
    node = with_followers(stores="b")
    node.receive(5, hello("c", "n3", promised=7))
    assert node.sent(Refused)[0].epoch == 2
    assert node.all(Read) == [Read()]


@pytest.mark.parametrize(
    "message", [hello("c", "n3", promised=1 << 40), Refused(1 << 62, "epoch 2 is over")], ids=["HELLO", "REFUSED"]
)
@pytest.mark.parametrize("has_static_leader", [False, True])
def test_a_promise_far_above_changes_no_term(message: Message, *, has_static_leader: bool) -> None:
    """Its disk is damaged. The node is refused, and the terms of the group stay far below their limit."""
    node = with_followers(has_static_leader=has_static_leader)
    node.receive(5 if isinstance(message, Hello) else 1, message)
    assert node.all(Read) + node.all(StoreState) + node.all(Stop) == []
    assert node.node.leading == 2
    refusals = [refused.reason for refused in node.sent(Refused)]
    assert all("far above epoch 2 of this group: start with an empty directory" in reason for reason in refusals)
    assert len(refusals) == isinstance(message, Hello)


@pytest.mark.parametrize(
    "message",
    [
        hello("c", "n3", promised=7),
        hello("c", "n3", promised=0, epochs=EpochHistory((Epoch(1, 0), Epoch(7, 500)))),
        Refused(7, "epoch 2 is over"),
    ],
    ids=["promise", "epoch in its log", "refusal"],
)
def test_a_leader_that_an_operator_chose_stops_at_a_higher_promise(message: Message) -> None:
    """No other node begins a term by itself, so another node led after this node's haRecord was written. Nothing is
    promised: the node may follow the other leader later."""
    node = with_followers(has_static_leader=True)
    node.receive(5 if isinstance(message, Hello) else 1, message)
    reason = node.the(Stop).reason
    assert "has promised epoch 7, and this node leads in epoch 2 by an older haRecord" in reason
    assert "copy haRecord from the node that led last" in reason
    assert node.all(StoreState) == []


def test_a_leader_that_is_refused_and_no_longer_recorded_ends() -> None:
    """Its successor's record: nothing is promised above it."""
    node = with_followers()
    refused(node)
    node.read(record(epoch=7, leader="n2"))
    assert node.the(Restart).reason == "epoch 7 has begun, led by n2"
    assert node.node.leading is None


def test_a_change_of_the_set_that_takes_effect_instead_of_the_new_term_is_no_new_term() -> None:
    """The swap of the set had no response, then a follower refuses this leader. The swap of the new term is refused,
    because that of the set takes effect late: the record has the old epoch, in which the leader goes on."""
    node = with_followers()
    run(node, 1.8, 1)
    change = node.the(Swap)
    node.step(SwapUnknown())
    node.read_again()
    refused(node)
    node.read_again()
    node.store_state()
    assert node.the(Swap).record.epoch == 8
    node.step(SwapRefused())
    node.took_effect(change)
    assert not node.all(BeginTerm) + node.all(Restart)
    assert node.node.leading == 2
    node.healthy(0.1)
    node.read_again()
    node.store_state()
    assert (node.the(Swap).record.epoch, node.the(Swap).record.in_sync) == (9, ("a", "b"))


def test_proposals_stay_needed_while_a_new_term_is_requested() -> None:
    """The swap that adds c may take effect until the record moves on, whatever else is requested."""
    node = with_followers(TWO)
    run(node, 6, 1, 2)
    assert node.the(Swap).record.in_sync == ("a", "b", "c")
    node.step(SwapUnknown())
    node.read_again()
    node.step(Written(TERM_END + 8))
    node.step(Synced(TERM_END + 8))
    node.receive(2, Refused(7, "epoch 2 is over"))
    node.read_again()
    acknowledged(node, 1, TERM_END + 8)
    assert (node.all(Show), node.node.local.committed) == ([], TERM_END)


def test_a_promise_that_is_stored_late_does_not_make_two_requests() -> None:
    """A read is under way when the disk has stored the promise: the swap waits for its response."""
    node = with_followers()
    refused(node)
    node.step(ReadFailed())
    node.healthy(0.6)
    assert node.all(Read) == [Read()]
    node.read_again()
    stored = node.effects
    node.node.decisions.read(node.now)
    node.effects = stored
    node.store_state()
    assert not node.all(Swap)
    node.read_again()
    assert node.the(Swap).record.epoch == 8


# The end of a term


def test_a_successor_in_the_record_ends_the_term() -> None:
    """The record is read every 2 s."""
    node = with_followers()
    for _ in range(25):
        acknowledged(node, 1, TERM_END)
        acknowledged(node, 2, TERM_END)
        node.healthy(0.1)
        if node.all(Read):
            break
    node.read(record(epoch=3, leader="n2"))
    assert node.the(Restart).reason == "epoch 3 has begun, led by n2"


@pytest.mark.parametrize(
    ("renews", "hears", "restarts"),
    [(True, True, False), (True, False, False), (False, True, False), (False, False, True)],
)
def test_a_leader_ends_without_a_sign_of_life_and_without_its_set(*, renews: bool, hears: bool, restarts: bool) -> None:
    """Either is enough: without etcd a whole set goes on, because no other node can be elected."""
    node, effects = with_followers(), []
    for _ in range(31):
        if hears:
            acknowledged(node, 1, TERM_END)
            acknowledged(node, 2, TERM_END)
        effects += node.run(0.1, *([LifeRenewed(node.now)] if renews else []))
        if node.all(Read):
            effects += node.step(ReadFailed())
    assert bool([effect for effect in effects if isinstance(effect, Restart)]) is restarts


def test_a_set_of_one_goes_on_without_a_sign_of_life() -> None:
    """Only this node can lead, so there is nothing to lose."""
    node = leading(record(leader="", in_sync="a", min=1))
    effects = node.run(60)
    assert not [effect for effect in effects if isinstance(effect, Restart)]


# Resignation


def stuck(node: Driven, seconds: float) -> None:
    """Let time pass without a sync of the leader; its followers have synced all."""
    node.step(Written(TERM_END + 8))
    run(node, seconds, 1, 2, end=TERM_END + 8)


@pytest.mark.parametrize(("seconds", "resigns"), [(2.0, False), (2.3, True)])
def test_a_leader_that_commits_nothing_resigns(seconds: float, *, resigns: bool) -> None:
    """After 2 s, if others of the set are healthy: the record has no leader then, and the same set."""
    node = with_followers()
    stuck(node, seconds)
    assert [(swap.record.leader, swap.record.epoch) for swap in node.all(Swap)] == ([("", 2)] if resigns else [])
    if resigns:
        node.swapped()
        assert node.the(Restart).reason == "epoch 2 has begun, led by no node"


def test_a_leader_that_cannot_write_its_epoch_record_resigns() -> None:
    """Its disk is full or stuck from the beginning of the term: its sign of life must not block the group for ever."""
    node = campaigning(THREE)
    node.store_state()
    node.swapped()
    for name, store_id in (("n2", "b"), ("n3", "c")):
        node.step(LifeSeen(name, Life(store_id, None)))
    run(node, 2.3)
    assert node.the(Swap).record.leader == ""


def test_a_leader_whose_promise_is_not_stored_resigns() -> None:
    """The disk is stuck while the leader takes another term: the resignation needs no disk."""
    node = with_followers()
    node.step(Written(TERM_END + 8))
    refused(node)
    node.read_again()
    run(node, 2.3, 2)
    assert node.the(Swap).record.leader == ""
    node.swapped()
    assert len(node.all(Restart)) == 1


def test_with_acks_of_the_leader_slow_followers_are_no_reason_to_resign() -> None:
    """ASYNC_MASTER under steady load: the log always has bytes that are not synced, and followers commit nothing."""
    node = with_followers(record(leader="", acks="leader", min=3))
    for n in range(1, 40):
        node.step(Written(TERM_END + 8 * n + 8))
        node.step(Synced(TERM_END + 8 * n))
        assert node.all(Show) == [Show(TERM_END + 8 * n)]
        run(node, 0.1, 1, 2)
        assert not node.all(Swap)


@pytest.mark.parametrize(
    "life",
    [None, Life("x", None)],  # no sign of life; a new, empty disk, which could not lead
)
def test_without_a_healthy_successor_a_leader_stays(life: Life | None) -> None:
    """Resigning would leave the group without any leader."""
    node = with_followers(TWO, stores="b")
    node.step(LifeSeen("n2", life))
    node.step(Written(TERM_END + 8))
    run(node, 10, 1)
    assert not [swap for swap in node.all(Swap) if not swap.record.leader]


def test_a_resignation_without_a_response_keeps_the_leader_until_it_is_read() -> None:
    """It may take effect later. What the set of then has synced stays committed by the same rule."""
    node = with_followers()
    stuck(node, 2.3)
    resignation = node.the(Swap)
    node.step(SwapUnknown())
    node.read_again()
    assert node.node.leading == 2
    assert node.step(Synced(TERM_END + 8)) == [Show(TERM_END + 8)]
    node.node.decisions.read(node.now)
    node.took_effect(resignation)
    assert len(node.all(Restart)) == 1
