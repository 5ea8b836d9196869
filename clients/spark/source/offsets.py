"""Positions in queues, and their JSON format in options and checkpoints.

    {"Orders": {"broker-a": {"0": 17, "1": 4}}}         topic, broker name, queue id: the next offset

In options, -2 stands for the earliest offset and -1 for the latest. A checkpoint needs more: Spark stores only the ends
of batches. After a crash, it asks for the first start again, when "latest" has changed. So the end of a batch also
contains the starts of the queues that were added in that batch (in the first batch: of all queues):

    {"@from": {"Orders": {"broker-a": {"1": 0}}}, "Orders": {"broker-a": {"0": 17, "1": 4}}}

A stream that reads the stores of brokers (clients/spark/store/store_stream.py) also keeps its positions in their logs:

    {"@log": {"broker-a": 5368709120}, "Orders": {"broker-a": {"0": 17, "1": 4}}}

A query without a checkpoint can begin at such an offset, and with a given first batch (option `firstBatch`):

    {"start": {"Orders": {"broker-a": {"0": 10}}}, "end": {"Orders": {"broker-a": {"0": 17}}}}

`@from` and `@log` are not valid topic names. Spark compares offsets as text, so the keys are always written in the
order of MessageQueue.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from skylarkmq.clients.arrow.topic.positions import EARLIEST, LATEST, Positions, Times
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.decimals import INT64_MAX

_QUEUE_ID: Final = re.compile(r"[0-9]{1,10}")

FROM: Final = "@from"
LOG: Final = "@log"

_SHAPE: Final = 'JSON as {"topic": {"broker": {"0": 17}}}'
_LOGS_SHAPE: Final = 'JSON as {"@log": {"broker": 5368709120}}'
_ASSIGN_SHAPE: Final = 'JSON as {"topic": {"broker": [0, 1]}}'


class Offset(msgspec.Struct, frozen=True):
    """A checkpoint's offset: the end of a batch, and the starts of the queues that were added in it.

    `logs`: by broker name, the position in its log up to which its store was read.
    """

    ends: Positions
    starts: Positions = {}
    logs: dict[str, int] = {}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Offset":
        """Return the offset in Spark's dict. Raises ValueError if the dict has another shape."""
        return cls(
            ends=flattened({topic: brokers for topic, brokers in value.items() if topic not in {FROM, LOG}}),
            starts=flattened(value.get(FROM, {})),
            logs=_logs(value.get(LOG, {})),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the dict for Spark, with ordered keys."""
        added = {FROM: nested(self.starts)} if self.starts else {}
        logs = {LOG: dict(sorted(self.logs.items()))} if self.logs else {}
        return {**added, **logs, **nested(self.ends)}


class FirstBatch(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a new query begins, as in a checkpoint, and the end of its first batch; None: any end."""

    start: dict[str, Any]
    end: dict[str, Any] | None = None

    def text(self) -> str:
        """Return the value of the option."""
        return msgspec.json.encode(self).decode()

    def end_after(self, start: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the end of the batch that begins at `start`, if this is the first one and its end is given."""
        return self.end if start == self.start else None


def nested(positions: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return the positions by topic, broker and queue id, ordered by queue."""
    value: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(positions):
        value.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = positions[queue]
    return value


def _is_not_negative(number: int) -> bool:
    return number >= 0


def flattened(value: object, check: Callable[[int], bool] = _is_not_negative) -> Positions:
    """Return the positions by queue. Raises ValueError with the expected shape."""
    positions: Positions = {}
    for topic, brokers in _members(value, _SHAPE):
        for broker, queues in _members(brokers, _SHAPE):
            for queue, number in _members(queues, _SHAPE):
                if not _QUEUE_ID.fullmatch(queue) or not _is_offset(number, check):
                    raise ValueError(_SHAPE)
                positions[MessageQueue(topic, broker, int(queue))] = number
    return positions


def _is_offset(value: object, check: Callable[[int], bool]) -> bool:
    return type(value) is int and value <= INT64_MAX and check(value)


def _logs(value: object) -> dict[str, int]:
    logs = dict(_members(value, _LOGS_SHAPE))
    if not all(_is_offset(at, _is_not_negative) for at in logs.values()):
        raise ValueError(_LOGS_SHAPE)
    return logs


def parse_starts(text: str) -> Positions:
    """Return start offsets by queue, which may include -2 and -1."""
    return flattened(_json(text, _SHAPE), lambda number: number >= EARLIEST)


def parse_ends(text: str) -> Positions:
    """Return end offsets by queue, which may include -1."""
    return flattened(_json(text, _SHAPE), lambda number: number >= LATEST)


def parse_queues(text: str) -> tuple[MessageQueue, ...]:
    """Return the queues of `{"topic": {"broker": [0, 1]}}`."""
    queues: list[MessageQueue] = []
    for topic, brokers in _members(_json(text, _ASSIGN_SHAPE), _ASSIGN_SHAPE):
        for broker, ids in _members(brokers, _ASSIGN_SHAPE):
            if not isinstance(ids, list) or not all(type(number) is int and number >= 0 for number in ids):
                raise ValueError(_ASSIGN_SHAPE)
            queues += [MessageQueue(topic, broker, number) for number in ids]
    if not queues:
        raise ValueError(f"{_ASSIGN_SHAPE} with a queue")
    return tuple(sorted(set(queues)))


def parse_times(text: str) -> Times:
    """Parse `{"topic": ms}`, `{"topic": {"broker": {"0": ms}}}`, or a mix of both."""
    shape = 'JSON as {"topic": 1700000000000} or {"topic": {"broker": {"0": 1700000000000}}}'
    members = dict(_members(_json(text, shape), shape))
    by_topic = {topic: value for topic, value in members.items() if type(value) is int}
    if any(value < 0 for value in by_topic.values()):
        raise ValueError(shape)
    try:
        return Times(by_topic, flattened({topic: value for topic, value in members.items() if topic not in by_topic}))
    except ValueError:
        raise ValueError(shape) from None


def parse_first_batch(text: str) -> FirstBatch:
    """Return the first batch of `{"start": offset, "end": offset}`; the end may be missing."""
    try:
        first = msgspec.json.decode(text, type=FirstBatch)
        for offset in (first.start, first.end or {}):
            Offset.of(offset)
    except (ValueError, RecursionError):
        raise ValueError('JSON as {"start": offset, "end": offset} with offsets of a checkpoint') from None
    return first


def _json(text: str, shape: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        raise ValueError(shape) from None


def _members(value: object, shape: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise ValueError(shape)
    return value.items()
