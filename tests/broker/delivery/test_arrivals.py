"""Arrivals: which pulls wait, which are woken, and which are dropped; one timer for all deadlines."""

import random
from typing import Any, cast

import pytest

from skylarkmq.broker.delivery.arrivals import SLICE_PULLS, SWEEP_THRESHOLD, Arrivals, ParkedPull, end_of_wait
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.request_source import RequestSource
from tests.harness.timers import Timers


class Waiting:
    """Arrivals with named pulls; `resumed` lists the resumed ones in order."""

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
        pull = ParkedPull(source(by), "T", queue_id, offset, matches, lambda: self.resumed.append(name), 100)
        self.arrivals.park(pull, wait_ms)
        return pull

    def resumed_names(self) -> list[str]:
        resumed, self.resumed = self.resumed, []
        return resumed


def source(name: str) -> RequestSource:
    """Return an object that stands for a source; arrivals use only its identity."""
    return cast(RequestSource, name)


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_an_arrival_wakes_matching_pulls_in_the_order_of_parking(waiting: Waiting) -> None:
    """The pulls of that queue are resumed whose tag arrived and whose offset is below the new end."""
    waiting.park("any")
    waiting.park("seven", tag=7)
    waiting.park("eight", tag=8)
    waiting.park("later", offset=5)
    waiting.park("other queue", queue_id=1)
    waiting.arrivals.arrived("T", 0, 5, [1, 7])
    assert waiting.resumed_names() == ["any", "seven"]
    waiting.arrivals.arrived("T", 0, 6, [8])
    assert waiting.resumed_names() == ["eight", "later"]
    waiting.arrivals.arrived("unknown", 0, 1, [1])
    assert waiting.arrivals.statistics().parked == waiting.pool.pending == 1


def test_a_parked_pull_counts_in_its_pool_until_it_is_resumed(waiting: Waiting) -> None:
    """However it ends: by an arrival, by its deadline, or with its source."""
    for name, by in (("a", "c"), ("b", "c"), ("c", "d")):
        waiting.park(name, by=by, offset=0 if name == "a" else 7)
    assert (waiting.pool.pending, waiting.pool.statistics().bytes) == (3, 300)
    waiting.arrivals.arrived("T", 0, 5, [1])
    assert (waiting.pool.pending, waiting.pool.statistics().bytes) == (2, 200)
    waiting.arrivals.forget(source("d"))
    assert (waiting.pool.pending, waiting.pool.statistics().bytes) == (1, 100)
    waiting.timers.advance_ms(1000)
    assert (waiting.pool.pending, waiting.pool.statistics().bytes) == (0, 0)


def test_every_pull_is_resumed_at_its_own_deadline_by_one_timer(waiting: Waiting) -> None:
    """Deadlines are exact to the ms, whatever the order of parking; the single timer is set for the earliest."""
    for name, wait_ms in (("b", 20), ("a", 10), ("d", 40), ("c", 30)):
        waiting.park(name, wait_ms)
        assert waiting.timers.pending() == 1
    for name in "abcd":
        waiting.timers.advance_ms(9.999)
        assert waiting.resumed_names() == []
        waiting.timers.advance_ms(0.001)
        assert waiting.resumed_names() == [name]
    assert (waiting.timers.pending(), waiting.arrivals.statistics().expired) == (0, 4)


@pytest.mark.parametrize("wait_ms", [1, 255, 256, 300, 1_000, 15_000, 20_000, 24 * 3600 * 1000])
def test_waits_end_in_time_and_in_groups(wait_ms: int) -> None:
    """Never early, at most a 256th of the wait and 1 ms late; waits that end together share one time."""
    begins = [1_000_000 + at * wait_ms / 1_000 for at in range(1_000)]
    ends = [end_of_wait(begin, wait_ms) for begin in begins]
    assert all(0 <= end - begin - wait_ms <= wait_ms / 256 + 1 for begin, end in zip(begins, ends, strict=True))
    assert len(set(ends)) <= max(wait_ms, 1) + 1 if wait_ms < 1_000 else len(set(ends)) <= 520


