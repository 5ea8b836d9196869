"""Tests of a leader: its epoch record, followers and their acknowledgements, what is shown."""

from typing import Any, Final

import msgspec
import pytest

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory, founded
from skylarkmq.broker.ha.core.events import (
    BeginTerm,
    Feed,
    HaState,
    Linked,
    Read,
    Restart,
    Send,
    Show,
    StartSet,
    StoreState,
    Swap,
    Synced,
    SyncFailed,
    Unlinked,
    Written,
)
from skylarkmq.broker.ha.core.local import Log
from skylarkmq.broker.ha.core.messages import Ack, Beat, Data, Message, Refused, Welcome
from tests.broker.ha.core.driven import (
    HISTORY,
    LOG_END,
    MEMBERS,
    Driven,
    acknowledged,
    campaigning,
    hello,
    leading,
    record,
    welcomed,
    written,
)

FOUNDED = founded("a")

TERM_END: Final = LOG_END + 8
"""End of the epoch record of epoch 2."""
TWO: Final = record(leader="", in_sync="ab")


def shown(node: Driven) -> list[int]:
    return [effect.end for effect in node.all(Show)]


# The term


def test_nothing_is_shown_before_the_epoch_record_is_committed() -> None:
    """Rule 6: the bytes before it are committed with it, and not by themselves."""
    node = campaigning(TWO)
    node.store_state()
    node.swapped()
    assert node.all(BeginTerm) == [BeginTerm(2, ("a", "b"))]
    refusals = [node.node.refusal]
    welcomed(node, 1)
    written(node, 2)
    refusals.append(node.node.refusal)
    assert refusals == ["the epoch record is not written yet", None]
    assert shown(node) == []
    assert acknowledged(node, 1, TERM_END - 1) == []
    acknowledged(node, 1, TERM_END)
    assert shown(node) == [TERM_END]


def test_writes_of_the_follower_that_it_was_do_not_begin_the_term() -> None:
    """Bytes that were received before the campaign may still be on their way to the log, with an older epoch."""
    node = campaigning(TWO)
    node.store_state()
    node.swapped()
    node.step(Written(LOG_END + 40))
    refusals = [node.node.refusal]
    node.step(Written(LOG_END + 48, (Epoch(2, LOG_END + 40),)))
    refusals.append(node.node.refusal)
    assert refusals == ["the epoch record is not written yet", None]


def test_what_is_synced_by_all_is_shown_once() -> None:
    """The lowest synced end of the set; bytes that are only written do not count; nothing is shown twice."""
    node = leading(TWO)
    welcomed(node, 1)
    node.step(Written(TERM_END + 100))
    node.step(Synced(TERM_END + 90))
    node.receive(1, Ack(2, TERM_END + 100, TERM_END + 50))
    assert shown(node) == [TERM_END + 50]
    acknowledged(node, 1, TERM_END + 50)
    assert shown(node) == []
    acknowledged(node, 1, TERM_END + 100)
    assert shown(node) == [TERM_END + 90]


def test_nothing_is_committed_below_min() -> None:
    """A set of one with min 2: messages are refused with the number of missing copies; one follower makes it whole."""
    node = leading(record(leader="", in_sync="a"))
    assert node.node.refusal == "the set has 1 of 2 synced copies"
    assert not node.all(Show)
    welcomed(node, 1)
    acknowledged(node, 1, TERM_END)
    node.healthy(0.1)
    assert node.the(Swap).record.in_sync == ("a", "b")
    assert not node.all(Show)
    node.swapped()
    assert shown(node) == [TERM_END]
    assert node.node.refusal is None


