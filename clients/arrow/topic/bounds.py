"""Begin of a query, and end of a batch query: from options to one offset per queue. Pure logic over `Queues`.

Precedence: a time for all queues, then times by queue, then offsets. A queue that the JSON does not name begins at its
earliest offset and ends at its latest. JSON that names a queue which does not exist is rejected: it is almost always a
mistake. Unreachable brokers make the caller wait and then fail (`Unreachable`): a guessed start would lose messages. A
topic that no registered broker has makes the caller wait for a shorter time (`Missing`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from skylarkmq.clients.arrow.topic.options import TopicOptions
from skylarkmq.clients.arrow.topic.positions import EARLIEST, LATEST, Positions, Times
from skylarkmq.clients.arrow.topic.splitting import Range, ranges_of
from skylarkmq.protocol.bodies.message_queue import MessageQueue


class InvalidBounds(ValueError):
    """A start or an end that the queues do not have; the text contains the option and the remedy."""


class Unreachable(Exception):
    """A required broker cannot be reached now."""


class Missing(Unreachable):
    """A topic or queue that the registered brokers do not have now; its broker may be restarting."""


class Queues(Protocol):
    """The required metadata of a cluster; implemented by clients/arrow/topic/cluster.py."""

    def queues(self) -> set[MessageQueue]:
        """Return the queues that the options select, as of now."""

    def brokers(self) -> set[str]:
        """Return the names of the registered brokers."""

    def first_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """Return the first offsets; queues of unreachable brokers are omitted."""

    def end_offsets(self, queues: Iterable[MessageQueue]) -> Positions:
        """Return the end offsets; queues of unreachable brokers are omitted."""

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int | None]:
        """Return each queue's first offset stored at its time or later; None: no such message.

        Unreachable queues are omitted.
        """

    def commit(self, positions: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        """Commit offsets for the group; return the queues whose commit failed."""


def require_all(offsets: Positions, queues: Iterable[MessageQueue]) -> Positions:
    """Return `offsets` if they cover the brokers of all queues. Raises Unreachable otherwise."""
    missing = sorted({queue.broker_name for queue in queues} - {queue.broker_name for queue in offsets})
    if missing:
        raise Unreachable(f"no response from brokers {', '.join(missing)}: check that it runs and can be reached")
    return offsets


def find_queues(cluster: Queues, options: TopicOptions) -> set[MessageQueue]:
    """Return the selected queues; a pattern may match none. Raises Missing or Unreachable if a named topic has none."""
    found = cluster.queues()
    if options.subscribe_pattern is None:
        named = set(options.subscribe or {queue.topic for queue in options.assign or ()})
        missing = sorted(named - {queue.topic for queue in found})
        if missing:
            raise _missing_topics(cluster, options, missing)
    if options.assign is not None and (unknown := sorted(set(options.assign) - found)):
        away = sorted({queue.broker_name for queue in unknown} - cluster.brokers())
        if away:
            raise Unreachable(f"brokers are not registered: {', '.join(away)}: check that they run")
        raise Missing(f"assign names queues that do not exist: {', '.join(map(str, unknown))}")
    return found


def _missing_topics(cluster: Queues, options: TopicOptions, topics: list[str]) -> Unreachable:
    names = ", ".join(topics)
    brokers = sorted(cluster.brokers())
    if not brokers:
        return Unreachable(
            f"no broker is registered with {options.name_server}, so topic {names} is unknown: check that its broker "
            "runs and uses this name server"
        )
    return Missing(
        f"topic {names} does not exist on the registered brokers ({', '.join(brokers)}): create it, send a message to "
        "it, or check that its broker is registered with this name server"
    )


def starts_of(cluster: Queues, options: TopicOptions, queues: set[MessageQueue], otherwise: str) -> Positions:
    """Return where a new query begins; `otherwise`: earliest or latest, if no option is set.

    Raises Unreachable, InvalidBounds.
    """
    times = times_of(options.starting_timestamp, options.starting_times, queues, "startingOffsetsByTimestamp")
    if times is not None:
        starts = offsets_at_times(cluster, times, lambda late: _later(options, late))
        return starts | require_all(cluster.first_offsets(queues - starts.keys()), queues - starts.keys())
    wanted = options.starting_offsets or otherwise
    if isinstance(wanted, str):
        request = cluster.first_offsets if wanted == "earliest" else cluster.end_offsets
        return require_all(request(queues), queues)
    return _named(cluster, wanted, queues, EARLIEST, "startingOffsets")


def ends_of(cluster: Queues, options: TopicOptions, queues: set[MessageQueue]) -> Positions:
    """Return where a batch query ends. Raises Unreachable, InvalidBounds."""
    times = times_of(options.ending_timestamp, options.ending_times, queues, "endingOffsetsByTimestamp")
    if times is not None:
        ends = offsets_at_times(cluster, times, lambda late: require_all(cluster.end_offsets(late), late))
        return ends | require_all(cluster.end_offsets(queues - ends.keys()), queues - ends.keys())
    if isinstance(options.ending_offsets, str):
        return require_all(cluster.end_offsets(queues), queues)
    return _named(cluster, options.ending_offsets, queues, LATEST, "endingOffsets")


def batch_ranges(cluster: Queues, options: TopicOptions) -> list[Range]:
    """Return the ranges between the bounds; the default start is the earliest. Raises Unreachable, InvalidBounds."""
    queues = find_queues(cluster, options)
    starts = resolved(cluster, starts_of(cluster, options, queues, "earliest"))
    return ranges_of(starts, ends_of(cluster, options, queues))


def times_of(
    for_all: int | None, by_queue: Times | None, queues: set[MessageQueue], option: str
) -> dict[MessageQueue, int] | None:
    """Return the times of the queues that have one; None: the options set no times."""
    if for_all is not None:
        return dict.fromkeys(queues, for_all)
    if by_queue is None:
        return None
    if unknown := by_queue.unknown_among(queues):
        raise InvalidBounds(f"rocketmq: {option} names unknown topics or queues: {', '.join(unknown)}")
    return {queue: time for queue in queues if (time := by_queue.of(queue)) is not None}


def offsets_at_times(
    cluster: Queues, times: Mapping[MessageQueue, int], too_late: Callable[[set[MessageQueue]], Positions]
) -> Positions:
    """Return the offsets at these times; `too_late` returns the offsets of queues without a message that new."""
    found = cluster.offsets_at(times)
    known = require_all({queue: offset or 0 for queue, offset in found.items()}, times)
    late = {queue for queue, offset in found.items() if offset is None}
    return known | too_late(late) if late else known


def _later(options: TopicOptions, late: set[MessageQueue]) -> Positions:
    """Return the offsets of queues without a message that new: LATEST, or InvalidBounds, depending on the option."""
    if options.when_no_later_message == "error":
        raise InvalidBounds(
            f"rocketmq: no message is new enough in {', '.join(map(str, sorted(late)))}: choose an earlier "
            "time, or set startingOffsetsByTimestampStrategy to latest"
        )
    return dict.fromkeys(late, LATEST)


def _named(cluster: Queues, wanted: Positions, queues: set[MessageQueue], otherwise: int, option: str) -> Positions:
    if unknown := sorted(wanted.keys() - queues):
        raise InvalidBounds(f"rocketmq: {option} names queues that do not exist: {', '.join(map(str, unknown))}")
    return resolved(cluster, {queue: wanted.get(queue, otherwise) for queue in queues})


def resolved(cluster: Queues, positions: Positions) -> Positions:
    """Return the positions with -2 and -1 replaced by the actual offsets."""
    earliest = {queue for queue, number in positions.items() if number == EARLIEST}
    latest = {queue for queue, number in positions.items() if number == LATEST}
    known = require_all(cluster.first_offsets(earliest), earliest) | require_all(cluster.end_offsets(latest), latest)
    return positions | known