def test_many_pulls_are_resumed_a_slice_per_iteration(waiting: Waiting) -> None:
    """In order, whatever the reason; a pull that is dropped meanwhile is not resumed, and none is resumed twice."""
    waiting.pool = waiting.arrivals._pool = Pool("pull", 1_000)
    for number in range(3 * SLICE_PULLS):
        waiting.park(str(number), 15_000, by="gone" if number == 2 * SLICE_PULLS else "c")
    waiting.arrivals.arrived("T", 0, 1, [0])
    assert waiting.resumed_names() == [str(number) for number in range(SLICE_PULLS)]
    waiting.arrivals.arrived("T", 0, 1, [0])
    waiting.arrivals.forget(source("gone"))
    waiting.timers.advance_ms(0)
    rest = waiting.resumed_names()
    assert sorted(rest, key=int) == [str(n) for n in range(SLICE_PULLS, 3 * SLICE_PULLS) if n != 2 * SLICE_PULLS]
    waiting.timers.advance_ms(20_000)
    assert (waiting.resumed_names(), waiting.pool.pending, waiting.timers.pending()) == ([], 0, 0)


def test_a_woken_pull_does_not_expire(waiting: Waiting) -> None:
    """A pull is resumed once."""
    waiting.park("a")
    waiting.arrivals.arrived("T", 0, 1, [0])
    waiting.timers.advance_ms(5000)
    assert waiting.resumed_names() == ["a"]


def test_pulls_of_a_closed_connection_are_dropped(waiting: Waiting) -> None:
    """They are never resumed; others of the same queue are."""
    waiting.park("mine", by="gone")
    waiting.park("mine too", by="gone", queue_id=1)
    waiting.park("another's", by="there")
    waiting.arrivals.forget(source("gone"))
    waiting.arrivals.forget(source("gone"))
    waiting.timers.advance_ms(5000)
    assert waiting.resumed_names() == ["another's"]
    assert waiting.arrivals.statistics().dropped == 2


def test_a_pull_may_be_parked_again_while_others_are_being_woken(waiting: Waiting) -> None:
    """A resumed pull may park a new one for the same queue; the current arrival does not wake it."""
    again = ParkedPull(source("c"), "T", 0, 0, None, lambda: waiting.resumed.append("again"))
    first = ParkedPull(source("c"), "T", 0, 0, None, lambda: waiting.arrivals.park(again, 1000))
    waiting.arrivals.park(first, 1000)
    waiting.arrivals.arrived("T", 0, 1, [0])
    assert waiting.resumed_names() == []
    assert waiting.arrivals.statistics().parked == 1


def test_a_resumed_pull_that_closes_a_connection_drops_its_other_pulls(waiting: Waiting) -> None:
    """If resuming a pull closes a source, the other pulls of that source are not resumed."""
    killer = ParkedPull(source("c"), "T", 0, 0, None, lambda: waiting.arrivals.forget(source("c")))
    waiting.arrivals.park(killer, 1000)
    waiting.park("victim")
    waiting.arrivals.arrived("T", 0, 1, [0])
    assert waiting.resumed_names() == []
    assert waiting.pool.pending == 0


def test_close_resumes_all_pulls(waiting: Waiting) -> None:
    """All pulls are resumed, no timer is left, and the pool is empty."""
    for number in range(5):
        waiting.park(str(number), queue_id=number)
    waiting.arrivals.close()
    assert sorted(waiting.resumed_names()) == ["0", "1", "2", "3", "4"]
    assert (waiting.timers.pending(), waiting.pool.pending, waiting.arrivals.is_closed) == (0, 0, True)


