"""JSON bodies as columns, by Spark's own parser.

A body must be UTF-8, one object, and fit the schema; a field declared NOT NULL must be present. Fields that the schema
does not name are ignored; a field that is added to the schema later becomes a column then.

Spark's parser ignores text after the first object, so it would lose a second one without notice. Bodies in which a
brace may end the object too early are parsed again, as an array of the body and a zero: it has two elements if the body
is one object. Such braces are rare, and a second parse of each body would double the cost. A second object after a
comma is not noticed.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from skylarkmq.clients.spark.decoding.columns import BODY, DAMAGED, REASON, VALUE

_CORRUPT: Final = "__corrupt__"
_EARLY_END: Final = r"\}\s*[^\s,\]}]"
"""A brace and then a text that cannot follow it within an object, unless both are in a string."""


def with_values(messages: DataFrame, ddl: str) -> DataFrame:
    """Return the messages with the columns value and deadLetterReason. Raises ValueError for an invalid schema."""
    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise ValueError(f"bodies are objects with fields, such as 'id BIGINT', not {schema.simpleString()}")
    text = f.col(BODY).cast("string")
    parsed = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    modes = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    rows = messages.withColumn(VALUE, f.from_json(f.when(f.is_valid_utf8(text), text), parsed, modes))
    rows = rows.withColumn(REASON, _reason(text, [field.name for field in schema.fields if not field.nullable]))
    value = f.struct(*(f.col(VALUE).getField(field.name).alias(field.name) for field in schema.fields))
    return rows.withColumn(VALUE, f.when(f.col(REASON).isNull(), value))


def _reason(text: Column, required: Sequence[str]) -> Column:
    value = f.col(VALUE)
    reason = (
        f.when(f.col(BODY).isNull(), DAMAGED)
        .when(~f.is_valid_utf8(text), "the body is not UTF-8")
        .when(value.isNull() | value.getField(_CORRUPT).isNotNull(), "the body is not a JSON object of the schema")
        .when(_has_more(text), "the body has text after its JSON object")
    )
    for name in required:
        reason = reason.when(value.getField(name).isNull(), f"the field {name} is missing")
    return reason


def _has_more(text: Column) -> Column:
    elements = f.from_json(f.concat(f.lit("["), text, f.lit(",0]")), "ARRAY<STRING>")
    return text.rlike(_EARLY_END) & (f.coalesce(f.size(elements), f.lit(0)) != 2)
