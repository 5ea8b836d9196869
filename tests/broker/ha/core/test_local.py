"""Tests of what a node keeps on its disk: promises, the committed mark, the ends of its log."""

import pytest

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import Effect, HaState, KeepEpochs, StoreState
from skylarkmq.broker.ha.core.local import Local, Log


def local(promised: int = 3, committed: int = 10, start: int = 0, end: int = 100) -> Local:
    return Local(HaState(promised, "a", committed), Log(start, end, EpochHistory((Epoch(1, 0), Epoch(3, 50)))), [])


def states(one: Local) -> list[HaState]:
    return [effect.state for effect in one.effects if isinstance(effect, StoreState)]


@pytest.mark.parametrize(("epoch", "waits"), [(2, False), (3, False), (4, True)])
def test_a_promise_acts_once_it_is_on_the_disk(epoch: int, *, waits: bool) -> None:
    """A new promise is written first; one that was written before acts at once. Lower epochs are refused at once."""
    one, acted = local(), list[int]()
    one.promise(epoch, lambda: acted.append(epoch))
    assert (acted == [], one.promised) == (waits, max(epoch, 3))
    for state in states(one):
        one.stored(state)
    assert acted == [epoch]


def test_an_older_write_does_not_release_a_later_promise() -> None:
    """Of two writes under way, the first does not have the second promise."""
    one, acted = local(), list[int]()
    one.promise(4, lambda: acted.append(4))
    one.promise(6, lambda: acted.append(6))
    first, second = states(one)
    one.stored(first)
    assert acted == []
    one.stored(second)
    assert acted == [6]


def test_a_promise_that_is_being_written_is_not_written_again() -> None:
    """A disk that does not respond gets one write, whatever number of links asks for the promise; the last one acts."""
    one, acted = local(), list[int]()
    for link in range(5):
        one.promise(4, lambda link=link: acted.append(link))  # type: ignore[misc]
    (state,) = states(one)
    one.stored(state)
    assert acted == [4]


@pytest.mark.parametrize(("committed", "synced", "mark"), [(10, 100, None), (60, 100, 60), (500, 100, 100)])
def test_the_committed_mark_is_written_when_it_moved(committed: int, synced: int, mark: int | None) -> None:
    """It never exceeds the synced log: the leader's mark may be far beyond a follower's log."""
    one = local()
    one.committed, one.synced = committed, synced
    one.keep_committed_mark()
    assert [state.committed for state in states(one)] == ([] if mark is None else [mark])


def test_the_mark_waits_for_the_write_before_it() -> None:
    """A disk that does not respond gets one write of the mark."""
    one = local()
    for one.committed in (20, 30, 40):
        one.keep_committed_mark()
    (state,) = states(one)
    assert state.committed == 20
    one.stored(state)
    one.keep_committed_mark()
    assert states(one)[-1] == HaState(3, "a", 40)


def test_a_promise_never_takes_the_mark_back() -> None:
    """A promise made after a truncation of the log's end keeps the highest mark that was written."""
    one = local(committed=60)
    one.end_set(60)
    one.committed = 55
    one.promise(9, lambda: None)
    assert states(one) == [HaState(9, "a", 60)]


@pytest.mark.parametrize(
    ("start", "end", "to", "expected"),
    [
        (0, 100, 50, (0, 50, 1)),  # the epoch at 50 goes
        (0, 100, 51, (0, 51, 2)),
        (0, 100, 0, (0, 0, 0)),
        (0, 0, 700, (700, 700, 2)),  # an empty log begins elsewhere
        (40, 100, 40, (40, 40, 1)),
    ],
)
def test_a_truncation_moves_the_ends_and_the_history(
    start: int, end: int, to: int, expected: tuple[int, int, int]
) -> None:
    """The start, the end (written and synced), and the epochs that are left."""
    one = local(start=start, end=end)
    one.end_set(to)
    assert (one.start, one.written, len(one.epochs.entries)) == expected
    assert one.synced == one.written


@pytest.mark.parametrize(("to", "start"), [(39, 40), (40, 40), (64, 64)])
def test_retention_moves_the_start_forward(to: int, start: int) -> None:
    """The start never goes back; the history stays, because later epochs are compared with it."""
    one = local(start=40)
    one.begins_at(to)
    assert (one.start, len(one.epochs.entries)) == (start, 2)


def test_the_epochs_of_written_bytes_are_kept() -> None:
    """Retention may remove the bytes that show them. Bytes without an epoch record write no file."""
    one, longer = local(), EpochHistory((Epoch(1, 0), Epoch(3, 50), Epoch(4, 120)))
    one.extended(120, ())
    assert one.effects == []
    one.extended(300, (Epoch(4, 120),))
    assert one.effects == list[Effect]([KeepEpochs(longer)])
    assert (one.written, one.epochs) == (300, longer)


def test_a_history_is_kept_only_if_it_is_another_one() -> None:
    """`epochFileCheckpoint` is not replaced by itself at each WELCOME."""
    one, longer = local(), EpochHistory((Epoch(1, -1), Epoch(3, 50)))
    one.keep_epochs(one.epochs)
    one.keep_epochs(longer)
    assert one.effects == list[Effect]([KeepEpochs(longer)])
