"""The offsets of a query, against a cluster of a few dictionaries."""

from collections.abc import Iterable, Mapping

import pytest

from skylarkmq.clients.arrow.topic.bounds import (
    InvalidBounds,
    Missing,
    Unreachable,
    ends_of,
    find_queues,
    resolved,
    starts_of,
)
from skylarkmq.clients.arrow.topic.data_loss import DataLoss
from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.arrow.topic.splitting import Range
from skylarkmq.clients.spark.base.options import OptionError, parse
from skylarkmq.clients.spark.source.offsets import FirstBatch, Offset
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS, SourceOptions
from skylarkmq.clients.spark.source.stream_plan import PlanStatistics, StreamPlan
from skylarkmq.protocol.bodies.message_queue import MessageQueue

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)


class Fake:
    """Queues with bounds and store times (10 n for offset n); unreachable brokers do not respond."""

    def __init__(self, bounds: dict[MessageQueue, tuple[int, int]]) -> None:
        self.bounds = bounds
        self.away: set[str] = set()
        self.registered = {"a", "b"}
        self.commits: list[Positions] = []
        self.flicker = 0  # number of calls for which `queues` returns none

    def queues(self) -> set[MessageQueue]:
        if self.flicker:
            self.flicker -= 1
            return set()
        return {queue for queue in self.bounds if queue.broker_name in self.registered}

    def brokers(self) -> set[str]:
        return self.registered

    def _answering(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [queue for queue in queues if queue.broker_name not in self.away]

    def first_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        return {queue: self.bounds[queue][0] for queue in self._answering(queues)}

    def end_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        return {queue: self.bounds[queue][1] for queue in self._answering(queues)}

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        found: dict[MessageQueue, int | None] = {}
        for queue in self._answering(times):
            first, end = self.bounds[queue]
            offset = max(first, -(-times[queue] // 10))
            found[queue] = offset if offset < end else None
        return found

    def commit(self, positions: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        self.commits.append(dict(positions))
        return []


def options(**given: str) -> SourceOptions:
    return parse(SOURCE_OPTIONS, {"nameServer": "n:1", "subscribe": "T", "startingOffsets": "earliest"} | given)


def planned(fake: Fake, **given: str) -> StreamPlan:
    return StreamPlan(options(**given), fake, now_ms=0)


def test_a_new_query_repeats_the_last_batch_of_another_one_and_continues() -> None:
    """The start option has no effect on its queues, and new queues begin at their first message."""
    fake = Fake({A0: (2, 9), A1: (0, 3), B0: (0, 0)})
    start, end = Offset({A0: 4, B0: 0}, {A0: 2}).to_dict(), Offset({A0: 6, B0: 0}).to_dict()
    plan = planned(fake, firstBatch=FirstBatch(start, end).text(), startingOffsets="latest")
    assert plan.begin() == plan.position() == start
    assert plan.latest(start, None, 0) == end
    assert plan.ranges(start, end) == [Range(A0, 4, 6)]
    following = plan.latest(end, None, 0)
    assert following == Offset({A0: 9, A1: 3, B0: 0}, {A1: 0}).to_dict()
    assert plan.latest(following, None, 0) == following


def test_a_new_query_begins_at_the_end_of_another_one() -> None:
    """After a backfill: the broker of the store must be registered, and the ranges follow its end."""
    fake = Fake({A0: (2, 9), A1: (0, 3)})
    start = Offset({A0: 4}, logs={"a": 100}).to_dict()
    plan = planned(fake, firstBatch=FirstBatch(start).text())
    end = plan.latest(plan.begin(), None, 0)
    assert plan.ranges(start, end) == [Range(A0, 4, 9), Range(A1, 0, 3)]
    assert plan.ranges(plan.begin(), end) == plan.ranges(start, end)
    fake.registered = {"b"}
    with pytest.raises(Unreachable, match="which is not registered"):
        planned(fake, firstBatch=FirstBatch(start).text()).latest(start, None, 0)


def test_offsets_of_topics_that_are_not_selected_are_left_out() -> None:
    """Such as those of a pipeline with other topics and the same checkpoint path; the selected ones are read whole."""
    start = Offset({MessageQueue("Other", "a", 0): 4}).to_dict()
    plan = planned(Fake({A0: (2, 9)}), firstBatch=FirstBatch(start).text())
    end = plan.latest(plan.begin(), None, 0)
    assert end == Offset({A0: 9}, {A0: 2}).to_dict()
    assert plan.ranges(start, end) == [Range(A0, 2, 9)]


def test_the_last_batch_of_a_store_is_repeated_by_the_store_only() -> None:
    """A stream of brokers cannot read it."""
    start, end = Offset({}, logs={"a": 0}).to_dict(), Offset({A0: 4}, logs={"a": 100}).to_dict()
    plan = planned(Fake({A0: (0, 9)}), firstBatch=FirstBatch(start, end).text())
    with pytest.raises(OptionError, match="first read that store to its end"):
        plan.ranges(plan.begin(), plan.latest(start, None, 0))


def test_a_batch_begins_at_the_end_of_the_last_one() -> None:
    """The last end is returned unchanged if there are no new messages."""
    fake = Fake({A0: (2, 5), B0: (0, 0)})
    plan = planned(fake)
    begin = plan.begin()
    assert begin == plan.begin() == Offset({A0: 2, B0: 0}).to_dict()
    first = plan.latest(begin, None, 0)
    assert plan.ranges(begin, first) == [Range(A0, 2, 5)]
    assert plan.latest(first, None, 0) == first
    fake.bounds[B0] = (0, 7)
    second = plan.latest(first, None, 0)
    assert second == Offset({A0: 5, B0: 7}).to_dict()
    assert plan.ranges(first, second) == [Range(B0, 0, 7)]
    assert plan.reported() == second
    assert plan.statistics() == PlanStatistics(queues=2, batches=2, backlog=7)


def test_a_repeated_first_batch_has_the_same_ranges() -> None:
    """The ranges stay the same although Spark requests the start again, and it has moved even beyond the logged end."""
    fake = Fake({A0: (0, 5)})
    plan = planned(fake, startingOffsets="latest")
    begin = plan.begin()
    fake.bounds[A0] = (0, 8)
    end = plan.latest(begin, None, 0)
    fake.bounds[A0] = (0, 20)
    again = planned(fake, startingOffsets="latest")
    assert again.ranges(again.begin(), end) == plan.ranges(begin, end) == [Range(A0, 5, 8)]


def test_the_plan_keeps_the_position_for_versions_that_do_not_pass_it() -> None:
    """It is the start of a new query, then the last end, and after a restart the end that was planned again."""
    fake = Fake({A0: (0, 100), B0: (0, 40)})
    plan = planned(fake)
    assert plan.position() == plan.begin()
    first = plan.latest(plan.position(), 30, 0)
    assert plan.position() == first
    assert sum(map(len, plan.ranges(plan.begin(), first))) == 30
    second = plan.latest(plan.position(), 30, 0)
    after_restart = planned(fake)
    assert after_restart.ranges(first, second) == plan.ranges(first, second)
    assert after_restart.position() == plan.position() == second


def test_an_empty_range_only_sets_the_position() -> None:
    """Spark requests it after a restart, with the end of the last batch, which may contain the starts of its queues."""
    fake = Fake({A0: (0, 5)})
    plan = planned(fake)
    end = plan.latest(plan.begin(), None, 0)
    after_restart = planned(fake)
    assert after_restart.ranges(end, end) == []
    assert after_restart.latest(after_restart.position(), None, 0) == end


def test_a_limit_is_shared_among_queues() -> None:
    """All messages are read once, batch by batch."""
    fake = Fake({A0: (0, 100), A1: (0, 7), B0: (3, 40)})
    plan = planned(fake)
    start = plan.begin()
    read: list[Range] = []
    while (end := plan.latest(start, 30, 0)) != start:
        found = plan.ranges(start, end)
        assert sum(map(len, found)) <= 30
        read += found
        start = end
    assert sum(map(len, read)) == 144
    assert Offset.of(start).ends == {A0: 100, A1: 7, B0: 40}


def test_a_batch_waits_for_the_minimum() -> None:
    """A batch begins once the minimum is reached or the delay has passed; a request for everything does not wait."""
    fake = Fake({A0: (0, 5)})
    plan = planned(fake, minOffsetsPerTrigger="10", maxTriggerDelay="1s")
    begin = plan.begin()
    assert plan.latest(begin, None, 500) == begin
    assert plan.latest(begin, None, 500, is_all=True) != begin
    assert plan.latest(begin, None, 1_000) != begin


def test_available_now_reads_to_its_target() -> None:
    """Batches have the limit's size; the minimum is ignored; a queue that was added since the last run is read, too."""
    fake = Fake({A0: (0, 50)})
    before = planned(fake)
    start = before.latest(before.begin(), None, 0)
    fake.bounds |= {A0: (0, 70), B0: (0, 10)}
    plan = planned(fake, minOffsetsPerTrigger="1000", maxOffsetsPerTrigger="2000")
    plan.fix_target()
    fake.bounds |= {A0: (0, 900), B0: (0, 900), A1: (0, 5)}
    read: list[Range] = []
    while (end := plan.latest(start, 12, 0)) != start:
        read += plan.ranges(start, end)
        start = end
    assert Offset.of(start).ends == {A0: 70, B0: 10}
    assert sum(map(len, read)) == 30


def test_available_now_waits_for_unreachable_brokers() -> None:
    """The broker has messages of the target."""
    fake = Fake({A0: (0, 5), B0: (0, 5)})
    fake.away = {"b"}
    with pytest.raises(Unreachable, match="no response from brokers b"):
        planned(fake).fix_target()
    fake.away = set()
    plan = planned(fake)
    start = plan.latest(plan.begin(), None, 0)
    fake.registered = {"a"}
    plan.fix_target()
    with pytest.raises(Unreachable, match="no longer registered: b"):
        plan.latest(start, None, 0)


def test_an_unreachable_broker_does_not_delay_the_others() -> None:
    """Its queues keep their offsets, and continue when the broker is back."""
    fake = Fake({A0: (0, 5), B0: (0, 5)})
    plan = planned(fake)
    start = plan.latest(plan.begin(), None, 0)
    fake.bounds |= {A0: (0, 9), B0: (0, 9)}
    fake.registered = {"a"}
    second = plan.latest(start, None, 0)
    assert Offset.of(second).ends == {A0: 9, B0: 5}
    fake.registered, fake.away = {"a", "b"}, {"b"}
    assert plan.latest(second, None, 0) == second
    fake.away = set()
    assert Offset.of(plan.latest(second, None, 0)).ends == {A0: 9, B0: 9}


def test_a_briefly_missing_route_is_not_a_loss() -> None:
    """The route is requested again first."""
    fake = Fake({A0: (0, 5)})
    plan = planned(fake)
    start = plan.latest(plan.begin(), None, 0)
    fake.flicker = 2
    assert plan.latest(start, None, 0) == start


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_queue_missing_on_its_broker_counts_as_lost(fails: str) -> None:
    """The query fails with the queue's name; without failOnDataLoss, the queue is dropped."""
    fake = Fake({A0: (0, 5), A1: (0, 5)})
    plan = planned(fake, failOnDataLoss=fails)
    start = plan.latest(plan.begin(), None, 0)
    del fake.bounds[A1]
    if fails == "true":
        with pytest.raises(DataLoss, match="T@a:1 from offset 5 on"):
            plan.latest(start, None, 0)
    else:
        assert Offset.of(plan.latest(start, None, 0)).ends == {A0: 5}


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_shorter_queue_is_read_from_its_first_offset(fails: str) -> None:
    """The query fails; without failOnDataLoss, the new messages are read from the first one."""
    fake = Fake({A0: (0, 9)})
    plan = planned(fake, failOnDataLoss=fails)
    start = plan.latest(plan.begin(), None, 0)
    fake.bounds[A0] = (0, 4)
    if fails == "true":
        with pytest.raises(DataLoss, match="T@a:0 from offset 9 on"):
            plan.latest(start, None, 0)
    else:
        end = plan.latest(start, None, 0)
        assert plan.ranges(start, end) == [Range(A0, 0, 4)]


def test_a_new_queue_is_added_once_it_has_messages() -> None:
    """Reading begins at the queue's first offset, which the end of that batch contains."""
    fake = Fake({A0: (0, 5)})
    plan = planned(fake)
    start = plan.latest(plan.begin(), None, 0)
    fake.bounds[B0] = (0, 0)
    assert plan.latest(start, None, 0) == start
    fake.bounds[B0] = (3, 6)
    end = plan.latest(start, None, 0)
    assert Offset.of(end).starts == {B0: 3}
    assert plan.ranges(start, end) == [Range(B0, 3, 6)]


def test_unselected_queues_are_dropped_without_a_loss() -> None:
    """The pattern may change at a restart."""
    fake = Fake({A0: (0, 5)})
    start = Offset({A0: 2, MessageQueue("Old", "a", 0): 7}).to_dict()
    assert Offset.of(planned(fake).latest(start, None, 0)).ends == {A0: 5}


def test_changed_progress_is_committed() -> None:
    """To the option's group, once a batch is known to be finished."""
    fake = Fake({A0: (0, 5), B0: (0, 5)})
    plan = planned(fake, groupId="g")
    begin = plan.begin()
    end = plan.latest(begin, 6, 0)
    plan.commit(Offset.of(end).ends)
    last = plan.latest(end, None, 0)
    plan.latest(last, None, 0)
    assert fake.commits == [{A0: 0, B0: 0}, {A0: 3, B0: 3}, {A0: 5, B0: 5}]
    planned(fake).commit({A0: 1})  # without a group nothing is committed
    assert len(fake.commits) == 3


# ------------------------------------------------------------------------------------------------------- bounds


def bounds(fake: Fake, **given: str) -> tuple[Positions, Positions]:
    made = parse(SOURCE_OPTIONS, {"nameServer": "n:1"} | ({} if "assign" in given else {"subscribe": "T"}) | given)
    queues = find_queues(fake, made)
    return resolved(fake, starts_of(fake, made, queues, "earliest")), ends_of(fake, made, queues)


def test_bounds_by_name_by_number_and_by_time() -> None:
    """Precedence: a time, times by topic, offsets; queues that the JSON does not name get default bounds."""
    fake = Fake({A0: (2, 9), B0: (0, 50)})
    assert bounds(fake) == ({A0: 2, B0: 0}, {A0: 9, B0: 50})
    assert bounds(fake, startingOffsets="latest")[0] == {A0: 9, B0: 50}
    assert bounds(fake, startingOffsets='{"T":{"a":{"0":-1}}}', endingOffsets='{"T":{"b":{"0":7}}}') == (
        {A0: 9, B0: 0},
        {A0: 9, B0: 7},
    )
    by_queue = '{"T":{"a":{"0":50}}}'
    assert bounds(fake, startingOffsetsByTimestamp=by_queue, endingOffsetsByTimestamp=by_queue) == (
        {A0: 5, B0: 0},
        {A0: 5, B0: 50},
    )
    both = {"startingTimestamp": "60", "startingOffsetsByTimestamp": by_queue, "startingOffsets": "latest"}
    assert bounds(fake, **both)[0] == {A0: 6, B0: 6}
    assert bounds(fake, endingTimestamp="100")[1] == {A0: 9, B0: 10}


def test_a_time_after_the_last_message() -> None:
    """An error with the queue, or the latest offset, depending on the strategy."""
    fake = Fake({A0: (2, 9), B0: (0, 50)})
    with pytest.raises(InvalidBounds, match="no message is new enough in T@a:0"):
        bounds(fake, startingTimestamp="100")
    latest = bounds(fake, startingTimestamp="100", startingOffsetsByTimestampStrategy="latest")[0]
    assert latest == {A0: 9, B0: 10}


def test_missing_topics_queues_and_brokers_are_reported() -> None:
    """A missing topic or queue, if its broker is registered; else the broker that is unreachable."""
    fake = Fake({A0: (2, 9)})
    with pytest.raises(Missing, match="topic U does not exist on the registered brokers"):
        bounds(fake, subscribe="T,U")
    with pytest.raises(Missing, match="assign names queues that do not exist: T@a:1"):
        bounds(fake, assign='{"T":{"a":[0,1]}}')
    with pytest.raises(Unreachable, match="brokers are not registered: c"):
        bounds(fake, assign='{"T":{"a":[0],"c":[0]}}')
    with pytest.raises(InvalidBounds, match="startingOffsets names queues that do not exist: T@b:0"):
        bounds(fake, startingOffsets='{"T":{"b":{"0":1}}}')
    with pytest.raises(InvalidBounds, match="names unknown topics or queues: U"):
        bounds(fake, startingOffsetsByTimestamp='{"U":1}')
    fake.away = {"a"}
    with pytest.raises(Unreachable, match="no response from brokers a"):
        bounds(fake)
    fake.registered = set()
    with pytest.raises(Unreachable, match=r"no broker is registered .* so topic T is unknown") as raised:
        bounds(fake)
    assert not isinstance(raised.value, Missing)
