"""The comparison of the matrix finds each kind of difference; it runs without Spark."""

import pyarrow as pa
import pytest

from tests.spark.read_back import COLUMNS, Compared, compare

COUNT = 6
PROPERTIES = pa.map_(pa.string(), pa.string())


def rows(*numbers: int, **changed: object) -> pa.RecordBatchReader:
    """Return messages of these numbers; `changed` replaces columns."""
    columns = {
        "queueId": [number % 2 for number in numbers],
        "queueOffset": [number // 2 for number in numbers],
        "body": [b"%d text" % number for number in numbers],
        "keys": [f"k{number}" for number in numbers],
        "tags": pa.array([None] * len(numbers), pa.string()),
        "properties": pa.array([[("n", str(number))] for number in numbers], PROPERTIES),
        "storeTimestamp": pa.array([*numbers], pa.timestamp("us", "UTC")),
        "bornTimestamp": pa.array([*numbers], pa.timestamp("us", "UTC")),
        "msgId": [f"id{number}" for number in numbers],
    }
    return pa.table(columns | changed).to_reader()


def test_equal_rows_are_exact_in_any_order() -> None:
    """No difference is counted."""
    found = compare(rows(3, 1, 5, 0, 2, 4), rows(*range(COUNT)), COUNT)
    assert found == Compared(COUNT, COUNT, 0, 0, 0, 0, 0)
    assert found.is_exact


def test_missing_added_and_repeated_rows_are_counted() -> None:
    """So are numbers that the store does not have."""
    assert compare(rows(0, 1), rows(*range(COUNT)), COUNT) == Compared(COUNT, 2, 4, 0, 0, 0, 0)
    assert compare(rows(*range(COUNT), 9), rows(*range(COUNT)), COUNT) == Compared(COUNT, COUNT + 1, 0, 1, 0, 0, 0)
    assert compare(rows(*range(COUNT), 2, 2), rows(*range(COUNT)), COUNT) == Compared(COUNT, COUNT + 2, 0, 0, 2, 0, 0)
    found = compare(rows(0, 1), rows(0, 1), COUNT)
    assert found == Compared(2, 2, 0, 0, 0, 0, 4)
    assert not found.is_exact


@pytest.mark.parametrize("name", COLUMNS)
def test_a_difference_in_any_column_is_counted(name: str) -> None:
    """Null counts as a value."""
    table = rows(*range(COUNT)).read_all()
    values = table.column(name).to_pylist()
    changed = pa.array([values[0], "x" if values[1] is None else None, *values[2:]], table.schema.field(name).type)
    found = compare(rows(*range(COUNT), **{name: changed}), rows(*range(COUNT)), COUNT)
    assert found == Compared(COUNT, COUNT, 0, 0, 0, 1, 0)
