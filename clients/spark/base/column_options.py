"""The option of both sources that adds a column."""

from typing import Any, Final

from skylarkmq.clients.arrow.schema import message_columns
from skylarkmq.clients.spark.base.options import Option, flag

INCLUDE_PROPERTIES: Final = Option(
    "includeProperties", "include_properties", "add the column `properties`", flag, "false"
)


def column_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the field `columns` in place of the option's own."""
    return values | {"columns": message_columns(values.pop("include_properties"))}
