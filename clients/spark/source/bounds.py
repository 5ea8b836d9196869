"""Where a query begins, and where a batch query ends: options become an offset for each queue. Pure over `Queues`.

A time counts before times by queue, and these before offsets. A queue that JSON does not name begins at its earliest
offset and ends at its latest; JSON that names a queue which does not exist is refused, because that is a mistake in
nearly every case. Brokers that are away make this wait and then fail (`Away`): a start that is guessed would lose
messages.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from skylarkmq.clients.spark.options import OptionError
from skylarkmq.clients.spark.source.offsets import EARLIEST, LATEST, Positions, Times
from skylarkmq.clients.spark.source.source_options import SourceOptions
from skylarkmq.protocol.bodies.message_queue import MessageQueue


class Away(Exception):
    """Brokers that have to be asked cannot be reached now."""


class Queues(Protocol):
    """What has to be asked of a cluster; see clients/spark/cluster.py."""

    def queues(self) -> set[MessageQueue]:
        """The queues that are meant, as they are now."""

    def brokers(self) -> set[str]:
        """The brokers that are registered."""

    def first_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """Their first offsets, without those of brokers that are away."""

    def end_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """Their ends, likewise."""

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        """The first message of each that is not older than its time, likewise; None: there is none."""

    def commit(self, positions: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """Tell progress; returns the queues for which it could not be told."""


def all_of(answers: Positions, queues: Iterable[MessageQueue]) -> Positions:
    """The answers, if they are complete; else Away."""
    missing = sorted({queue.broker_name for queue in queues} - {queue.broker_name for queue in answers})
    if missing:
        raise Away(f"no broker answers that is named {', '.join(missing)}: check that it runs and can be reached")
    return answers


def find_queues(cluster: Queues, options: SourceOptions) -> set[MessageQueue]:
    """The queues that are meant; Away if a topic that was named has none, a pattern may find none."""
    found = cluster.queues()
    if options.subscribe_pattern is None:
        named = set(options.subscribe or {queue.topic for queue in options.assign or ()})
        missing = sorted(named - {queue.topic for queue in found})
        if missing:
            raise Away(f"no name server of {options.name_server} knows a queue of {', '.join(missing)}")
    if options.assign is not None and (unknown := sorted(set(options.assign) - found)):
        raise Away(f"assign names queues that do not exist: {', '.join(map(str, unknown))}")
    return found


def starts_of(cluster: Queues, options: SourceOptions, queues: set[MessageQueue], otherwise: str) -> Positions:
    """Where a new query begins; `otherwise`: earliest or latest, without options about that. Away, OptionError."""
    times = times_of(options.starting_timestamp, options.starting_times, queues, "startingOffsetsByTimestamp")
    if times is not None:
        starts = timed(cluster, times, lambda late: _later(options, late))
        return starts | all_of(cluster.first_offsets(queues - starts.keys()), queues - starts.keys())
    wanted = options.starting_offsets or otherwise
    if isinstance(wanted, str):
        ask = cluster.first_offsets if wanted == "earliest" else cluster.end_offsets
        return all_of(ask(queues), queues)
    return _named(cluster, wanted, queues, EARLIEST, "startingOffsets")


def ends_of(cluster: Queues, options: SourceOptions, queues: set[MessageQueue]) -> Positions:
    """Where a batch query ends. Away, OptionError."""
    times = times_of(options.ending_timestamp, options.ending_times, queues, "endingOffsetsByTimestamp")
    if times is not None:
        ends = timed(cluster, times, lambda late: all_of(cluster.end_offsets(late), late))
        return ends | all_of(cluster.end_offsets(queues - ends.keys()), queues - ends.keys())
    if isinstance(options.ending_offsets, str):
        return all_of(cluster.end_offsets(queues), queues)
    return _named(cluster, options.ending_offsets, queues, LATEST, "endingOffsets")


def times_of(
    for_all: int | None, by_queue: Times | None, queues: set[MessageQueue], option: str
) -> dict[MessageQueue, int] | None:
    """The time of each queue that has one; None: times were not given."""
    if for_all is not None:
        return dict.fromkeys(queues, for_all)
    if by_queue is None:
        return None
    if unknown := by_queue.unknown_among(queues):
        raise OptionError(f"rocketmq: {option} names what does not exist: {', '.join(unknown)}")
    return {queue: time for queue in queues if (time := by_queue.of(queue)) is not None}


def timed(
    cluster: Queues, times: Mapping[MessageQueue, int], too_late: Callable[[set[MessageQueue]], Positions]
) -> Positions:
    """The offsets at these times; `too_late` says them for queues that have no message that young."""
    found = cluster.offsets_at(times)
    known = all_of({queue: offset or 0 for queue, offset in found.items()}, times)
    late = {queue for queue, offset in found.items() if offset is None}
    return known | too_late(late) if late else known


def _later(options: SourceOptions, late: set[MessageQueue]) -> Positions:
    """What the option about it says of queues without a message that young: an error, or (LATEST) their ends."""
    if options.when_no_later_message == "error":
        raise OptionError(
            f"rocketmq: no message is as young as asked for in {', '.join(map(str, sorted(late)))}: choose an earlier "
            "time, or set startingOffsetsByTimestampStrategy to latest"
        )
    return dict.fromkeys(late, LATEST)


def _named(cluster: Queues, wanted: Positions, queues: set[MessageQueue], otherwise: int, option: str) -> Positions:
    if unknown := sorted(wanted.keys() - queues):
        raise OptionError(f"rocketmq: {option} names queues that do not exist: {', '.join(map(str, unknown))}")
    return settled(cluster, {queue: wanted.get(queue, otherwise) for queue in queues})


def settled(cluster: Queues, positions: Positions) -> Positions:
    """The same with -2 and -1 looked up."""
    earliest = {queue for queue, number in positions.items() if number == EARLIEST}
    latest = {queue for queue, number in positions.items() if number == LATEST}
    known = all_of(cluster.first_offsets(earliest), earliest) | all_of(cluster.end_offsets(latest), latest)
    return positions | known
