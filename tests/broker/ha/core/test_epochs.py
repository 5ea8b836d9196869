"""Tests of epoch histories: the longest common prefix of two logs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory, founded
from tests.harness.rounds import rounds

FOUNDED = founded("a")

EPOCH_RECORD, MESSAGE = "epoch", "message"
Entry = tuple[str, int, int]  # kind, epoch, number


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory(tuple(Epoch(*entry) for entry in entries))


def of_log(log: list[Entry]) -> EpochHistory:
    """Return the history of a log of entries of one byte each. Message 0 of epoch 0 is the founder's."""
    return EpochHistory((FOUNDED, *(Epoch(epoch, n) for n, (kind, epoch, _) in enumerate(log) if kind == EPOCH_RECORD)))


@st.composite
def logs_of_a_group(draw: st.DrawFn) -> list[list[Entry]]:
    """Return logs that terms have written: each leader begins with the log of any node, cut at any place, and writes
    its epoch record and messages; then another node copies a part of it."""
    founder: list[Entry] = [(MESSAGE, 0, n) for n in range(draw(st.integers(0, 3)))]
    logs = [founder, founder[: draw(st.integers(0, len(founder)))], []]
    for epoch in range(1, draw(st.integers(1, 6)) + 1):
        leader = draw(st.integers(0, 2))
        written: list[Entry] = [(MESSAGE, epoch, n) for n in range(draw(st.integers(0, 3)))]
        logs[leader] = [*logs[leader], (EPOCH_RECORD, epoch, 0), *written]
        copy = draw(st.integers(0, 2))
        if copy != leader:
            common = common_prefix(logs[leader], logs[copy])
            logs[copy] = logs[leader][: draw(st.integers(common, len(logs[leader])))]
        cut = draw(st.integers(0, 2))  # a power cut takes unsynced bytes
        logs[cut] = logs[cut][: draw(st.integers(0, len(logs[cut])))]
    return logs


def common_prefix(one: list[Entry], other: list[Entry]) -> int:
    for n, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return n
    return min(len(one), len(other))


@settings(max_examples=rounds(100))
@given(logs_of_a_group())
def test_the_common_end_of_two_histories_is_the_longest_common_prefix_of_their_logs(logs: list[list[Entry]]) -> None:
    """Histories alone give the longest common prefix of any two logs that terms of one group have written."""
    for one in logs:
        for other in logs:
            assert of_log(one).common_end(len(one), of_log(other), len(other)) == common_prefix(one, other)


@pytest.mark.parametrize(
    ("one", "end", "other", "other_end", "common"),
    [
        (history((1, 0)), 50, history((1, 0)), 80, 50),  # the shorter one
        (history((1, 0)), 50, history((1, 0), (2, 40)), 80, 40),  # a term began before its end
        (history((1, 0), (3, 40)), 50, history((1, 0), (2, 40)), 80, 40),  # two terms at one offset (#9942)
        (history((1, 0), (2, 40)), 90, history((1, 0), (2, 40), (3, 90)), 99, 90),
        (history((1, 0)), 0, history((2, 0)), 9, None),  # other groups, or only uncommitted terms
        (history(), 50, history((1, 0)), 80, None),  # bytes without an epoch
        (history(), 0, history(), 0, None),
        (history((0, -1)), 50, history((0, -1), (1, 70)), 80, 50),  # a copy of the founder's bytes, interrupted
        (history((0, -1), (1, 70)), 78, history((0, -1), (2, 70)), 80, 70),  # truncated below all epoch records
        (history((0, -1), (1, 0)), 8, history((0, -1), (2, 0)), 8, 0),  # nothing but two first terms
    ],
)
def test_the_common_end_of_two_logs(
    one: EpochHistory, end: int, other: EpochHistory, other_end: int, common: int | None
) -> None:
    """The newest epoch that both have ends the common prefix, in either direction."""
    assert one.common_end(end, other, other_end) == common
    assert other.common_end(other_end, one, end) == common


@pytest.mark.parametrize("new", [Epoch(2, 80), Epoch(1, 80), Epoch(3, 40), Epoch(3, 39)])
def test_epochs_and_starts_increase(new: Epoch) -> None:
    """An epoch that is not above the last one, or begins no later, is refused."""
    with pytest.raises(ValueError, match="follows"):
        history((1, 0), (2, 40)).appended([new])


def test_the_last_epoch_of_a_history() -> None:
    """An empty history has epoch 0; a history is never changed in place."""
    empty = history()
    assert (empty.last, empty.appended([Epoch(4, 0)]).last, empty.last) == (0, 4, 0)


@pytest.mark.parametrize(("end", "left"), [(0, 1), (1, 2), (40, 2), (41, 3), (99, 3)])
def test_a_truncation_removes_the_epochs_that_begin_at_or_after_the_end(end: int, left: int) -> None:
    """The founder's entry stays, even in an empty log."""
    assert len(history((0, -1), (1, 0), (2, 40)).truncated(end).entries) == left
