"""From rows of a DataFrame to messages: the columns that are allowed, and the message of a row.

    body          binary or string      the body; the only required column
    topic         string                the topic, unless the option `topic` sets it for all rows
    tags, keys    string; keys also array<string>
    properties    map<string,string>    reserved properties (RESERVED_PROPERTIES) are ignored: the id or the delay of a
                                        message that was read does not belong to its copy
    messageGroup  string                rows of one group go to one queue, in the order of their partition
    delayLevel    an integer            0 and null: no delay
    deliverAt     timestamp or ms       a time in the past: no delay; not together with delayLevel

Null means absent in all columns but `body` and `topic`. A column with another name is an error, because a misspelled
`tag` would be lost silently. Columns of the source that the sink does not use are ignored, so that messages can be read
and written back. Columns are converted to Python lists one by one; the messages are built by iterating over the lists.

The mark of a message names the row that the message comes from: `<query>:<batch>:<partition>:<row>`. A row that is sent
twice has the same mark both times, if the plan is deterministic.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import count, repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa

from skylarkmq.protocol.message import Message, PropertyName

MARK: Final = "SPARK_ROW"
BODY: Final = "body"
TOPIC: Final = "topic"

RESERVED_PROPERTIES: Final = frozenset(
    value for name, value in vars(PropertyName).items() if not name.startswith("_") and isinstance(value, str)
) - {PropertyName.KEYS, PropertyName.TAGS, PropertyName.SHARDING_KEY}

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    BODY: ("binary", "string"),
    TOPIC: ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "messageGroup": ("string",),
    "delayLevel": _WHOLE,
    "deliverAt": ("timestamp", "timestamp_ntz", "bigint"),
}
_SOURCE_ONLY: Final = ("key", "brokerName", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "msgId")
SOURCE_ONLY: Final = frozenset(name.lower() for name in (*_SOURCE_ONLY, "flag", "reconsumeTimes"))


class ColumnError(ValueError):
    """A DataFrame with columns that the sink cannot write."""


class RowError(ValueError):
    """A row that cannot become a message."""


class Row(NamedTuple):
    """A message; `group` "": any queue; `alone`: it cannot be part of a batch request."""

    message: Message
    group: str
    alone: bool


def check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """Raises ColumnError unless columns of these types (Spark's `simpleString`) can be written; `topic`: the option."""
    known = {name.lower(): name for name in COLUMNS}
    lower = {name.lower() for name in columns}
    if BODY not in lower:
        raise ColumnError(f"the DataFrame has no column body: rename the column to send. It has: {', '.join(columns)}")
    if TOPIC not in lower and topic is None:
        raise ColumnError("no topic is set: set the option topic, or add a column topic")
    for name, kind in columns.items():
        expected = COLUMNS.get(known.get(name.lower(), ""))
        if expected is None:
            _check_other_column(name)
        elif kind.split(" collate ")[0] not in expected:
            raise ColumnError(f"column {name} is {kind}: cast it to {' or '.join(expected)}")


def _check_other_column(name: str) -> None:
    if name.lower() in SOURCE_ONLY:
        return
    near = get_close_matches(name, COLUMNS, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"allowed columns are {', '.join(COLUMNS)}."
    raise ColumnError(f"column {name} is not a column of the sink: {hint} Drop it, or move it into properties")


class Encoder:
    """Builds the messages of one partition and counts its rows. `mark`: common prefix of the marks; None: no marks."""

    def __init__(self, topic: str | None, mark: str | None) -> None:
        self.rows_seen = 0
        self._topic = topic
        self._mark = mark

    def __repr__(self) -> str:
        return f"<Encoder {self._mark} after {self.rows_seen} rows>"

    def rows(self, batch: pa.RecordBatch, now_ms: int) -> Iterator[Row]:
        """Yield the messages of a record batch. Raises RowError."""
        columns = {name.lower(): batch.column(index) for index, name in enumerate(batch.schema.names)}
        topics = repeat(self._topic) if self._topic is not None else _values(columns, TOPIC, _texts)
        sides = zip(
            count(self.rows_seen),
            _values(columns, BODY, _bodies),
            topics,
            _values(columns, "tags", _texts),
            _values(columns, "keys", _texts),
            _values(columns, "properties", _texts),
            _values(columns, "messagegroup", _texts),
            _values(columns, "delaylevel", _texts),
            _values(columns, "deliverat", _times),
            strict=False,  # absent columns repeat for ever; the body is always present
        )
        self.rows_seen += batch.num_rows
        return (self._row(now_ms, *values) for values in sides)

    def _row(
        self,
        now_ms: int,
        row: int,
        body: bytes | None,
        topic: str | None,
        tags: str | None,
        keys: str | list[str | None] | None,
        given: Iterable[tuple[str, str | None]] | None,
        group: str | None,
        delay_level: int | None,
        deliver_at_ms: int | None,
    ) -> Row:
        if body is None or topic is None:
            raise RowError(f"row {row}: {BODY if body is None else TOPIC} is null: filter such rows out, or fill it in")
        properties = _kept(given) if given else {}
        if group:
            properties[PropertyName.SHARDING_KEY] = group
        alone = bool(delay_level or deliver_at_ms)
        if alone:
            _schedule(properties, row, delay_level, deliver_at_ms, now_ms)
        if self._mark is not None:
            properties[MARK] = f"{self._mark}:{row}"
        if isinstance(keys, list):
            keys = " ".join(key for key in keys if key)
        return Row(Message(topic, body, tags or "", keys or "", properties), group or "", alone)


def _kept(given: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    return {name: value for name, value in given if value and name not in RESERVED_PROPERTIES}


def _schedule(
    properties: dict[str, str], row: int, delay_level: int | None, deliver_at_ms: int | None, now_ms: int
) -> None:
    if delay_level and deliver_at_ms:
        raise RowError(f"row {row}: delayLevel and deliverAt are both set: leave one of them null")
    if delay_level and delay_level < 0:
        raise RowError(f"row {row}: delayLevel is {delay_level}: levels begin at 1")
    if delay_level:
        properties[PropertyName.DELAY] = str(delay_level)
    elif deliver_at_ms is not None and deliver_at_ms > now_ms:
        properties[PropertyName.TIMER_DELIVER_MS] = str(deliver_at_ms)


def _values(columns: Mapping[str, Any], name: str, read: Callable[[Any], list[Any]]) -> Iterable[Any]:
    column = columns.get(name)
    return repeat(None) if column is None else read(column)


def _texts(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _bodies(column: Any) -> list[Any]:
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return _texts(column)


def _times(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return _texts(column)
