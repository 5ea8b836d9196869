"""Schema evolution: how a table changes to take a batch, and the batch's rows in the table's columns.

    table's schema + batch's schema --evolve--> Evolution: the schema afterwards, added and widened columns
    batch's schema + that schema --expressions--> SQL expressions for DataFrame.selectExpr

Pure: both functions compare StructTypes and need no Spark session. The rules, for columns and for fields at any depth:

    only in the batch         added at the end of its struct, nullable: old rows have null
    only in the table         written as null; refused if the column is NOT NULL
    narrower in the batch     cast to the table's type: int to long, float to double, decimal(9,2) to decimal(12,2)
    wider in the batch        the table's column is widened if the format can do that without a rewrite, else refused
    another type              refused
    void in the batch         has only nulls: not added, and written as null

Names are compared as Spark does by default, without regard to case; the table's spelling stays. A path names a nested
field as ALTER TABLE does in Delta and Iceberg: `value.lines.element.price`, `value.counts.value`.
"""

from enum import Enum
from typing import Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StructField,
    StructType,
)

ELEMENT: Final = "element"
KEY: Final = "key"
VALUE: Final = "value"

_INTEGERS: Final[tuple[type[DataType], ...]] = (ByteType, ShortType, IntegerType, LongType)
_FLOATS: Final[tuple[type[DataType], ...]] = (FloatType, DoubleType)


class TableFormat(Enum):
    """A format of tables, and whether it widens the type of a column without a rewrite of the files."""

    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"

    @property
    def widens(self) -> bool:
        """Whether the type of a column can be widened; a directory of Parquet files has no schema to change."""
        return self is not TableFormat.PARQUET


class SchemaConflict(Exception):
    """The batch's schema does not fit the table; the text has one line for each conflict, with what to do."""


class Added(msgspec.Struct, frozen=True):
    """A new column or field."""

    path: tuple[str, ...]
    type: DataType

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} {self.type.simpleString()}"


class Widened(msgspec.Struct, frozen=True):
    """A column or field whose type becomes wider."""

    path: tuple[str, ...]
    before: DataType
    after: DataType

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} {self.before.simpleString()} -> {self.after.simpleString()}"