def test_with_acks_of_the_leader_its_own_sync_is_shown() -> None:
    """ASYNC_MASTER: messages are acknowledged without followers; they get only what the set has as committed."""
    node = leading(msgspec.structs.replace(TWO, acks="leader"))
    assert shown(node) == []
    node.step(Written(TERM_END + 100))
    node.step(Synced(TERM_END + 100))
    assert shown(node) == [TERM_END + 100]
    welcomed(node, 1)
    acknowledged(node, 1, TERM_END + 10)
    assert (shown(node), node.node.local.committed) == ([], TERM_END + 10)
    beats = [effect.message for effect in node.healthy(0.6) if isinstance(effect, Send)]
    assert beats == [Beat(2, TERM_END + 10)]


def test_with_acks_of_the_leader_a_set_below_min_accepts_messages() -> None:
    """`min` limits what is committed, which is not what is acknowledged here."""
    node = leading(record(leader="", in_sync="a", acks="leader"))
    assert node.node.refusal is None
    assert node.node.local.committed == 0


# HELLO


def test_data_begin_after_the_first_acknowledgement() -> None:
    """WELCOME says where they begin; the follower may have to promise and truncate before."""
    node = leading(TWO)
    node.receive(1, hello(end=LOG_END + 500))
    assert node.effects == [Send(1, Welcome(2, LOG_END, 0, HISTORY))]
    acknowledged(node, 1, LOG_END)
    assert node.all(Feed) == [Feed(1, 2, LOG_END)]
    acknowledged(node, 1, TERM_END)
    assert node.all(Feed) == []


NEWER: Final = EpochHistory((*HISTORY.entries, Epoch(2, LOG_END)))


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({}, LOG_END),
        ({"end": 400}, 400),  # behind
        ({"end": LOG_END + 999}, LOG_END),  # beyond the end of epoch 1
        ({"end": TERM_END, "epochs": NEWER}, TERM_END),  # equal
        ({"end": TERM_END + 7, "epochs": NEWER}, TERM_END),  # an offset beyond the leader's end
        ({"epochs": EpochHistory((Epoch(1, 0), Epoch(2, 600)))}, 600),  # a diverged log
        ({"start": 0, "end": 0, "epochs": EpochHistory()}, 0),  # empty
        ({"start": 700, "end": 700, "epochs": EpochHistory()}, 700),  # empty after a truncation to its start
        ({"start": 9999, "end": 9999, "epochs": EpochHistory()}, 0),  # empty, beyond the end
        ({"start": 300, "end": 500}, 500),  # its retention removed the first 300 bytes
    ],
)
def test_where_the_data_of_a_follower_begin(fields: dict[str, Any], start: int) -> None:
    """At the end of the longest common prefix (rule 7)."""
    node = leading(TWO)
    node.receive(1, hello(**fields))
    assert [welcome.start for welcome in node.sent(Welcome)] == [start]


REFUSALS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"group": "other"}, "this is group g, not other"),
    ({"node": "n1"}, "names and stores must differ"),  # the leader's name
    ({"store_id": "a"}, "names and stores must differ"),  # the leader's store
    ({"store_id": "c"}, "store c belongs to n3"),  # a copied disk
    ({"format": 0}, "format 1 is in use, this node reads up to 0"),
    ({"promised": 3}, "epoch 3 is promised"),
    ({"epochs": EpochHistory()}, "start with an empty directory"),  # bytes of another group, or of a single broker
    ({"epochs": EpochHistory((Epoch(1, 8),))}, "start with an empty directory"),
]


@pytest.mark.parametrize(("fields", "reason"), REFUSALS)
def test_bad_followers_are_refused_with_a_reason(fields: dict[str, Any], reason: str) -> None:
    """The refusal has the leader's epoch; the link is closed, and no data are sent."""
    node = leading(TWO)
    node.receive(1, hello(**fields))
    (refused,) = node.sent(Refused)
    assert reason in refused.reason
    assert (refused.epoch, refused.lost, list(node.closed())) == (2, False, [1])
    assert not node.all(Feed)
    node.run(1.0)
    assert not node.sent(Beat)


