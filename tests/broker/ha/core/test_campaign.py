"""Tests of campaigns: read, promise, swap; and each way in which a response can be missing."""

from typing import Final

import pytest

from skylarkmq.broker.ha.core.campaign import Campaign, State
from skylarkmq.broker.ha.core.decisions import Decisions, Outcome
from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import (
    Effect,
    Event,
    HaState,
    Read,
    RecordRead,
    StateStored,
    StoreState,
    Swap,
    Swapped,
    SwapRefused,
    SwapUnknown,
)
from skylarkmq.broker.ha.core.local import Local, Log
from skylarkmq.broker.ha.core.record import GroupRecord
from tests.broker.ha.core.driven import record

BEFORE: Final = record(epoch=4, leader="n2")
SUCCESSOR: Final = record(epoch=9, leader="n3", nonce="other-1")


class Candidate:
    """n1, which may begin a term as long as n2 or n1 is recorded. Its promise is 6, the record's epoch 4."""

    def __init__(self, promised: int = 6) -> None:
        self.effects: list[Effect] = []
        self.local = Local(HaState(promised, "a", 0), Log(0, 0, EpochHistory()), self.effects)
        self.decisions = Decisions("run", self.effects)
        self.decisions.revision = 5
        self.decisions.record = BEFORE
        self.in_sync = frozenset("ab")
        self.campaign = Campaign(self.local, self.decisions, self.proposal, 0)

    def proposal(self, value: GroupRecord | None) -> tuple[GroupRecord, str | None] | None:
        if value is None or value.leader == "n3":
            return None
        return value.with_leader(0, "n1", self.in_sync), "n2"

    def respond(self, event: Event) -> None:
        """Pass a response of the store of decisions, or of the disk."""
        if isinstance(event, StateStored):
            self.local.stored(event.state)
        elif outcome := self.decisions.handle(event, 0):
            self.campaign.on_outcome(outcome, 0)

    def promise(self) -> None:
        """Read the record, and store the promise."""
        self.respond(RecordRead(BEFORE, 5))
        (state,) = (effect.state for effect in self.effects if isinstance(effect, StoreState))
        self.respond(StateStored(state))

    @property
    def swaps(self) -> list[Swap]:
        return [effect for effect in self.effects if isinstance(effect, Swap)]


@pytest.mark.parametrize(("promised", "epoch"), [(3, 5), (4, 5), (6, 7)])
def test_a_term_is_above_the_record_and_above_the_own_promise(promised: int, epoch: int) -> None:
    """The order: read, promise on the disk, swap."""
    candidate = Candidate(promised)
    assert candidate.effects == [Read()]
    candidate.respond(RecordRead(BEFORE, 5))
    assert candidate.effects[1:] == [StoreState(HaState(epoch, "a", 0))]
    candidate.respond(StateStored(HaState(epoch, "a", 0)))
    (swap,) = candidate.swaps
    assert (swap.record.epoch, swap.record.leader, swap.record.in_sync) == (epoch, "n1", ("a", "b"))
    assert (swap.revision, swap.absent) == (5, "n2")
    candidate.respond(Swapped(6))
    assert candidate.campaign.state is State.WON


def test_a_campaign_ends_if_the_record_forbids_it() -> None:
    """Another node leads since the read: nothing is promised."""
    candidate = Candidate()
    candidate.respond(RecordRead(SUCCESSOR, 6))
    assert (candidate.campaign.state, candidate.local.promised, candidate.swaps) == (State.ENDED, 6, [])


def test_a_promise_above_the_term_ends_the_campaign() -> None:
    """This node has promised a higher epoch than the one that it wanted to lead in."""
    candidate = Candidate()
    candidate.respond(RecordRead(BEFORE, 5))
    candidate.local._last = HaState(9, "a", 0)
    candidate.respond(StateStored(HaState(7, "a", 0)))
    assert (candidate.campaign.state, candidate.swaps) == (State.ENDED, [])


