"""`format("rocketmq-store")` without a session: filters, options, and pickled readers."""

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from skylarkmq.clients.arrow.store.options import StoreOptions
from skylarkmq.clients.arrow.store.selection import Selection
from skylarkmq.clients.spark.base.options import OptionError, parse
from skylarkmq.clients.spark.store.filtered_reader import FilteredStoreReader
from skylarkmq.clients.spark.store.store_filters import push
from skylarkmq.clients.spark.store.store_options import STORE_OPTIONS
from skylarkmq.clients.spark.store.store_reader import StoreReader
from tests.harness.stores import message, opened

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_filters_limit_what_is_read() -> None:
    """Filters on topics, times and a key are applied; Spark applies the key's filter again, and all other filters."""
    at = EPOCH + timedelta(milliseconds=1_500)
    after = at + timedelta(microseconds=1)
    selection, left = push(
        Selection(topics=frozenset({"A", "B"})),
        [In(("topic",), ("B", "C")), GreaterThan(("storeTimestamp",), at), LessThan(("storeTimestamp",), after)],
    )
    assert (selection, left) == (Selection(frozenset({"B"}), None, 1_501, 1_501), [])
    whole: list[Filter] = [GreaterThanOrEqual(("storeTimestamp",), after), LessThanOrEqual(("storeTimestamp",), at)]
    assert push(Selection(), whole) == (Selection(None, None, 1_501, 1_501), [])
    assert push(Selection(), [EqualTo(("storeTimestamp",), at)])[0] == Selection(None, None, 1_500, 1_501)
    others: list[Filter] = [EqualTo(("key",), "k"), IsNotNull(("topic",)), EqualTo(("queueId",), 1)]
    assert push(Selection(), others) == (Selection(key="k"), others)


def test_a_reader_with_filters_reads_the_selected_rows(tmp_path: Path) -> None:
    """The rows of a topic within a time range, as with options; reader and partitions are pickled, as in Spark."""
    with opened(tmp_path) as store:
        for number in range(40):
            store.clock.now_ms += 10
            store.put(message(b"%d" % number, f"T{number % 2}"))
    everything = rows_of_tasks(StoreReader(StoreOptions(path=str(tmp_path), topics=("T1",))))
    middle = everything[10]["storeTimestamp"]
    reader = FilteredStoreReader(StoreOptions(path=str(tmp_path)))
    assert reader.pushFilters([EqualTo(("topic",), "T1"), LessThan(("storeTimestamp",), middle)]) == []
    assert [row["body"] for row in rows_of_tasks(reader)] == [b"%d" % number for number in range(1, 20, 2)]


def rows_of_tasks(reader: StoreReader | FilteredStoreReader) -> list[dict[str, Any]]:
    copy = pickle.dumps(reader)
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    return [row for one in partitions for batch in pickle.loads(copy).read(one) for row in batch.to_pylist()]


def test_options_are_parsed_by_name() -> None:
    """Each row of the table fills its field; a wrong value is an error."""
    options = parse(STORE_OPTIONS, {"PATH": "/data", "topic": "B, A", "partitionby": "QUEUE", "maxIndexNum": "10"})
    assert (options.path, options.topics, options.partition_by, options.index_items) == (
        "/data",
        ("A", "B"),
        "queue",
        10,
    )
    assert parse(STORE_OPTIONS, {"path": "file:///data/store"}).path == "/data/store"
    assert options.log_directories == (Path("/data/commitlog"),)
    spread = parse(STORE_OPTIONS, {"path": "/data", "storePathCommitLog": "/a/log, /b/log"})
    assert spread.log_directories == (Path("/a/log"), Path("/b/log"))
    with pytest.raises(OptionError, match="path must be a directory that is mounted on every executor"):
        parse(STORE_OPTIONS, {"path": "hdfs://host/store"})
    with pytest.raises(OptionError, match="path is required"):
        parse(STORE_OPTIONS, {})
    with pytest.raises(OptionError, match="partitionBy must be one of segment, queue"):
        parse(STORE_OPTIONS, {"path": "/data", "partitionBy": "topic"})
    with pytest.raises(OptionError, match="did you mean startingTimestamp"):
        parse(STORE_OPTIONS, {"path": "/data", "startingTimestmp": "1"})