class Evolution(msgspec.Struct, frozen=True):
    """The table's schema with the changes that a batch needs, and these changes in the schema's order."""

    schema: StructType
    added: tuple[Added, ...] = ()
    widened: tuple[Widened, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether the table has to change before the batch is written."""
        return bool(self.added or self.widened)


def evolve(table: StructType, batch: StructType, table_format: TableFormat) -> Evolution:
    """Return how the table changes for the batch. Raises SchemaConflict, which lists all conflicts."""
    comparison = _Comparison(table_format)
    schema = comparison.struct(table, batch, ())
    if comparison.conflicts:
        raise SchemaConflict("\n".join(comparison.conflicts))
    return Evolution(schema, tuple(comparison.added), tuple(comparison.widened))


def new_table(batch: StructType) -> StructType:
    """Return the schema of a new table for the batch: all columns nullable, none of type void."""
    return evolve(StructType(), batch, TableFormat.PARQUET).schema


def expressions(batch: StructType, table: StructType) -> list[str]:
    """Return one SQL expression for each column of the table, for `DataFrame.selectExpr` on the batch.

    `table` is `Evolution.schema`, or the schema of a table that the batch fits without a change.
    """
    return [
        f"{_field(field, _find(batch, field.name), prefix='', depth=0)} AS {_quoted(field.name)}"
        for field in table.fields
    ]


# --- comparison -----------------------------------------------------------------------------------


class _Comparison:
    """One comparison: collects the changes and the conflicts on the way through the schemas."""

    def __init__(self, table_format: TableFormat) -> None:
        self._format = table_format
        self.added: list[Added] = []
        self.widened: list[Widened] = []
        self.conflicts: list[str] = []

    def struct(self, table: StructType, batch: StructType, path: tuple[str, ...]) -> StructType:
        self._refuse_ambiguous_names(batch, path)
        fields = [self._known(field, _find(batch, field.name), (*path, field.name)) for field in table.fields]
        for field in batch.fields:
            kept = nullable(field.dataType)
            if _find(table, field.name) is None and kept is not None:
                self.added.append(Added((*path, field.name), kept))
                fields.append(StructField(field.name, kept))
        return StructType(fields)

    def _known(self, table: StructField, batch: StructField | None, path: tuple[str, ...]) -> StructField:
        if batch is not None:
            merged = self._type(table.dataType, batch.dataType, path)
            return StructField(table.name, merged, table.nullable, table.metadata)
        if not table.nullable:
            name = ".".join(path)
            self.conflicts.append(
                f"column {name} is {table.dataType.simpleString()} NOT NULL in the table and missing in the batch: "
                f"add it to the schema of the bodies, or run ALTER TABLE ... ALTER COLUMN {name} DROP NOT NULL"
            )
        return table

    def _type(self, table: DataType, batch: DataType, path: tuple[str, ...]) -> DataType:
        if isinstance(table, StructType) and isinstance(batch, StructType):
            return self.struct(table, batch, path)
        if isinstance(table, ArrayType) and isinstance(batch, ArrayType):
            return ArrayType(self._type(table.elementType, batch.elementType, (*path, ELEMENT)), table.containsNull)
        if isinstance(table, MapType) and isinstance(batch, MapType):
            key = self._key(table.keyType, batch.keyType, (*path, KEY))
            return MapType(key, self._type(table.valueType, batch.valueType, (*path, VALUE)), table.valueContainsNull)
        if fits(batch, table):
            return table
        if self._format.widens and fits(table, batch):
            self.widened.append(Widened(path, table, batch))
            return batch
        self._refuse(table, batch, path)
        return table

    def _key(self, table: DataType, batch: DataType, path: tuple[str, ...]) -> DataType:
        """Return the table's type of keys: no format changes the keys of a map."""
        if not fits(batch, table):
            self._refuse(table, batch, path)
        return table

    def _refuse(self, table: DataType, batch: DataType, path: tuple[str, ...]) -> None:
        self.conflicts.append(
            f"column {'.'.join(path)} is {table.simpleString()} in the table and {batch.simpleString()} in the batch: "
            f"{_advice(table, batch)}"
        )

    def _refuse_ambiguous_names(self, batch: StructType, path: tuple[str, ...]) -> None:
        seen: dict[str, str] = {}
        for name in batch.fieldNames():
            other = seen.setdefault(name.lower(), name)
            if other is not name:
                self.conflicts.append(
                    f"columns {'.'.join((*path, other))} and {'.'.join((*path, name))} differ only in case, which "
                    "tables do not distinguish: remove one of them from the schema of the bodies"
                )


def _advice(table: DataType, batch: DataType) -> str:
    if fits(table, batch):
        return (
            "a directory of Parquet files cannot widen a column; declare the table's type in the schema of the bodies, "
            "or write to a Delta or Iceberg table, or to a new directory"
        )
    return (
        f"declare it as {table.simpleString()} in the schema of the bodies, give the new field another name, or write "
        "to a new table"
    )


def fits(value: DataType, column: DataType) -> bool:
    """Return whether a column takes all values of a type without a loss; nested types only if they are equal."""
    if isinstance(value, NullType):
        return True
    for family in (_INTEGERS, _FLOATS):
        if type(value) in family and type(column) in family:
            return family.index(type(value)) <= family.index(type(column))
    if isinstance(value, DecimalType) and isinstance(column, DecimalType):
        return value.scale == column.scale and value.precision <= column.precision
    return nullable(value) == nullable(column)


def nullable(kind: DataType) -> DataType | None:
    """Return the type with all fields, elements and values nullable and without void fields; None: nothing is left."""
    if isinstance(kind, NullType):
        return None
    if isinstance(kind, StructType):
        kept = [(field.name, nullable(field.dataType)) for field in kind.fields]
        fields = [StructField(name, inner) for name, inner in kept if inner is not None]
        return StructType(fields) if fields else None
    if isinstance(kind, ArrayType):
        element = nullable(kind.elementType)
        return None if element is None else ArrayType(element)
    if isinstance(kind, MapType):
        key, value = nullable(kind.keyType), nullable(kind.valueType)
        return None if key is None or value is None else MapType(key, value)
    return kind


# --- SQL ------------------------------------------------------------------------------------------


def _field(table: StructField, batch: StructField | None, prefix: str, depth: int) -> str:
    """Return the SQL of a field in the table's type; `prefix` is the SQL of the batch's struct with a dot, or empty."""
    if batch is None or isinstance(batch.dataType, NullType):
        return f"CAST(NULL AS {sql_type(table.dataType)})"
    return _converted(prefix + _quoted(batch.name), batch.dataType, table.dataType, depth)


def _converted(sql: str, batch: DataType, table: DataType, depth: int) -> str:
    """Return the SQL that converts a value; `depth` numbers the variables of nested lambdas."""
    if sql_type(batch) == sql_type(table):
        return sql
    if isinstance(batch, StructType) and isinstance(table, StructType):
        parts = [
            f"{_text(field.name)}, {_field(field, _find(batch, field.name), f'{sql}.', depth)}"
            for field in table.fields
        ]
        return f"IF({sql} IS NULL, NULL, NAMED_STRUCT({', '.join(parts)}))"
    if isinstance(batch, ArrayType) and isinstance(table, ArrayType):
        variable = f"e{depth}"
        element = _converted(variable, batch.elementType, table.elementType, depth + 1)
        return f"TRANSFORM({sql}, {variable} -> {element})"
    if isinstance(batch, MapType) and isinstance(table, MapType):
        return _converted_map(sql, batch, table, depth)
    return f"CAST({sql} AS {sql_type(table)})"


def _converted_map(sql: str, batch: MapType, table: MapType, depth: int) -> str:
    key, value = f"k{depth}", f"v{depth}"
    if sql_type(batch.keyType) != sql_type(table.keyType):
        sql = f"TRANSFORM_KEYS({sql}, ({key}, {value}) -> CAST({key} AS {sql_type(table.keyType)}))"
    if sql_type(batch.valueType) == sql_type(table.valueType):
        return sql
    inner = _converted(value, batch.valueType, table.valueType, depth + 1)
    return f"TRANSFORM_VALUES({sql}, ({key}, {value}) -> {inner})"


def sql_type(kind: DataType) -> str:
    """Return a type as SQL, with all names quoted."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{_quoted(field.name)}: {sql_type(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{sql_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>"
    return kind.simpleString().upper()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _find(struct: StructType, name: str) -> StructField | None:
    """Return the field of this name in the exact spelling, else in another case."""
    lower = name.lower()
    found = [field for field in struct.fields if field.name.lower() == lower]
    return next((field for field in found if field.name == name), found[0] if found else None)
