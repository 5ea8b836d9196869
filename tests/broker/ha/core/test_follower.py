"""Tests of a follower: HELLO, WELCOME, promise, truncation, DATA."""

from typing import Final

import pytest

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory, founded
from skylarkmq.broker.ha.core.events import (
    Connect,
    Copied,
    EndSet,
    HaState,
    Heard,
    KeepEpochs,
    Life,
    LifeSeen,
    Linked,
    LinkFailed,
    Reached,
    Read,
    Restart,
    SetEnd,
    Show,
    Stop,
    StoreState,
    Swap,
    Synced,
    SyncFailed,
    Tick,
    Unlinked,
    Write,
    Written,
)
from skylarkmq.broker.ha.core.local import Log
from skylarkmq.broker.ha.core.messages import Ack, Beat, Data, Hello, Message, Refused, Welcome
from skylarkmq.broker.ha.core.record import FORMAT
from tests.broker.ha.core.driven import HISTORY, LOG_END, Driven, follower, following, linked, record

FOUNDED = founded("a")

EMPTY: Final = Log(0, 0, EpochHistory())


def welcome(start: int = LOG_END, epoch: int = 1, committed: int = 0) -> Welcome:
    return Welcome(epoch, start, committed, HISTORY.truncated(start))


def data(offset: int = LOG_END, epoch: int = 1, committed: int = 0) -> Data:
    return Data(epoch, offset, committed, b"x" * 8)


# HELLO


def test_a_follower_connects_to_the_recorded_leader_and_sends_hello() -> None:
    """HELLO has all that the leader needs to find the common prefix."""
    node = linked()
    expected = Hello("g", "n1", "a", 1, HISTORY, 0, LOG_END, FORMAT)
    assert node.sent(Hello) == [expected]


@pytest.mark.parametrize("leader", ["", "n1"])
def test_no_connection_without_a_leader_elsewhere(leader: str) -> None:
    """A record without a leader, or with this node itself: nothing to connect to."""
    node = follower(record(leader=leader, in_sync="bc"))
    assert [effect for effect in node.run(3) if isinstance(effect, Connect)] == []


def test_failed_connections_are_repeated() -> None:
    """At most one at a time, and one in 0.5 s."""
    node = follower()
    node.run(0.1)
    assert node.all(Connect) == [Connect("n2")]
    assert [effect for effect in node.run(3) if isinstance(effect, Connect)] == []
    for _ in range(3):
        node.step(LinkFailed("n2", refused=False))
        effects = node.run(0.5)
        assert [effect for effect in effects if isinstance(effect, Connect)] == [Connect("n2")]


def test_hello_waits_until_all_received_bytes_are_synced() -> None:
    """The end in HELLO counts as acknowledged: bytes of the link before that are not on the disk do not count."""
    node = following()
    node.receive(1, data())
    node.relink(2)
    assert node.effects == []
    node.step(Written(LOG_END + 8))
    assert node.effects == []
    node.step(Synced(LOG_END + 8))
    assert [one.end for one in node.sent(Hello)] == [LOG_END + 8]


def test_a_link_that_is_not_wanted_any_more_is_closed() -> None:
    """A connection that is established twice, or during a campaign."""
    node = linked()
    node.step(Linked(2, "n2"))
    assert node.closed() == {2: "not needed any more"}


@pytest.mark.parametrize("message", [Hello("g", "n3", "c", 9, HISTORY, 0, 9, 1), Beat(1, 0), data(), Ack(1, 5, 5)])
def test_a_node_that_takes_a_follower_for_the_leader_is_refused(message: Message) -> None:
    """Its link is closed, whatever it sends; the refusal of HELLO carries this node's promise."""
    node = following()
    node.receive(7, message)
    assert node.sent(Refused) == ([Refused(1, "n1 does not lead")] if isinstance(message, Hello) else [])
    assert list(node.closed()) == [7]


# WELCOME


def test_a_higher_epoch_is_promised_on_the_disk_before_anything_else() -> None:
    """Rule 1: no acknowledgement and no truncation before `haState` is written."""
    node = linked()
    node.receive(1, welcome(start=900, epoch=4))
    assert node.effects == [StoreState(HaState(4, "a", 0))]
    node.store_state()
    assert node.effects == [SetEnd(900)]


