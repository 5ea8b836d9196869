"""Arrivals: who waits, who is woken, who is forgotten; one timer for all deadlines."""

import random
from typing import Any, cast

import pytest

from skylarkmq.broker.delivery.arrivals import SLICE_PULLS, SWEEP_THRESHOLD, Arrivals, ParkedPull, end_of_wait
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.connection import Connection
from tests.harness.timers import Timers


class Waiting:
    """Arrivals with named pulls; `resumed` lists who went on, in order."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.pool = Pool("pull", 100)
        self.arrivals = Arrivals(self.timers, self.pool)
        self.resumed: list[str] = []

    def park(
        self,
        name: str,
        wait_ms: int = 1000,
        *,
        queue_id: int = 0,
        offset: int = 0,
        tag: int | None = None,
        by: str = "c",
    ) -> ParkedPull:
        matches = None if tag is None else lambda code: code == tag
        pull = ParkedPull(connection(by), "T", queue_id, offset, matches, lambda: self.resumed.append(name), 100)
        self.arrivals.park(pull, wait_ms)
        return pull

    def taken(self) -> list[str]:
        resumed, self.resumed = self.resumed, []
        return resumed


def connection(name: str) -> Connection:
    """Arrivals only ask which connection it is."""
    return cast(Connection, name)


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_an_arrival_wakes_those_who_want_it_in_the_order_in_which_they_came(waiting: Waiting) -> None:
    """Of the pulls of that queue, those whose tag arrived and whose offset is below the new end go on."""
    waiting.park("any")
    waiting.park("seven", tag=7)
    waiting.park("eight", tag=8)
    waiting.park("later", offset=5)
    waiting.park("other queue", queue_id=1)
    waiting.arrivals.arrived("T", 0, 5, [1, 7])
    assert waiting.taken() == ["any", "seven"]
    waiting.arrivals.arrived("T", 0, 6, [8])
    assert waiting.taken() == ["eight", "later"]
    waiting.arrivals.arrived("unknown", 0, 1, [1])
    assert waiting.arrivals.statistics().parked == waiting.pool.pending == 1


def test_a_parked_pull_takes_a_place_and_memory_until_it_goes_on(waiting: Waiting) -> None:
    """However it ends: an arrival, its deadline, its connection."""
    for name, by in (("a", "c"), ("b", "c"), ("c", "d")):
        waiting.park(name, by=by, offset=0 if name == "a" else 7)
    assert (waiting.pool.pending, waiting.pool.statistics().bytes) == (3, 300)
    waiting.arrivals.arrived("T", 0, 5, [1])
    assert (waiting.pool.pending, waiting.pool.statistics().bytes) == (2, 200)
    waiting.arrivals.forget(connection("d"))
    assert (waiting.pool.pending, waiting.pool.statistics().bytes) == (1, 100)
    waiting.timers.advance_ms(1000)
    assert (waiting.pool.pending, waiting.pool.statistics().bytes) == (0, 0)


def test_every_pull_is_resumed_at_its_own_deadline_by_one_timer(waiting: Waiting) -> None:
    """Deadlines come in order, to the ms, whatever the order of parking; one timer stands at the earliest."""
    for name, wait_ms in (("b", 20), ("a", 10), ("d", 40), ("c", 30)):
        waiting.park(name, wait_ms)
        assert waiting.timers.pending() == 1
    for name in "abcd":
        waiting.timers.advance_ms(9.999)
        assert waiting.taken() == []
        waiting.timers.advance_ms(0.001)
        assert waiting.taken() == [name]
    assert (waiting.timers.pending(), waiting.arrivals.statistics().expired) == (0, 4)


@pytest.mark.parametrize("wait_ms", [1, 255, 256, 300, 1_000, 15_000, 20_000, 24 * 3600 * 1000])
def test_waits_end_in_time_and_many_of_them_together(wait_ms: int) -> None:
    """Never early, never more than a 256th of the wait and 1 ms late; those that end together are told by one time."""
    begins = [1_000_000 + at * wait_ms / 1_000 for at in range(1_000)]
    ends = [end_of_wait(begin, wait_ms) for begin in begins]
    assert all(0 <= end - begin - wait_ms <= wait_ms / 256 + 1 for begin, end in zip(begins, ends, strict=True))
    assert len(set(ends)) <= max(wait_ms, 1) + 1 if wait_ms < 1_000 else len(set(ends)) <= 520


def test_many_go_on_a_slice_in_each_turn(waiting: Waiting) -> None:
    """Whatever they were woken by, in their order; who is gone by then does not go on, and nobody does twice."""
    waiting.pool = waiting.arrivals._pool = Pool("pull", 1_000)
    for number in range(3 * SLICE_PULLS):
        waiting.park(str(number), 15_000, by="gone" if number == 2 * SLICE_PULLS else "c")
    waiting.arrivals.arrived("T", 0, 1, [0])
    assert waiting.taken() == [str(number) for number in range(SLICE_PULLS)]
    waiting.arrivals.arrived("T", 0, 1, [0])
    waiting.arrivals.forget(connection("gone"))
    waiting.timers.advance_ms(0)
    rest = waiting.taken()
    assert sorted(rest, key=int) == [str(n) for n in range(SLICE_PULLS, 3 * SLICE_PULLS) if n != 2 * SLICE_PULLS]
    waiting.timers.advance_ms(20_000)
    assert (waiting.taken(), waiting.pool.pending, waiting.timers.pending()) == ([], 0, 0)


def test_who_was_woken_does_not_expire(waiting: Waiting) -> None:
    """A pull goes on once."""
    waiting.park("a")
    waiting.arrivals.arrived("T", 0, 1, [0])
    waiting.timers.advance_ms(5000)
    assert waiting.taken() == ["a"]


def test_a_connection_that_is_gone_is_forgotten(waiting: Waiting) -> None:
    """Its pulls never go on; others of the same queue do."""
    waiting.park("mine", by="gone")
    waiting.park("mine too", by="gone", queue_id=1)
    waiting.park("another's", by="there")
    waiting.arrivals.forget(connection("gone"))
    waiting.arrivals.forget(connection("gone"))
    waiting.timers.advance_ms(5000)
    assert waiting.taken() == ["another's"]
    assert waiting.arrivals.statistics().dropped == 2


def test_a_pull_may_be_parked_again_while_others_are_being_woken(waiting: Waiting) -> None:
    """Whoever goes on may park a new pull of the same queue; it is not woken by the arrival that is being told."""
    again = ParkedPull(connection("c"), "T", 0, 0, None, lambda: waiting.resumed.append("again"))
    first = ParkedPull(connection("c"), "T", 0, 0, None, lambda: waiting.arrivals.park(again, 1000))
    waiting.arrivals.park(first, 1000)
    waiting.arrivals.arrived("T", 0, 1, [0])
    assert waiting.taken() == []
    assert waiting.arrivals.statistics().parked == 1


def test_a_pull_that_drops_a_connection_drops_its_other_pulls(waiting: Waiting) -> None:
    """A pull whose going on ends a connection takes the others of that connection out of the same wake-up."""
    killer = ParkedPull(connection("c"), "T", 0, 0, None, lambda: waiting.arrivals.forget(connection("c")))
    waiting.arrivals.park(killer, 1000)
    waiting.park("victim")
    waiting.arrivals.arrived("T", 0, 1, [0])
    assert waiting.taken() == []
    assert waiting.pool.pending == 0


def test_closing_resumes_everybody(waiting: Waiting) -> None:
    """Everyone goes on, no timer is left, and the pool is empty."""
    for number in range(5):
        waiting.park(str(number), queue_id=number)
    waiting.arrivals.close()
    assert sorted(waiting.taken()) == ["0", "1", "2", "3", "4"]
    assert (waiting.timers.pending(), waiting.pool.pending, waiting.arrivals.is_closed) == (0, 0, True)


def test_the_table_of_deadlines_does_not_grow_with_pulls_that_were_woken(waiting: Waiting) -> None:
    """A consumer that is woken all the time leaves no trail until its deadlines."""
    for _ in range(10 * SWEEP_THRESHOLD):
        waiting.park("a", 15_000)
        waiting.arrivals.arrived("T", 0, 1, [0])
    assert sum(map(len, waiting.arrivals._deadlines.values())) == waiting.arrivals._kept <= SWEEP_THRESHOLD + 2
    assert waiting.arrivals.statistics().woken == 10 * SWEEP_THRESHOLD


def test_absurd_waits_are_capped(waiting: Waiting) -> None:
    """A client that would wait for ever waits a day."""
    waiting.park("a", 2**62)
    waiting.timers.advance_ms(24 * 3600 * 1000 * 65 / 64)
    assert waiting.taken() == ["a"]


def test_any_sequence_of_events_resumes_or_drops_each_pull_once() -> None:
    """A random walk over parking, arrivals, time and lost connections keeps to the model: a list of who waits."""
    rng = random.Random(3)
    waiting = Waiting()
    model: dict[str, tuple[int, str, float]] = {}  # name -> queue, connection, deadline

    def gone(names: list[str]) -> list[str]:
        for name in names:
            del model[name]
        return sorted(names)

    for number in range(3000):
        queue_id, by = rng.randrange(5), rng.choice("abc")
        match rng.randrange(6):
            case 0 | 1 | 2:
                wait_ms = rng.randrange(1, 200)
                waiting.park(str(number), wait_ms, queue_id=queue_id, by=by)
                model[str(number)] = queue_id, by, end_of_wait(round(waiting.timers.now * 1000, 3), wait_ms)
            case 3:
                waiting.arrivals.arrived("T", queue_id, 1, [0])
                assert sorted(waiting.taken()) == gone([n for n, entry in model.items() if entry[0] == queue_id])
            case 4:
                waiting.timers.advance_ms(rng.randrange(50))
                assert sorted(waiting.taken()) == gone(
                    [n for n, entry in model.items() if entry[2] <= round(waiting.timers.now * 1000, 3)]
                )
            case _ if rng.random() < 0.2:
                waiting.arrivals.forget(connection(by))
                gone([n for n, entry in model.items() if entry[1] == by])
        assert waiting.pool.pending == waiting.arrivals.statistics().parked == len(model)
    tables: Any = (waiting.arrivals._queues, waiting.arrivals._connections)
    assert [sum(map(len, table.values())) for table in tables] == [len(model)] * 2


def test_topics_are_those_that_somebody_wants_to_hear_of(waiting: Waiting) -> None:
    """As long as a pull waits there, or for good if somebody watches."""
    topics = waiting.arrivals.topics
    waiting.park("one")
    waiting.park("two")
    waiting.park("other queue", queue_id=1, by="d")
    waiting.arrivals.watch("S", lambda *_: None)
    assert set(topics) == {"T", "S"}
    waiting.arrivals.arrived("T", 0, 5, [1])
    assert set(topics) == {"T", "S"}
    waiting.arrivals.forget(connection("d"))
    assert set(topics) == {"S"}


def test_watchers_hear_of_everything_in_their_topic(waiting: Waiting) -> None:
    """Before those who wait there; other topics are nothing to them."""
    heard: list[tuple[int, int, list[int]]] = []
    waiting.arrivals.watch("T", lambda queue_id, end, codes: heard.append((queue_id, end, list(codes))))
    waiting.park("a")
    waiting.arrivals.arrived("T", 0, 1, [7])
    waiting.arrivals.arrived("T", 3, 9, [8, 9])
    waiting.arrivals.arrived("U", 0, 1, [7])
    assert heard == [(0, 1, [7]), (3, 9, [8, 9])]
    assert waiting.taken() == ["a"]


def test_a_group_is_woken_by_itself(waiting: Waiting) -> None:
    """Its pulls of that queue, whatever they wait for; those of others stay."""
    for name, group, queue_id in (("a", "G", 0), ("b", "H", 0), ("c", "G", 1), ("d", "G", 0)):
        waiting.park(name, queue_id=queue_id, tag=7).group = group
    waiting.arrivals.wake("T", 0, "G")
    waiting.arrivals.wake("T", 5, "G")
    assert waiting.taken() == ["a", "d"]
    assert (waiting.arrivals.statistics().parked, waiting.arrivals.statistics().woken) == (2, 2)
