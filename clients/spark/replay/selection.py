"""Which messages are replayed: topics, time range, key, and an SQL condition over the columns of an archive.

Arrow evaluates the first three and DuckDB the condition (a WHERE clause in its dialect), record batch by record batch.
Rows that no consumer could read (column `readable`) are never selected, nor copies that this replay itself has sent: a
topic may be replayed into itself.

In a condition, `property(properties, 'name')` is the value of a property, or null. Bodies are as stored: a body that
its producer compressed does not match its text.
"""

import re
from importlib import import_module
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from skylarkmq.clients.spark.replay.copies import MARK
from skylarkmq.protocol.message import NAME_END

READABLE = "readable"


class Place(msgspec.Struct, frozen=True, array_like=True):
    """The place of a message."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The selected messages; None: all. Times are store times in ms, `until_ms` is exclusive. `places`: these only."""

    topics: tuple[str, ...] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    key: str | None = None
    where: str | None = None
    places: tuple[Place, ...] | None = None


class Selector:
    """Selects rows. `replay_id`: copies with this id are not selected. ValueError if the condition is invalid."""

    def __init__(self, selection: Selection, replay_id: str) -> None:
        self._selection = selection
        self._own = f"{MARK}{NAME_END}{replay_id}:"
        self._wanted_places = pa.array(
            [f"{each.topic}:{each.broker_name}:{each.queue_id}:{each.queue_offset}" for each in selection.places or ()],
            pa.string(),
        )
        self._condition: Any = None
        if selection.where is not None:
            self._condition = _condition(selection.where)

    def __repr__(self) -> str:
        return f"<Selector {self._selection}>"

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected rows, in order."""
        conditions = [pc.invert(pc.match_substring(batch.column("properties"), self._own)).fill_null(True)]
        if READABLE in batch.schema.names:
            conditions.append(batch.column(READABLE).fill_null(True))
        conditions += self._by_columns(batch)
        if self._condition is not None:
            conditions.append(self._condition.mask(batch))
        mask = conditions[0]
        for condition in conditions[1:]:
            mask = pc.and_(mask, condition.fill_null(False))
        return batch.filter(mask)

    def _by_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        selection, found = self._selection, []
        if selection.topics is not None:
            found.append(pc.is_in(batch.column("topic"), value_set=pa.array(selection.topics, pa.string())))
        stored = batch.column("storeTimestamp")
        if selection.since_ms is not None:
            found.append(pc.greater_equal(stored, _time(selection.since_ms)))
        if selection.until_ms is not None:
            found.append(pc.less(stored, _time(selection.until_ms)))
        if selection.key is not None:
            word = rf"(?:^| ){re.escape(selection.key)}(?: |$)"
            has_key = pc.match_substring_regex(batch.column("keys"), word).fill_null(False)
            found.append(pc.or_(has_key, pc.equal(batch.column("msgId"), selection.key).fill_null(False)))
        if selection.places is not None:
            found.append(pc.is_in(_places(batch), value_set=self._wanted_places))
        return found


def _condition(where: str) -> Any:
    try:
        module = import_module("skylarkmq.clients.spark.replay.sql_condition")
    except ImportError as error:
        raise ValueError(f"conditions need DuckDB ({error}): pip install 'skylarkmq[replay]'") from error
    return module.Condition(where)


def _places(batch: pa.RecordBatch) -> pa.Array:
    numbers = (pc.cast(batch.column(name), pa.string()) for name in ("queueId", "queueOffset"))
    return pc.binary_join_element_wise(batch.column("topic"), batch.column("brokerName").fill_null(""), *numbers, ":")


def _time(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))