def test_a_lower_epoch_is_refused_with_the_promise() -> None:
    """A WELCOME of an older leader."""
    node = linked(state=HaState(5, "a", 0))
    node.receive(1, welcome(epoch=4))
    assert node.sent(Refused)[0].epoch == 5
    assert list(node.closed()) == [1]


def test_beats_during_the_promise_and_the_truncation_keep_the_link() -> None:
    """A slow disk does not make the follower connect again and again. The committed mark is not taken from them: the
    log is not a prefix of the leader's yet."""
    node = linked()
    node.receive(1, welcome(start=900, epoch=4))
    beat = Beat(4, LOG_END)
    for _ in range(3):
        promise = node.effects
        assert node.receive(1, beat) == []
        node.effects = promise
    node.store_state()
    assert node.receive(1, beat) == []
    assert node.node.local.committed == 0
    node.step(EndSet(900))
    assert node.sent(Ack) == [Ack(4, 900, 900)]
    assert not node.closed()


@pytest.mark.parametrize("after_promise", [False, True])
def test_a_link_that_ends_during_a_promise_or_truncation_has_no_effect_later(*, after_promise: bool) -> None:
    """The promise of a link that was replaced neither truncates nor acknowledges; the new link begins with HELLO."""
    node = linked()
    node.receive(1, welcome(start=900, epoch=4))
    stored = node.the(StoreState)
    if after_promise:
        node.store_state()
    node.relink(2)
    assert bool(node.sent(Hello)) is not after_promise  # while the log is being truncated, its end is not known
    if after_promise:
        node.step(EndSet(900))
        assert [one.end for one in node.sent(Hello)] == [900]
    else:
        node.effects = [stored]
        assert node.store_state() == []
    assert node.node.local.promised == 4


def test_a_second_promise_overtakes_the_first() -> None:
    """The link of epoch 4 ends before its promise is stored; the WELCOME of epoch 6 is adopted once both are."""
    node = linked()
    node.receive(1, welcome(start=900, epoch=4))
    first = node.effects
    node.relink(2)
    node.receive(2, welcome(start=950, epoch=6))
    second = node.effects
    node.effects = first
    assert node.store_state() == []
    node.effects = second
    assert node.store_state() == [SetEnd(950)]


# Truncation


@pytest.mark.parametrize(
    ("start", "mark", "result"),
    [
        (LOG_END, 700, [Ack(1, LOG_END, LOG_END)]),  # nothing to truncate
        (700, 700, [SetEnd(700)]),  # to the committed mark
        (699, 700, [Stop]),  # below it: damaged (rule 7)
        (LOG_END + 1, 700, []),  # beyond the end
    ],
)
def test_a_truncation_ends_at_the_committed_mark(start: int, mark: int, result: list[object]) -> None:
    """Below its own committed mark a node stops; beyond its end it drops the link."""
    node = linked(state=HaState(1, "a", mark))
    node.receive(1, welcome(start))
    found = [*node.sent(Ack), *node.all(SetEnd), *map(type, node.all(Stop))]
    assert found == result
    assert bool(node.closed()) is (start not in (LOG_END, 700))


def test_nothing_is_written_before_the_truncation_is_on_the_disk() -> None:
    """Data that come before the first ACK break the order: the link is dropped and the truncation goes on."""
    node = linked()
    node.receive(1, welcome(900))
    node.receive(1, data(900))
    assert (node.all(Write), list(node.closed())) == ([], [1])
    assert node.step(EndSet(900)) == []


def test_a_mark_far_beyond_the_own_log_does_not_hinder_a_truncation() -> None:
    """The leader has committed 5,000; this log has 1,000 bytes, 900 of them common with the next leader."""
    node = following()
    node.receive(1, Beat(1, 5000))
    assert node.node.local.committed == 5000
    node.relink(2)
    node.receive(2, welcome(LOG_END))
    assert node.sent(Ack) == [Ack(1, LOG_END, LOG_END)]
    assert node.run(2, Reached("n2"))  # marks are written
    assert node.node.local._last.committed == LOG_END


