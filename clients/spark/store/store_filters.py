"""Filters of a query that do what options do: `WHERE topic = ... AND storeTimestamp >= ...`.

    topic =, IN                        read for good: Spark need not look again
    storeTimestamp =, <, <=, >, >=     read for good, too; the column has whole milliseconds
    key =                              finds what has the key anywhere among its KEYS, so Spark looks again

Everything else is Spark's. Filters and options of one kind hold all together.

Spark gives a reader filters only while `spark.sql.python.filterPushdown.enabled` is on, and while it is off refuses
readers that would take some; so there are two classes of readers, and the option `pushFilters`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from skylarkmq.clients.spark.store.selection import Selection

_TOPIC: Final = ("topic",)
_KEY: Final = ("key",)
_STORED: Final = ("storeTimestamp",)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS: Final = (EqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)


def push(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """What is to be read under these filters, and those that Spark has to apply."""
    left: list[Filter] = []
    for one in filters:
        narrowed = _narrow(selection, one)
        if narrowed is None or getattr(one, "attribute", None) == _KEY:
            left.append(one)
        selection = narrowed or selection
    return selection, left


def _narrow(selection: Selection, one: Filter) -> Selection | None:
    """The selection with that filter in it; None: not possible."""
    attribute: object = getattr(one, "attribute", None)
    value: Any = getattr(one, "value", None)
    if attribute == _TOPIC and isinstance(one, EqualTo | In):
        return _of_topics(selection, (value,) if isinstance(one, EqualTo) else value)
    if attribute == _KEY and isinstance(one, EqualTo) and isinstance(value, str) and value:
        return msgspec.structs.replace(selection, key=value) if selection.key is None else None
    if attribute == _STORED and isinstance(one, _COMPARISONS) and isinstance(value, datetime) and value.tzinfo:
        return _in_time(selection, one, value)
    return None


def _of_topics(selection: Selection, values: Iterable[object]) -> Selection:
    names = frozenset(value for value in values if isinstance(value, str))
    return msgspec.structs.replace(selection, topics=names if selection.topics is None else names & selection.topics)


def _in_time(selection: Selection, one: Filter, value: datetime) -> Selection:
    microseconds = (value - _EPOCH) // timedelta(microseconds=1)
    at_or_after, after = -(-microseconds // 1000), microseconds // 1000 + 1
    begin, end = selection.begin_ms, selection.end_ms
    if isinstance(one, GreaterThanOrEqual | GreaterThan | EqualTo):
        low = after if isinstance(one, GreaterThan) else at_or_after
        begin = low if begin is None else max(begin, low)
    if isinstance(one, LessThan | LessThanOrEqual | EqualTo):
        high = at_or_after if isinstance(one, LessThan) else after
        end = high if end is None else min(end, high)
    return msgspec.structs.replace(selection, begin_ms=begin, end_ms=end)
