"""The selection of columns."""

import pyarrow as pa
import pytest

from skylarkmq.clients.arrow.schema import DEFAULT_COLUMNS, RECORD_COLUMNS, TYPES, Columns, message_columns


def test_a_schema_has_the_columns_in_order() -> None:
    """Properties are a map, or a string if they are as stored."""
    columns = Columns(("properties", "topic"))
    assert columns.schema.names == ["properties", "topic"]
    assert pa.types.is_map(columns.schema.field("properties").type)
    assert Columns(("properties",), decode=False).schema.field("properties").type == pa.string()


def test_the_record_columns_are_all_but_the_derived_one() -> None:
    """The key is the first word of the keys."""
    assert TYPES.keys() - set(RECORD_COLUMNS) == {"key"}
    assert message_columns(include_properties=True).names == (*DEFAULT_COLUMNS, "properties")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), "at least one"),
        (("bodyCrC",), "did you mean bodyCrc"),
        (("xyz",), "no column xyz: use"),
        (("key",) * 2, "twice"),
    ],
)
def test_wrong_columns_are_rejected(names: tuple[str, ...], text: str) -> None:
    """The error names the nearest column, or all of them."""
    with pytest.raises(ValueError, match=text):
        Columns(names)