def test_an_empty_log_begins_where_the_leaders_data_begin() -> None:
    """The leader's retention removed the first 5,000 bytes. The history of those bytes comes with WELCOME and is kept:
    without it the next leader would find no common epoch."""
    node = linked(log=EMPTY, state=HaState(1, "a", 0))
    history = EpochHistory((FOUNDED, Epoch(1, 100)))
    node.receive(1, Welcome(1, 5000, 6000, history))
    assert node.effects == [SetEnd(5000)]
    node.step(EndSet(5000))
    assert (node.the(KeepEpochs).epochs, node.sent(Ack)) == (history, [Ack(1, 5000, 5000)])
    node.receive(1, data(5000))
    node.step(Written(5008))
    node.step(Synced(5008))
    node.relink(2)
    (again,) = node.sent(Hello)
    assert (again.start, again.end, again.epochs) == (5000, 5008, history)


# DATA


def test_data_are_written_in_order_and_acknowledged_once_synced() -> None:
    """Rule 8: written bytes are reported, and only synced bytes are acknowledged as such."""
    node = following()
    node.receive(1, data())
    assert node.effects == [Write(LOG_END, b"x" * 8)]
    node.receive(1, data(LOG_END + 8))
    node.step(Written(LOG_END + 16))
    node.receive(1, Beat(1, 0))
    assert node.sent(Ack) == [Ack(1, LOG_END + 16, LOG_END)]
    node.step(Synced(LOG_END + 8))
    assert node.sent(Ack) == [Ack(1, LOG_END + 16, LOG_END + 8)]


def test_data_may_be_acknowledged_at_once_if_all_before_is_synced() -> None:
    """And the link is the one that this node follows, in an epoch that is not below its promise (rules 1 and 8)."""
    node = following().node
    assert node.may_copy(1, data())
    refused = [(2, data()), (1, data(LOG_END + 8)), (1, data(LOG_END - 8)), (1, data(epoch=2)), (1, data(epoch=0))]
    assert not any(node.may_copy(*each) for each in refused)
    assert not linked().node.may_copy(1, data())


def test_data_are_not_acknowledged_at_once_behind_bytes_that_are_not_synced() -> None:
    node = following()
    node.receive(1, data())
    assert not node.node.may_copy(1, data(LOG_END + 8))
    node.step(Written(LOG_END + 8))
    assert not node.node.may_copy(1, data(LOG_END + 8))
    node.step(Synced(LOG_END + 8))
    assert node.node.may_copy(1, data(LOG_END + 8))


def test_a_copy_moves_the_log_and_shows_what_is_committed() -> None:
    """It is acknowledged already. A link that has ended meanwhile does not matter: the bytes are on the disk."""
    node = following()
    assert node.step(Copied(1, LOG_END + 8, LOG_END)) == [Show(LOG_END)]
    node.step(Unlinked(1))
    assert node.step(Copied(1, LOG_END + 16, LOG_END + 8)) == [Show(LOG_END + 8)]
    local = node.node.local
    assert (local.written, local.synced, local.committed) == (LOG_END + 16, LOG_END + 16, LOG_END + 8)


def test_a_node_that_ends_copies_nothing() -> None:
    node = following()
    node.step(SyncFailed())
    assert not node.node.may_copy(1, data())


@pytest.mark.parametrize("offset", [0, LOG_END - 8, LOG_END + 8])
def test_data_at_a_wrong_offset_end_the_link(offset: int) -> None:
    """Nothing is written."""
    node = following()
    node.receive(1, data(offset))
    assert (node.all(Write), list(node.closed())) == ([], [1])


@pytest.mark.parametrize("message", [data(epoch=2), Beat(2, 0), Welcome(3, 0, 0, HISTORY), Ack(3, 0, 0)])
def test_messages_out_of_order_end_the_link(message: Message) -> None:
    """Another epoch than that of the WELCOME, a second WELCOME, a message that a leader never receives."""
    node = following(epoch=3)
    node.receive(1, message)
    assert (node.all(Write), list(node.closed())) == ([], [1])


@pytest.mark.parametrize("message", [data(), Beat(1, 0), Welcome(1, 0, 0, HISTORY)])
def test_messages_before_hello_end_the_link(message: Message) -> None:
    """A leader that sends before it was asked, while this node's disk still syncs."""
    node = following()
    node.receive(1, data())
    node.relink(2)
    assert node.sent(Hello) == []
    node.receive(2, message)
    assert (node.all(Write), list(node.closed())) == ([], [2])


