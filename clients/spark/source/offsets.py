"""Positions in queues, and the JSON in which users and checkpoints write them.

    {"Orders": {"broker-a": {"0": 17, "1": 4}}}         topic, broker name, queue id: the next offset

In what a user writes, -2 stands for the earliest offset and -1 for the latest. In a checkpoint there is more to an
offset: Spark keeps the ends of batches only, and asks for the first start again after a crash, when "latest" has moved.
So the end of a batch also tells where those queues begin that came with it, all of them in the first batch:

    {"@from": {"Orders": {"broker-a": {"1": 0}}}, "Orders": {"broker-a": {"0": 17, "1": 4}}}

No topic can be named `@from`. Spark compares offsets as text, so their keys are always written in one order: that of
MessageQueue.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from skylarkmq.protocol.bodies.message_queue import MessageQueue

EARLIEST: Final = -2
LATEST: Final = -1
FROM: Final = "@from"

Positions: TypeAlias = dict[MessageQueue, int]
"""The next offset of each queue, or whatever number a user gives to it."""

_SHAPE: Final = 'JSON as {"topic": {"broker": {"0": 17}}}'
_ASSIGN_SHAPE: Final = 'JSON as {"topic": {"broker": [0, 1]}}'


class Offset(msgspec.Struct, frozen=True):
    """A checkpoint's offset: the end of a batch, and where the queues begin that came with it."""

    ends: Positions
    starts: Positions = {}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Offset":
        """From Spark's dict; ValueError if it is none of ours."""
        return cls(
            ends=flattened({topic: brokers for topic, brokers in value.items() if topic != FROM}),
            starts=flattened(value.get(FROM, {})),
        )

    def to_dict(self) -> dict[str, Any]:
        """As Spark is given it, its keys in order."""
        value = nested(self.ends)
        return {FROM: nested(self.starts), **value} if self.starts else value


def nested(positions: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """By topic, broker and queue id, in the queues' order."""
    value: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(positions):
        value.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = positions[queue]
    return value


def flattened(value: object, check: Callable[[int], bool] = lambda number: number >= 0) -> Positions:
    """By queue; ValueError with the shape that was wanted."""
    positions: Positions = {}
    for topic, brokers in _members(value, _SHAPE):
        for broker, queues in _members(brokers, _SHAPE):
            for queue, number in _members(queues, _SHAPE):
                if not queue.isdigit() or type(number) is not int or not check(number):
                    raise ValueError(_SHAPE)
                positions[MessageQueue(topic, broker, int(queue))] = number
    return positions


def parse_starts(text: str) -> Positions:
    """Offsets to begin at; -2 and -1 may be among them."""
    return flattened(_json(text, _SHAPE), lambda number: number >= EARLIEST)


def parse_ends(text: str) -> Positions:
    """Offsets to end at; -1 may be among them."""
    return flattened(_json(text, _SHAPE), lambda number: number >= LATEST)


def parse_queues(text: str) -> tuple[MessageQueue, ...]:
    """The queues of `{"topic": {"broker": [0, 1]}}`."""
    queues: list[MessageQueue] = []
    for topic, brokers in _members(_json(text, _ASSIGN_SHAPE), _ASSIGN_SHAPE):
        for broker, ids in _members(brokers, _ASSIGN_SHAPE):
            if not isinstance(ids, list) or not all(type(number) is int and number >= 0 for number in ids):
                raise ValueError(_ASSIGN_SHAPE)
            queues += [MessageQueue(topic, broker, number) for number in ids]
    if not queues:
        raise ValueError(f"{_ASSIGN_SHAPE} with a queue")
    return tuple(sorted(set(queues)))


class Times(msgspec.Struct, frozen=True):
    """Milliseconds by topic, and by queue where one is told apart."""

    by_topic: dict[str, int]
    by_queue: Positions

    def of(self, queue: MessageQueue) -> int | None:
        """A queue's own time, else its topic's; None: it has none."""
        return self.by_queue.get(queue, self.by_topic.get(queue.topic))

    def unknown_among(self, queues: Iterable[MessageQueue]) -> list[str]:
        """What is named here and does not exist."""
        known = set(queues)
        topics = {queue.topic for queue in known}
        return [*sorted(self.by_topic.keys() - topics), *map(str, sorted(self.by_queue.keys() - known))]


def parse_times(text: str) -> Times:
    """`{"topic": ms}`, `{"topic": {"broker": {"0": ms}}}`, or some of each."""
    shape = 'JSON as {"topic": 1700000000000} or {"topic": {"broker": {"0": 1700000000000}}}'
    members = dict(_members(_json(text, shape), shape))
    by_topic = {topic: value for topic, value in members.items() if type(value) is int}
    if any(value < 0 for value in by_topic.values()):
        raise ValueError(shape)
    try:
        return Times(by_topic, flattened({topic: value for topic, value in members.items() if topic not in by_topic}))
    except ValueError:
        raise ValueError(shape) from None


def _json(text: str, shape: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise ValueError(shape) from None


def _members(value: object, shape: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise ValueError(shape)
    return value.items()
