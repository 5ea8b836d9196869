"""Rows become messages; DataFrames that cannot be written are rejected with the remedy."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from skylarkmq.clients.spark.sink.sink_rows import COLUMNS, MARK, ColumnError, Encoder, Row, RowError, check_columns
from skylarkmq.protocol.message import PropertyName

NOW_MS = 1_700_000_000_000
PROPERTIES = pa.map_(pa.string(), pa.string())


def rows(columns: dict[str, pa.Array], topic: str | None = "T", mark: str | None = None) -> list[Row]:
    return list(Encoder(topic, mark).rows(pa.RecordBatch.from_pydict(columns), NOW_MS))


def one(**columns: Any) -> Row:
    kinds = {
        "body": pa.binary(),
        "properties": PROPERTIES,
        "deliverAt": pa.timestamp("us", "UTC"),
        "delayLevel": pa.int32(),
    }
    arrays = {name: pa.array([value], kinds.get(name)) for name, value in ({"body": b"x"} | columns).items()}
    (row,) = rows(arrays)
    return row


def test_all_columns_of_a_row_become_parts_of_the_message() -> None:
    """Body, topic, tags, keys and properties equal the columns."""
    columns = {
        "body": pa.array(["größer"]),
        "topic": pa.array(["Orders"]),
        "tags": pa.array(["paid"]),
        "keys": pa.array([["a", None, "b"]]),
        "properties": pa.array([[("n", "1"), ("none", None)]], PROPERTIES),
    }
    ((message, group, alone),) = rows(columns, topic=None)
    assert (message.topic, message.body, message.tags, message.keys) == ("Orders", "größer".encode(), "paid", "a b")
    assert (message.properties, group, alone) == ({"n": "1"}, "", False)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_bodies_of_every_arrow_type_are_bytes(kind: pa.DataType) -> None:
    """Text is encoded as UTF-8, for any width of the offsets."""
    ((message, _, _),) = rows({"body": pa.array(["ä"], kind)})
    assert message.body == "ä".encode()


def test_the_option_topic_overrides_the_column() -> None:
    """All rows go to the topic of the option, including rows without a topic."""
    columns = {"body": pa.array([b"1", b"2"]), "topic": pa.array(["A", None])}
    assert [row.message.topic for row in rows(columns, topic="T")] == ["T", "T"]


def test_marks_count_rows_over_record_batches() -> None:
    """The row number in a mark is the position in the partition."""
    encoder = Encoder("T", "q:7:3")
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"1", b"2"])})
    marks = [row.message.properties[MARK] for _ in range(2) for row in encoder.rows(batch, NOW_MS)]
    assert marks == ["q:7:3:0", "q:7:3:1", "q:7:3:2", "q:7:3:3"]


def test_reserved_properties_are_not_copied() -> None:
    """A message that was read with its properties can be written: its id, delay and half state are dropped."""
    own = [("UNIQ_KEY", "1"), ("DELAY", "3"), ("TRAN_MSG", "true"), ("WAIT", "false"), ("KEYS", "k"), ("mine", "x")]
    assert one(properties=own).message.properties == {"KEYS": "k", "mine": "x"}


def test_a_group_is_a_property_too() -> None:
    """Consumers see the group of a message, as with every other producer."""
    row = one(messageGroup="order-7")
    assert (row.group, row.message.properties) == ("order-7", {PropertyName.SHARDING_KEY: "order-7"})


def test_rows_with_a_delivery_time_are_sent_alone() -> None:
    """Levels and times become the broker's properties; a time in the past means no delay."""
    later, past = (datetime.fromtimestamp(NOW_MS / 1000 + s, UTC) for s in (60, -60))
    assert one(delayLevel=3) == Row(one(delayLevel=3).message, "", True)
    assert one(delayLevel=3).message.properties == {PropertyName.DELAY: "3"}
    assert one(delayLevel=0).alone is False
    assert one(deliverAt=later).message.properties == {PropertyName.TIMER_DELIVER_MS: str(NOW_MS + 60_000)}
    assert one(deliverAt=past).message.properties == {}
    ((message, _, _),) = rows({"body": pa.array([b"x"]), "deliverAt": pa.array([NOW_MS + 5])})
    assert message.properties == {PropertyName.TIMER_DELIVER_MS: str(NOW_MS + 5)}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"body": pa.array([b"", None])}, "row 1: body is null"),
        ({"body": pa.array([b""]), "delayLevel": pa.array([-1])}, "levels begin at 1"),
        (
            {"body": pa.array([b""]), "delayLevel": pa.array([1]), "deliverAt": pa.array([NOW_MS + 1])},
            "leave one of them null",
        ),
    ],
)
def test_a_row_that_cannot_become_a_message_is_reported(columns: dict[str, pa.Array], told: str) -> None:
    """The error contains the row's position and the remedy."""
    with pytest.raises(RowError, match=told):
        rows(columns)


def test_a_row_without_a_topic_is_reported() -> None:
    """Null in the column topic is an error unless the option topic is set."""
    with pytest.raises(RowError, match="row 0: topic is null"):
        rows({"body": pa.array([b""]), "topic": pa.array([None], pa.string())}, topic=None)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_accepted_in_each_of_its_types(name: str) -> None:
    """All types in the table are accepted."""
    for kind in COLUMNS[name]:
        check_columns({"body": "binary"} | {name: kind}, "T")
    with pytest.raises(ColumnError, match=f"column {name} is double: cast it to"):
        check_columns({"body": "binary"} | {name: "double"}, "T")


@pytest.mark.parametrize(
    ("columns", "topic", "told"),
    [
        ({"value": "string"}, "T", "no column body"),
        ({"body": "string"}, None, "set the option topic, or add a column topic"),
        ({"body": "string", "tag": "string"}, "T", "column tag is not a column of the sink: did you mean tags?"),
        ({"body": "string", "wxyz": "string"}, "T", "allowed columns are body, topic"),
    ],
)
def test_a_dataframe_with_wrong_columns_is_rejected(columns: dict[str, str], topic: str | None, told: str) -> None:
    """The error names the missing column, or suggests the nearest name."""
    with pytest.raises(ColumnError, match=told.replace("?", r"\?")):
        check_columns(columns, topic)


def test_columns_of_the_source_can_be_written() -> None:
    """Columns that only the source uses are ignored; names are case-insensitive."""
    check_columns({"BODY": "binary", "topic": "string", "queueOffset": "bigint", "msgId": "string"}, None)