def test_committed_bytes_are_shown_once_they_are_synced_here() -> None:
    """Rule 4: what the leader has committed is not visible on a node that does not have it."""
    node = following()
    node.receive(1, data(committed=LOG_END + 4))
    assert node.the(Show).end == LOG_END
    node.step(Written(LOG_END + 8))
    assert not node.all(Show)
    node.step(Synced(LOG_END + 8))
    assert node.the(Show).end == LOG_END + 4
    assert not [effect for effect in node.receive(1, Beat(1, 20)) if isinstance(effect, Show)]  # never back


def test_a_recovered_node_shows_its_committed_mark_and_no_more() -> None:
    """The rest of the log is not known to be committed."""
    node = Driven(HaState(1, "a", 600))
    node.step(Tick())
    assert node.the(Show).end == 600


def test_a_failed_sync_ends_the_store() -> None:
    """Rule 8: the node starts again under a new store id, and does nothing more before."""
    node = following()
    node.step(SyncFailed())
    assert node.the(Restart).new_store
    assert node.run(3) == []
    assert node.node.refusal == "this node restarts its store"


def test_a_store_that_lost_acknowledged_bytes_stops() -> None:
    """Only a refusal that says so stops it; after any other one the node connects again."""
    node = linked()
    node.receive(1, Refused(1, "format 2 is in use"))
    assert (list(node.closed()), node.all(Stop)) == ([1], [])
    node.relink(2)
    node.receive(2, Refused(1, "bytes are lost", lost=True))
    assert node.the(Stop).reason == "bytes are lost"


@pytest.mark.parametrize(("silence", "closed"), [(1.9, False), (2.2, True)])
def test_a_silent_leader_is_left(silence: float, *, closed: bool) -> None:
    """After 2 s the link is closed, and a new one is asked for."""
    node = following()
    effects = node.run(silence)
    assert any(isinstance(effect, Connect) for effect in effects) is closed


def test_a_leader_is_not_silent_while_its_bytes_arrive() -> None:
    """Or while this node does not read: for 2 s after that, too. Only of the link in use."""
    node = following()
    node.run(1.9)
    node.step(Heard(1))
    assert not any(isinstance(effect, Connect) for effect in node.run(1.9))
    node.step(Heard(2))
    assert any(isinstance(effect, Connect) for effect in node.run(0.6))


# The record


def test_a_new_leader_is_followed_at_once() -> None:
    """A member's sign of life shows a newer term: the record is read, the old link is closed, n3 is connected."""
    node = following()
    node.step(LifeSeen("n3", Life("c", 1)))
    assert not node.all(Read)  # the epoch that the record has
    node.step(LifeSeen("n3", Life("c", 2)))
    assert node.all(Read) == [Read()]
    node.read(record(epoch=2, leader="n3"))
    assert node.closed() == {1: "n3 leads in epoch 2"}
    node.run(0.6)
    assert [effect.node for effect in node.all(Connect)] == ["n3"]


def test_a_change_of_the_set_keeps_the_link() -> None:
    """So does a resignation: the leader closes its links itself."""
    node = following()
    for value in (record(in_sync="ab"), record(leader="")):
        node.run(2)
        node.receive(1, Beat(1, 0))
        node.step(Tick())
        node.read(value)
        assert not node.closed()


def test_a_static_leader_is_followed_without_elections() -> None:
    """Without a store of decisions the owner responds to reads with a record of an empty set, which names the leader:
    this node follows it, and never campaigns."""
    static = record(epoch=0, leader="n2", in_sync="")
    node = following(value=static)
    node.receive(1, Beat(1, LOG_END))
    assert node.the(Show).end == LOG_END
    node.step(LinkFailed("n2", refused=True))
    node.step(LifeSeen("n2", None))
    node.step(Unlinked(1))
    for _ in range(30):
        effects = node.run(0.5, Reached("n2"), Reached("n3"))
        assert not [effect for effect in effects if isinstance(effect, Swap)]
        if node.node.decisions.busy:
            node.read_again()
    assert node.node.local.promised == 1
