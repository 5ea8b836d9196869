"""Filters of a query that act like options: `WHERE topic = ... AND storeTimestamp >= ...`.

    topic =, IN                        exact: Spark need not apply it again
    storeTimestamp =, <, <=, >, >=     exact, too; the column has whole milliseconds
    key =                              finds messages with the key anywhere among KEYS, so Spark applies it again

Spark applies all other filters. Several filters and options on one column are combined with AND.

Spark passes filters to a reader only while `spark.sql.python.filterPushdown.enabled` is on. While it is off, Spark
rejects readers that accept filters. So there are two classes of readers, and the option `pushFilters`.
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

from skylarkmq.clients.arrow.store.selection import Selection

_TOPIC: Final = ("topic",)
_KEY: Final = ("key",)
_STORED: Final = ("storeTimestamp",)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS: Final = (EqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)


def push(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """Return the selection with these filters, and the filters that Spark must apply."""
    left: list[Filter] = []
    for one in filters:
        narrowed = _narrow(selection, one)
        if narrowed is None or getattr(one, "attribute", None) == _KEY:
            left.append(one)
        selection = narrowed or selection
    return selection, left


def _narrow(selection: Selection, one: Filter) -> Selection | None:
    """Return the selection with that filter; None if the filter is not supported."""
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
    selected = frozenset(filter(selection.has_topic, names)) if selection.is_by_topic else names
    return msgspec.structs.replace(selection, topics=selected)


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
