"""The selected rows of a batch."""

import sys
from typing import Any

import pyarrow as pa
import pytest

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.spark.replay.selection import Place, Selection, Selector

ROWS: list[dict[str, Any]] = [
    {"topic": "A", "storeTimestamp": 1_000_000, "keys": "k1 k2", "msgId": "id0", "properties": "n\x010\x02a\x01b"},
    {"topic": "A", "storeTimestamp": 2_000_000, "keys": None, "msgId": "id1", "properties": "n\x01\x02colour\x01red"},
    {"topic": "B", "storeTimestamp": 3_000_000, "keys": "k10", "msgId": "k1", "properties": "x-n\x017\x02n\x011\x02"},
    {"topic": "B", "storeTimestamp": None, "keys": "a.b", "msgId": "id3", "properties": None, "readable": True},
    {"topic": "B", "storeTimestamp": 4_000_000, "keys": "k1", "msgId": "id4", "properties": "", "readable": False},
]  # fmt: skip


def selected(**selection: object) -> list[str]:
    """Return the ids of the selected rows."""
    batch = pa.RecordBatch.from_pylist(ROWS, ARCHIVE_SCHEMA)
    found: list[str] = Selector(Selection(**selection), "r").select(batch).column("msgId").to_pylist()  # type: ignore[arg-type]
    return found


def test_rows_that_no_consumer_could_read_are_left_out() -> None:
    """They are half messages, or wait for their delay."""
    assert selected() == ["id0", "id1", "k1", "id3"]


def test_rows_are_selected_by_topic_and_time() -> None:
    """The end is exclusive; a message without a known time is in no range."""
    assert selected(topics=("A", "C")) == ["id0", "id1"]
    assert selected(since_ms=2000) == ["id1", "k1"]
    assert selected(until_ms=2000) == ["id0"]


def test_a_key_is_one_of_the_keys_or_the_unique_id() -> None:
    """Not a part of a key, and not a pattern."""
    assert selected(key="k1") == ["id0", "k1"]
    assert selected(key="a.b") == ["id3"]
    assert selected(key="a?b") == []


def test_single_messages_are_selected_by_their_places() -> None:
    """Topic, broker, queue and offset; without a broker's name it is empty."""
    rows = [row | {"brokerName": "b" if at else None, "queueId": 1, "queueOffset": at} for at, row in enumerate(ROWS)]
    batch = pa.RecordBatch.from_pylist(rows, ARCHIVE_SCHEMA)
    places = (Place("A", "b", 1, 1), Place("A", "", 1, 0), Place("A", "b", 1, 2), Place("B", "b", 1, 4))
    found = Selector(Selection(places=places), "r").select(batch)
    assert found.column("msgId").to_pylist() == ["id0", "id1"]


def test_a_condition_is_sql_over_the_columns() -> None:
    """Properties by name; a condition that is null selects nothing."""
    assert selected(where="topic = 'A' OR keys LIKE 'k1%'") == ["id0", "id1", "k1"]
    assert selected(where="storeTimestamp >= '1970-01-01 00:00:02'", topics=("B",)) == ["k1"]
    assert selected(where="property(properties, 'n') = '1'") == ["k1"]
    assert selected(where="property(properties, 'colour') IS NOT NULL") == ["id1"]
    assert selected(where="property(properties, 'n') IS NULL") == ["id1", "id3"]


def test_a_condition_without_duckdb_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error contains the command that installs it."""
    monkeypatch.setitem(sys.modules, "skylarkmq.clients.spark.replay.sql_condition", None)
    with pytest.raises(ValueError, match=r"pip install 'skylarkmq\[replay\]'"):
        selected(where="true")


def test_an_invalid_condition_names_the_fault() -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match="topik"):
        selected(where="topik = 'A'")
    with pytest.raises(ValueError, match="syntax"):
        selected(where="topic = ")