@pytest.mark.parametrize("fields", [{"group": "other"}, {"node": "n1"}, {"store_id": "c"}, {"format": 0}])
def test_the_epoch_of_a_foreign_node_is_of_no_interest(fields: dict[str, Any]) -> None:
    """A node of another group, however high its promise, does not make the leader renew its term."""
    node = leading(TWO)
    node.receive(1, hello(promised=99, **fields))
    assert node.sent(Refused)[0].epoch == 2
    assert (node.all(StoreState), node.all(Read), node.node.local.promised) == ([], [], 2)


def test_a_store_that_another_linked_node_has_is_refused() -> None:
    """Also before it is a member."""
    node = leading(TWO)
    welcomed(node, 1, "x", "n4")
    node.receive(2, hello("x", "n5"))
    assert "store x belongs to n4" in node.sent(Refused)[0].reason


def test_a_store_that_two_members_have_is_refused() -> None:
    """A record edited by hand: the reason names the other member."""
    node = leading(record(leader="", in_sync="ab", members={**MEMBERS, "n3": MEMBERS["n2"]}))
    node.receive(1, hello())
    assert "store b belongs to n3" in node.sent(Refused)[0].reason


def test_a_wiped_disk_under_an_old_name_is_another_store() -> None:
    """n2 comes back with an empty disk and store x: it copies everything, and does not count as b."""
    node = leading(TWO)
    welcomed(node, 1)
    node.receive(2, hello("x", start=0, end=0, epochs=EpochHistory()))
    assert node.closed() == {1: "replaced by another link"}
    assert [welcome.start for welcome in node.sent(Welcome)] == [0]
    acknowledged(node, 2, 0)
    acknowledged(node, 2, TERM_END)
    assert not node.all(Show)  # b is needed, as long as it is recorded


def test_a_store_that_lost_acknowledged_bytes_is_refused_for_good() -> None:
    """Rule 8: its end is lower than what it acknowledged in this term. One that kept all of it is welcome."""
    node = leading(TWO)
    welcomed(node, 1)
    acknowledged(node, 1, TERM_END)
    node.step(Unlinked(1))
    node.receive(2, hello(end=TERM_END - 1, epochs=NEWER))
    assert node.sent(Refused)[0].lost
    node.receive(3, hello(end=TERM_END, epochs=NEWER))
    assert node.sent(Welcome)[0].start == TERM_END


def test_retention_moves_where_data_begin() -> None:
    """The leader's log begins at 600 now: an empty follower begins there and gets the history of what is gone; a log
    that ends before is of no use."""
    node = leading(TWO)
    node.step(StartSet(600))
    node.receive(1, hello(start=0, end=0, epochs=EpochHistory()))
    assert node.sent(Welcome) == [Welcome(2, 600, 0, HISTORY)]
    node.receive(2, hello("c", "n3", end=599))
    assert "start with an empty directory" in node.sent(Refused)[0].reason
    node.receive(3, hello("c", "n3", end=600))
    assert node.sent(Welcome)[0].start == 600


def test_an_interrupted_copy_of_the_founders_bytes_goes_on() -> None:
    """A group was founded with a log of 1,000 bytes, which no epoch record begins: the copy has the founder's entry."""
    node = leading(TWO, log=Log(0, LOG_END, EpochHistory((FOUNDED,))))
    node.receive(1, hello(start=0, end=0, epochs=EpochHistory()))
    assert node.sent(Welcome)[0].epochs == EpochHistory((FOUNDED,))
    node.receive(2, hello(start=0, end=400, epochs=EpochHistory((FOUNDED,))))
    assert node.sent(Welcome)[0].start == 400


# Links


def test_a_new_link_replaces_the_older_one_of_the_same_node() -> None:
    """Acknowledgements over the older link count no more."""
    node = leading(TWO)
    welcomed(node, 1)
    node.receive(2, hello())
    assert node.closed() == {1: "replaced by another link"}
    acknowledged(node, 1, TERM_END)
    assert (node.all(Show), list(node.closed())) == ([], [1])