@pytest.mark.parametrize("read", [(SUCCESSOR, 6), (BEFORE, 5)])
def test_a_refused_swap_ends_the_campaign(read: tuple[GroupRecord, int]) -> None:
    """Another node was first, or the leader has a sign of life."""
    candidate = Candidate()
    candidate.promise()
    candidate.respond(SwapRefused())
    candidate.respond(RecordRead(*read))
    assert (candidate.campaign.state, len(candidate.swaps)) == (State.ENDED, 1)


def test_a_lost_response_of_a_swap_that_took_effect_wins() -> None:
    """The nonce of the new record is this campaign's."""
    candidate = Candidate()
    candidate.promise()
    candidate.respond(SwapUnknown())
    candidate.respond(RecordRead(candidate.swaps[0].record, 6))
    assert candidate.campaign.state is State.WON


def test_a_swap_that_did_not_take_effect_yet_is_repeated() -> None:
    """At the old revision the first swap may still take effect: either one wins the term, with its own set."""
    candidate = Candidate()
    candidate.promise()
    candidate.respond(SwapUnknown())
    candidate.in_sync = frozenset("ac")
    candidate.respond(RecordRead(BEFORE, 5))
    first, second = candidate.swaps
    assert (first.record.in_sync, second.record.in_sync) == (("a", "b"), ("a", "c"))
    candidate.respond(SwapRefused())
    candidate.respond(RecordRead(first.record, 6))
    assert candidate.campaign.state is State.WON
    assert candidate.decisions.record == first.record


def test_another_swap_of_this_process_does_not_win_the_campaign() -> None:
    """A change of the set, requested before, takes effect late: its record has the old epoch, so no term has begun."""
    candidate = Candidate()
    candidate.respond(RecordRead(BEFORE, 5))
    candidate.decisions.swap(BEFORE.with_set(frozenset("abc")), None, 0)
    change = candidate.swaps[0]
    candidate.decisions.handle(SwapUnknown(), 0)
    candidate.decisions.handle(RecordRead(BEFORE, 5), 0)
    candidate.respond(StateStored(HaState(7, "a", 0)))
    candidate.respond(SwapRefused())
    candidate.respond(RecordRead(change.record, 6))
    assert candidate.campaign.state is State.ENDED


def test_a_promise_that_is_stored_during_a_read_waits_for_its_response() -> None:
    """Two requests at a time could have their responses mistaken: the set of the other swap would be believed."""
    candidate = Candidate()
    candidate.respond(RecordRead(BEFORE, 5))
    candidate.decisions.read(0)
    candidate.respond(StateStored(HaState(7, "a", 0)))
    assert (candidate.campaign.state, candidate.swaps) == (State.PROMISED, [])
    candidate.respond(RecordRead(BEFORE, 5))
    assert (candidate.campaign.state, len(candidate.swaps)) == (State.SWAPPING, 1)


def test_a_read_during_the_promise_may_end_the_campaign() -> None:
    """The record moved on while the promise was being stored."""
    candidate = Candidate()
    candidate.respond(RecordRead(BEFORE, 5))
    candidate.decisions.read(0)
    candidate.respond(RecordRead(SUCCESSOR, 6))
    assert candidate.campaign.state is State.PROMISING
    candidate.respond(StateStored(HaState(7, "a", 0)))
    assert (candidate.campaign.state, candidate.swaps) == (State.ENDED, [])


def test_a_term_that_began_during_the_promise_ends_the_campaign() -> None:
    """Another node took the same epoch meanwhile, and is gone already: a swap would begin that epoch a second time."""
    candidate = Candidate()
    candidate.respond(RecordRead(BEFORE, 5))
    candidate.decisions.read(0)
    candidate.respond(RecordRead(record(epoch=7, leader="n2", nonce="other-1"), 6))
    candidate.respond(StateStored(HaState(7, "a", 0)))
    assert (candidate.campaign.state, candidate.swaps) == (State.ENDED, [])


def test_a_campaign_that_ended_stays_ended() -> None:
    """A later outcome, which another part of the node asked for, changes nothing."""
    candidate = Candidate()
    candidate.respond(RecordRead(SUCCESSOR, 6))
    candidate.campaign.on_outcome(Outcome(moved=True, own=True), 0)
    assert candidate.campaign.state is State.ENDED