def test_woken_pulls_do_not_accumulate_in_the_deadline_table(waiting: Waiting) -> None:
    """A consumer that is woken continuously leaves no entries until its deadlines."""
    for _ in range(10 * SWEEP_THRESHOLD):
        waiting.park("a", 15_000)
        waiting.arrivals.arrived("T", 0, 1, [0])
    assert sum(map(len, waiting.arrivals._deadlines.values())) == waiting.arrivals._kept <= SWEEP_THRESHOLD + 2
    assert waiting.arrivals.statistics().woken == 10 * SWEEP_THRESHOLD


def test_long_waits_are_capped(waiting: Waiting) -> None:
    """A client that requests an endless wait waits a day."""
    waiting.park("a", 2**62)
    waiting.timers.advance_ms(24 * 3600 * 1000 * 65 / 64)
    assert waiting.resumed_names() == ["a"]


def test_any_sequence_of_events_resumes_or_drops_each_pull_once() -> None:
    """A random walk over parking, arrivals, time and lost connections agrees with a model: a list of waiting pulls."""
    rng = random.Random(3)
    waiting = Waiting()
    model: dict[str, tuple[int, str, float]] = {}  # name -> queue, source, deadline

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
                assert sorted(waiting.resumed_names()) == gone(
                    [n for n, entry in model.items() if entry[0] == queue_id]
                )
            case 4:
                waiting.timers.advance_ms(rng.randrange(50))
                assert sorted(waiting.resumed_names()) == gone(
                    [n for n, entry in model.items() if entry[2] <= round(waiting.timers.now * 1000, 3)]
                )
            case _ if rng.random() < 0.2:
                waiting.arrivals.forget(source(by))
                gone([n for n, entry in model.items() if entry[1] == by])
        assert waiting.pool.pending == waiting.arrivals.statistics().parked == len(model)
    tables: Any = (waiting.arrivals._queues, waiting.arrivals._sources)
    assert [sum(map(len, table.values())) for table in tables] == [len(model)] * 2


def test_topics_contains_the_topics_with_pulls_or_watchers(waiting: Waiting) -> None:
    """As long as a pull waits there, or permanently with a watcher."""
    topics = waiting.arrivals.topics
    waiting.park("one")
    waiting.park("two")
    waiting.park("other queue", queue_id=1, by="d")
    waiting.arrivals.watch("S", lambda *_: None)
    assert set(topics) == {"T", "S"}
    waiting.arrivals.arrived("T", 0, 5, [1])
    assert set(topics) == {"T", "S"}
    waiting.arrivals.forget(source("d"))
    assert set(topics) == {"S"}


def test_watchers_are_notified_of_all_arrivals_in_their_topic(waiting: Waiting) -> None:
    """Before the pulls that wait there, and not of arrivals in other topics."""
    heard: list[tuple[int, int, list[int]]] = []
    waiting.arrivals.watch("T", lambda queue_id, end, codes: heard.append((queue_id, end, list(codes))))
    waiting.park("a")
    waiting.arrivals.arrived("T", 0, 1, [7])
    waiting.arrivals.arrived("T", 3, 9, [8, 9])
    waiting.arrivals.arrived("U", 0, 1, [7])
    assert heard == [(0, 1, [7]), (3, 9, [8, 9])]
    assert waiting.resumed_names() == ["a"]


def test_wake_resumes_only_the_pulls_of_a_group(waiting: Waiting) -> None:
    """All of them in that queue, whatever they wait for; those of other groups stay."""
    for name, group, queue_id in (("a", "G", 0), ("b", "H", 0), ("c", "G", 1), ("d", "G", 0)):
        waiting.park(name, queue_id=queue_id, tag=7).group = group
    waiting.arrivals.wake("T", 0, "G")
    waiting.arrivals.wake("T", 5, "G")
    assert waiting.resumed_names() == ["a", "d"]
    assert (waiting.arrivals.statistics().parked, waiting.arrivals.statistics().woken) == (2, 2)