@pytest.mark.parametrize(
    "message",
    [
        Ack(1, LOG_END, LOG_END),  # another epoch
        Ack(3, LOG_END, LOG_END),
        Ack(2, TERM_END + 1, LOG_END),  # beyond the end
        Ack(2, LOG_END, LOG_END + 1),  # synced beyond written
        Ack(2, LOG_END - 8, LOG_END - 8),  # the first one is not where the data begin
        hello(),  # a second HELLO
        Welcome(2, 0, 0, HISTORY),
        Beat(2, 0),
        Data(2, TERM_END, 0, b"x"),
    ],
)
def test_a_follower_that_breaks_the_order_is_disconnected(message: Message) -> None:
    """Nothing of it counts, and the other followers stay."""
    node = leading(TWO)
    node.receive(1, hello())
    node.receive(1, message)
    assert (list(node.closed()), node.all(Show), node.all(Feed)) == ([1], [], [])
    acknowledged(node, 1, TERM_END)
    assert not node.all(Show)


@pytest.mark.parametrize("message", [Ack(2, TERM_END, TERM_END), Beat(2, 9), Refused(99, "no")])
def test_messages_before_hello_close_the_link(message: Message) -> None:
    """A peer without identity counts for nothing, and cannot raise the epoch."""
    node = leading(TWO)
    node.receive(5, message)
    assert (list(node.closed()), node.node.local.promised, node.all(Show)) == ([5], 2, [])


def test_beats_carry_the_committed_mark() -> None:
    """Each 0.5 s, also while a follower still truncates its log, which therefore does not take the leader for dead."""
    node = leading(TWO)
    node.receive(1, hello())
    effects = [effect for effect in node.healthy(2.2) if isinstance(effect, Send)]
    assert [effect.message for effect in effects][:3] == [Beat(2, 0)] * 3


def test_a_link_that_it_asked_for_as_a_follower_is_closed() -> None:
    """The connection was under way when the campaign was won."""
    node = leading(TWO)
    node.step(Linked(9, "n2"))
    assert list(node.closed()) == [9]


def test_a_failed_sync_ends_the_term_and_the_store() -> None:
    """Rule 8: nothing more is committed, and the node does not lead from that moment on."""
    node = leading(TWO)
    welcomed(node, 1)
    node.step(SyncFailed())
    assert node.all(Restart) == [Restart("a sync of the log failed", new_store=True)]
    assert node.node.leading is None
    assert acknowledged(node, 1, TERM_END) == []


def test_a_mark_beyond_the_log_is_never_taken_back() -> None:
    """A follower that knew of 5,000 committed bytes and has 1,008 (`elect --lose-data`): nothing is shown below it."""
    node = leading(TWO, state=HaState(1, "a", 5000))
    welcomed(node, 1)
    acknowledged(node, 1, TERM_END)
    assert not node.all(Show)


def test_members_keep_their_addresses_and_get_the_new_store() -> None:
    """A node that replaced its disk joins with its new store under its old address."""
    members = {**MEMBERS, "n2": msgspec.structs.replace(MEMBERS["n2"], address="h:1", ha="h:2")}
    node = leading(record(leader="", in_sync="ac", members=members))
    for link, (store_id, name) in enumerate((("x", "n2"), ("c", "n3"), ("y", "n4")), 1):
        welcomed(node, link, store_id, name)
        acknowledged(node, link, TERM_END)
    for _ in range(60):
        for link in (1, 2, 3):
            acknowledged(node, link, TERM_END)
        node.healthy(0.1)
        if node.all(Read):
            node.read_again()
        if node.all(Swap):
            break
    changed = node.the(Swap).record
    assert changed.in_sync == ("a", "c", "x", "y")
    assert (changed.members["n2"].store_id, changed.members["n2"].address) == ("x", "h:1")
    assert changed.members["n4"].store_id == "y"
