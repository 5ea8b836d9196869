"""Which half messages are open, compared with a dict of all states."""

from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.broker.delivery.transactions.open_halves import HalfState, OpenHalves

OPEN, DECIDED, SUPERSEDED, DISCARDED = HalfState


def test_begin_is_the_oldest_open_half_message() -> None:
    """It moves past half messages that are no longer open, once no earlier one is."""
    halves = OpenHalves(10)
    assert (halves.begin, halves.next_open(0)) == (10, 10)
    halves.end(11)
    halves.end(12, DISCARDED)
    assert (halves.begin, halves.next_open(11)) == (10, 13)
    halves.end(10)
    assert halves.begin == 13
    assert [halves.state(offset) for offset in (9, 10, 12, 13, 99)] == [None, DECIDED, DISCARDED, OPEN, OPEN]
    assert repr(halves) == "<OpenHalves from=13 copies=0>"


def test_a_copy_continues_its_root() -> None:
    """The previous copy is superseded; the end of the root is also the end of the copy."""
    halves = OpenHalves()
    halves.renewed(0, 5)
    halves.renewed(0, 7)
    assert (halves.begin, halves.latest(0), halves.state(0)) == (1, 7, OPEN)
    assert [halves.is_open_at(offset) for offset in (0, 5, 7)] == [False, False, True]
    halves.end(0)
    assert [halves.state(offset) for offset in (0, 5, 7)] == [DECIDED, SUPERSEDED, DECIDED]
    assert halves.statistics().copies == 0


def test_decided_half_messages_are_recorded_for_a_while() -> None:
    """At least `kept` of them, at most twice as many; older ones are unknown."""
    halves = OpenHalves(kept=10)
    for offset in range(100):
        halves.end(offset)
        statistics = halves.statistics()
        assert min(10, offset + 1) <= statistics.begin - statistics.low <= 20
    assert halves.state(0) is None
    assert halves.state(99) is DECIDED


def test_a_root_before_begin_is_recorded() -> None:
    """Its copy was open; a later end of the root finds the result; a discarded one may be resumed."""
    halves = OpenHalves(50)
    halves.renewed(7, 60)
    halves.renewed(8, 61)
    halves.end(7)
    halves.end(8, DISCARDED)
    assert [halves.state(root) for root in (6, 7, 8)] == [None, DECIDED, DISCARDED]
    halves.renewed(8, 62)
    assert (halves.state(8), halves.latest(8)) == (OPEN, 62)


def test_half_messages_deleted_from_the_log_are_discarded() -> None:
    """With their copies; decided ones stay decided."""
    halves = OpenHalves()
    halves.end(1)
    halves.renewed(0, 3)
    halves.renewed(2, 9)
    halves.expire(5)
    assert halves.begin == 5
    assert [halves.state(offset) for offset in range(6)] == [SUPERSEDED, DECIDED, OPEN, DISCARDED, DISCARDED, OPEN]
    assert (halves.latest(0), halves.latest(2)) == (0, 9)
    halves.expire(4)
    assert halves.begin == 5


@given(st.lists(st.tuples(st.sampled_from(["end", "renew", "expire"]), st.integers(0, 40)), max_size=60))
def test_open_halves_equal_a_model(steps: list[tuple[str, int]]) -> None:
    """After any sequence of operations the same ones are open, and the search finds the first of them."""
    halves, states, copies, low = OpenHalves(kept=1_000), dict[int, HalfState](), dict[int, int](), 0
    newest = 41
    for what, root in steps:
        if what == "expire":
            low = max(low, root)
            states |= {at: DISCARDED for at in range(low) if states.get(at, OPEN) is OPEN}
            copies = {root: copy for root, copy in copies.items() if copy >= low}
            halves.expire(root)
        elif what == "end":
            for at in {root, copies.pop(root, root)}:
                states[at] = DECIDED
            halves.end(root)
        else:
            states[copies.get(root, root)] = SUPERSEDED
            copies[root] = newest
            halves.renewed(root, newest)
            newest += 1
    is_open = [at >= low and states.get(at, OPEN) is OPEN for at in range(newest + 2)]
    assert [halves.is_open_at(at) for at in range(newest + 2)] == is_open
    first = is_open.index(True)
    assert halves.begin == first
    for at in range(newest):
        assert halves.next_open(at) == is_open.index(True, max(at, first))
