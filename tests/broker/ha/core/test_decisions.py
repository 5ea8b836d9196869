"""Tests of the view of the store of decisions: a missing response is no result."""

from typing import Final

import pytest

from skylarkmq.broker.ha.core.decisions import KEPT_ATTEMPTS, RETRY_S, Decisions, Outcome
from skylarkmq.broker.ha.core.events import (
    Effect,
    Event,
    Read,
    ReadFailed,
    RecordRead,
    Swap,
    Swapped,
    SwapRefused,
    SwapUnknown,
)
from skylarkmq.broker.ha.core.record import GroupRecord
from tests.broker.ha.core.driven import record

OTHER: Final = record(epoch=9, nonce="other-1")
SAME, MOVED, OWN = Outcome(False, False), Outcome(True, False), Outcome(True, True)
OPEN: Final = Outcome(moved=False, own=False, open=True)


def known(revision: int = 5) -> tuple[Decisions, list[Effect]]:
    """Return decisions that have read the record, and their list of effects."""
    effects: list[Effect] = []
    decisions = Decisions("run", effects)
    decisions.read(0)
    assert decisions.handle(RecordRead(record(), revision), 0) == MOVED
    effects.clear()
    return decisions, effects


def swap(decisions: Decisions, effects: list[Effect], value: GroupRecord, response: Event) -> Outcome | None:
    decisions.swap(value, None, 0)
    assert isinstance(effects[-1], Swap)
    return decisions.handle(response, 0)


def attempt(effects: list[Effect], n: int = -1) -> GroupRecord:
    return [effect.record for effect in effects if isinstance(effect, Swap)][n]


def test_a_confirmed_swap_is_the_record() -> None:
    """Each swap names the known revision, and has a nonce of its own."""
    decisions, effects = known()
    assert swap(decisions, effects, record(epoch=2), Swapped(6)) == OWN
    assert (effects[-1].revision, decisions.record, decisions.revision) == (5, attempt(effects), 6)  # type: ignore[union-attr]
    assert swap(decisions, effects, record(epoch=3), Swapped(7)) == OWN
    assert len({effect.record.nonce for effect in effects if isinstance(effect, Swap)}) == 2


@pytest.mark.parametrize("response", [SwapRefused(), SwapUnknown()])
def test_a_swap_that_is_not_confirmed_is_followed_by_a_read(response: Event) -> None:
    """There is no conclusion before it, and no second request beside it."""
    decisions, effects = known()
    assert swap(decisions, effects, record(epoch=2), response) is None
    assert (effects[-1], decisions.busy) == (Read(), True)


@pytest.mark.parametrize(
    ("response", "took_effect", "expected"),
    [
        (SwapUnknown(), "own", OWN),  # only the response was lost
        (SwapUnknown(), "other", MOVED),  # another node was first
        (SwapUnknown(), "none", OPEN),  # it may take effect later
        (SwapRefused(), "none", SAME),  # the absent key exists
        (SwapRefused(), "other", MOVED),
    ],
)
def test_a_read_after_a_swap_shows_its_result(response: Event, took_effect: str, expected: Outcome) -> None:
    """The nonce of a new revision names the writer; at the old revision an unknown swap stays possible."""
    decisions, effects = known()
    swap(decisions, effects, record(epoch=2), response)
    value, revision = {"own": (attempt(effects), 6), "other": (OTHER, 6), "none": (record(), 5)}[took_effect]
    assert decisions.handle(RecordRead(value, revision), 0) == expected


def test_an_older_swap_may_take_effect_after_a_later_one_was_requested() -> None:
    """The second of two swaps is refused, because the first has taken effect meanwhile: it is this node's."""
    decisions, effects = known()
    swap(decisions, effects, record(epoch=2), SwapUnknown())
    assert decisions.handle(RecordRead(record(), 5), 0) == OPEN
    swap(decisions, effects, record(epoch=3), SwapRefused())
    assert decisions.handle(RecordRead(attempt(effects, 0), 6), 0) == OWN
    assert decisions.record == attempt(effects, 0)


def test_a_refused_swap_leaves_the_unknown_one_before_it_open() -> None:
    """A swap refused at the known revision (a sign of life exists) does not settle the one before it."""
    decisions, effects = known()
    swap(decisions, effects, record(epoch=2), SwapUnknown())
    decisions.handle(RecordRead(record(), 5), 0)
    swap(decisions, effects, record(epoch=3), SwapRefused())
    assert decisions.handle(RecordRead(record(), 5), 0) == OPEN


def test_a_new_revision_ends_all_swaps_at_the_old_one() -> None:
    """After it, a read of the same revision has nothing open."""
    decisions, effects = known()
    swap(decisions, effects, record(epoch=2), SwapUnknown())
    assert decisions.handle(RecordRead(OTHER, 6), 0) == MOVED
    assert decisions.handle(RecordRead(OTHER, 6), 0) == SAME


def test_an_older_revision_changes_nothing() -> None:
    """A response of a lagging member of the store of decisions is not taken for news."""
    decisions, _ = known(revision=5)
    assert decisions.handle(RecordRead(OTHER, 4), 0) == SAME
    assert decisions.record == record()


def test_many_swaps_without_a_response_need_bounded_memory() -> None:
    """A store that accepts reads and loses swaps for days; the first swap takes effect after all."""
    decisions, effects = known()
    for epoch in range(2, 3 * KEPT_ATTEMPTS):
        swap(decisions, effects, record(epoch=epoch), SwapUnknown())
        assert decisions.handle(RecordRead(record(), 5), 0) == OPEN
    assert len(decisions._attempts) == KEPT_ATTEMPTS
    assert decisions.handle(RecordRead(attempt(effects, 0), 6), 0) == OWN
    assert decisions.record == attempt(effects, 0)


def test_a_failed_read_is_repeated() -> None:
    """Not before RETRY_S, and once."""
    decisions, effects = known()
    decisions.read(10)
    decisions.handle(ReadFailed(), 10.9)
    decisions.tick(10 + RETRY_S - 0.01)
    assert effects == [Read()]
    decisions.tick(10 + RETRY_S)
    decisions.tick(20)
    assert effects == [Read(), Read()]


def test_a_read_in_between_makes_the_repetition_needless() -> None:
    """A read that failed is not repeated beside a promise or a swap, once another read has succeeded."""
    decisions, effects = known()
    decisions.read(10)
    decisions.handle(ReadFailed(), 10)
    decisions.read(10.1)
    decisions.handle(RecordRead(record(), 5), 10.2)
    decisions.tick(20)
    assert effects == [Read(), Read()]


def test_one_request_at_a_time() -> None:
    """A read beside a request is not sent; a swap beside a request breaks an invariant."""
    decisions, effects = known()
    decisions.read(0)
    decisions.read(0)
    assert effects == [Read()]
    with pytest.raises(AssertionError, match="second request"):
        decisions.swap(record(), None, 0)
