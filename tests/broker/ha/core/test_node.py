"""Tests of one node: steps, time, and the committed mark."""

import pytest

from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import (
    BeginTerm,
    Event,
    HaState,
    LifeRenewed,
    Reached,
    Read,
    Restart,
    StateStored,
    Stop,
    StoreState,
    Swap,
    Synced,
    SyncFailed,
    Tick,
    Written,
)
from skylarkmq.broker.ha.core.local import Log
from skylarkmq.broker.ha.core.messages import Refused, Welcome
from skylarkmq.broker.ha.core.record import GroupRecord
from tests.broker.ha.core.driven import (
    HISTORY,
    LOG_END,
    Driven,
    acknowledged,
    following,
    leading,
    linked,
    record,
    welcomed,
)


def test_a_node_begins_as_a_follower_that_reads_the_record() -> None:
    """It does not resume a term, whatever its record says."""
    node = Driven()
    assert [type(effect) for effect in node.step(Tick())[-1:]] == [Read]
    node.read(record(leader="n1"))
    assert (node.node.leading, node.node.refusal) == (None, "this node does not lead")


@pytest.mark.parametrize("event", [SyncFailed(), "stop"])
def test_after_its_end_a_node_has_no_effects(event: Event | str) -> None:
    """A Restart or Stop is the last effect of a process: nothing is acknowledged, written or requested afterwards."""
    node = linked(state=HaState(1, "a", 900))
    if isinstance(event, str):
        node.receive(1, Welcome(1, 100, 0, HISTORY))
    else:
        node.step(event)
    assert isinstance(node.effects[-1], Restart | Stop)
    assert node.run(30, LifeRenewed(node.now), Reached("n2")) == []
    assert node.step(StateStored(HaState(9, "a", 900))) == []


def test_a_clock_that_goes_back_stands_still() -> None:
    """An owner with a bad clock delays actions, and causes none."""
    node = following()
    node.now -= 50
    assert node.run(1) == []
    assert node.node._now > node.now


def test_the_committed_mark_is_written_once_in_a_second() -> None:
    """On the leader too; never beyond what is synced."""
    node = leading(record(leader="", in_sync="ab"))
    welcomed(node, 1)
    acknowledged(node, 1, LOG_END + 8)
    stored = [effect for effect in node.healthy(1.2) if isinstance(effect, StoreState)]
    assert [effect.state for effect in stored] == [HaState(2, "a", LOG_END + 8)]
    node.step(StateStored(stored[0].state))
    assert not [effect for effect in node.healthy(1.2) if isinstance(effect, StoreState)]


def test_a_static_leader_decides_alone() -> None:
    """Without a store of decisions the owner answers from a file on the leader: a term begins without etcd, after a
    restart another one."""
    founded = record(0, "n1", "a", min=1)
    node = Driven(HaState(0, "a", 0), Log(0, 0, EpochHistory()), founds=lambda _: founded)
    assert lead_alone(node, None) == BeginTerm(1, ("a",))
    stored = node.node.decisions.record
    node = Driven(HaState(1, "a", 0), Log(0, 8, HISTORY))
    assert lead_alone(node, stored) == BeginTerm(2, ("a",))


def lead_alone(node: Driven, value: GroupRecord | None) -> BeginTerm:
    """Let time pass, with the record of a file, until a term begins."""
    while not node.all(BeginTerm):
        node.run(0.1, LifeRenewed(node.now))
        while node.all(Read) + node.all(StoreState) + node.all(Swap):
            if node.all(StoreState):
                node.store_state()
            elif node.all(Swap):
                node.swapped()
            else:
                node.read(value)
    return node.the(BeginTerm)


def test_a_refusal_before_hello_is_not_an_error() -> None:
    """A leader that closes a link at once: the follower connects again."""
    node = linked()
    node.receive(1, Refused(5, "n2 does not lead"))
    node.relink(2)
    assert node.node.local.promised == 1


def test_an_epoch_out_of_order_in_the_log_is_not_accepted() -> None:
    """The owner found an epoch record that does not follow the others: the log is damaged, and the process ends."""
    node = following()
    with pytest.raises(ValueError, match="follows"):
        node.step(Written(LOG_END + 8, HISTORY.entries))
    assert node.step(Synced(LOG_END)) is not None
