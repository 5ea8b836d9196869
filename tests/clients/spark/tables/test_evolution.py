"""Schema evolution: added, missing and widened columns at every depth, and the text of each refusal."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from skylarkmq.clients.spark.tables.evolution import (
    Evolution,
    SchemaConflict,
    TableFormat,
    evolve,
    expressions,
    new_table,
    sql_type,
)

INT, LONG, TEXT, FLOAT, DOUBLE = IntegerType(), LongType(), StringType(), FloatType(), DoubleType()
DELTA, ICEBERG, PARQUET = TableFormat.DELTA, TableFormat.ICEBERG, TableFormat.PARQUET


def struct(**fields: DataType) -> StructType:
    """A struct of nullable fields."""
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def changes(evolution: Evolution) -> tuple[list[str], list[str]]:
    return [str(added) for added in evolution.added], [str(widened) for widened in evolution.widened]


def refusal(table: StructType, batch: StructType, table_format: TableFormat = DELTA) -> str:
    with pytest.raises(SchemaConflict) as caught:
        evolve(table, batch, table_format)
    return str(caught.value)


def test_equal_schemas_change_nothing() -> None:
    """The batch's columns are written as they are."""
    table = struct(topic=TEXT, value=struct(id=INT, tags=ArrayType(TEXT)))
    evolution = evolve(table, table, PARQUET)
    assert (evolution.schema, evolution.changes) == (table, False)
    assert expressions(table, table) == ["`topic` AS `topic`", "`value` AS `value`"]


def test_new_columns_are_added_at_every_depth() -> None:
    """In structs, in structs of arrays and of maps; they are nullable, and come after the table's fields."""
    line, place = struct(n=INT), struct(city=TEXT)
    table = struct(value=struct(lines=ArrayType(line), places=MapType(TEXT, place)))
    more = StructType([StructField("price", DOUBLE, nullable=False), *line.fields])
    batch = struct(
        value=struct(at=TimestampType(), lines=ArrayType(more), places=MapType(TEXT, struct(city=TEXT, zip=TEXT))),
        hour=TEXT,
    )
    evolution = evolve(table, batch, PARQUET)
    assert changes(evolution) == (
        [
            "value.lines.element.price double",
            "value.places.value.zip string",
            "value.at timestamp",
            "hour string",
        ],
        [],
    )
    assert evolution.schema == struct(
        value=struct(
            lines=ArrayType(struct(n=INT, price=DOUBLE)),
            places=MapType(TEXT, struct(city=TEXT, zip=TEXT)),
            at=TimestampType(),
        ),
        hour=TEXT,
    )
    assert evolve(evolution.schema, batch, PARQUET).changes is False


def test_missing_columns_are_written_as_null() -> None:
    """Also those of nested structs; the rest of the struct is kept."""
    table = struct(topic=TEXT, value=struct(id=INT, at=TimestampType()), hour=TEXT)
    batch = struct(value=struct(id=INT), topic=TEXT)
    assert evolve(table, batch, PARQUET).changes is False
    assert expressions(batch, table) == [
        "`topic` AS `topic`",
        "IF(`value` IS NULL, NULL, NAMED_STRUCT('id', `value`.`id`, 'at', CAST(NULL AS TIMESTAMP))) AS `value`",
        "CAST(NULL AS STRING) AS `hour`",
    ]


def test_a_missing_column_that_must_not_be_null_is_refused() -> None:
    """The error names the column and the statement that helps."""
    text = refusal(StructType([StructField("id", INT, nullable=False)]), struct(other=INT))
    assert "column id is int NOT NULL in the table and missing in the batch" in text
    assert "ALTER COLUMN id DROP NOT NULL" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ByteType(), ShortType()),
        (ShortType(), INT),
        (INT, LONG),
        (FLOAT, DOUBLE),
        (DecimalType(9, 2), DecimalType(38, 2)),
    ],
)
def test_a_wider_type_widens_the_column_of_formats_that_can(before: DataType, after: DataType) -> None:
    """A narrower one is cast and changes nothing; Parquet refuses the wider one."""
    table, batch = struct(value=struct(x=before)), struct(value=struct(x=after))
    for table_format in (DELTA, ICEBERG):
        evolution = evolve(table, batch, table_format)
        assert evolution.schema == batch
        assert changes(evolution) == ([], [f"value.x {before.simpleString()} -> {after.simpleString()}"])
    assert "cannot widen a column" in refusal(table, batch, PARQUET)
    assert evolve(batch, table, PARQUET).changes is False
    assert f"CAST(`value`.`x` AS {sql_type(after)})" in expressions(table, batch)[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (INT, TEXT),
        (TEXT, INT),
        (INT, FLOAT),
        (INT, DOUBLE),
        (LONG, DecimalType(20, 0)),
        (DecimalType(9, 2), DecimalType(9, 3)),
        (DateType(), TimestampType()),
        (BooleanType(), INT),
        (TEXT, struct(a=TEXT)),
        (ArrayType(INT), INT),
        (ArrayType(INT), MapType(INT, INT)),
    ],
)
def test_other_changes_of_a_type_are_refused(before: DataType, after: DataType) -> None:
    """The error names the column, both types and the remedy."""
    text = refusal(struct(value=struct(x=before)), struct(value=struct(x=after)), ICEBERG)
    types = f"is {before.simpleString()} in the table and {after.simpleString()} in the batch"
    assert f"column value.x {types}: declare it as {before.simpleString()}" in text
    assert "give the new field another name, or write to a new table" in text


def test_all_conflicts_are_listed() -> None:
    """One line each, so that one run shows everything that has to change."""
    text = refusal(struct(a=INT, b=ArrayType(INT), c=MapType(INT, TEXT)), struct(a=TEXT, b=ArrayType(TEXT), c=TEXT))
    assert [line.split()[1] for line in text.splitlines()] == ["a", "b.element", "c"]


def test_keys_of_maps_never_widen() -> None:
    """No format changes them; narrower keys are cast."""
    assert "column m.key is int" in refusal(struct(m=MapType(INT, TEXT)), struct(m=MapType(LONG, TEXT)), ICEBERG)
    table, batch = struct(m=MapType(LONG, LONG)), struct(m=MapType(INT, INT))
    assert evolve(table, batch, ICEBERG).changes is False
    assert expressions(batch, table) == [
        "TRANSFORM_VALUES(TRANSFORM_KEYS(`m`, (k0, v0) -> CAST(k0 AS BIGINT)), (k0, v0) -> CAST(v0 AS BIGINT)) AS `m`"
    ]


def test_void_columns_are_not_added() -> None:
    """A column of nulls fits each type, and makes no column; neither does a struct of nothing else."""
    batch = struct(a=NullType(), b=struct(c=NullType()), d=ArrayType(NullType()), e=INT)
    assert new_table(batch) == struct(e=INT)
    evolution = evolve(struct(a=INT, d=ArrayType(INT)), batch, DELTA)
    assert changes(evolution) == (["e int"], [])
    assert expressions(batch, evolution.schema)[:2] == [
        "CAST(NULL AS INT) AS `a`",
        "TRANSFORM(`d`, e0 -> CAST(e0 AS INT)) AS `d`",
    ]


def test_names_are_compared_without_regard_to_case() -> None:
    """The table's spelling stays; two columns of a batch that differ only in case are refused."""
    table, batch = struct(Value=struct(Id=INT)), struct(value=struct(ID=INT))
    assert evolve(table, batch, PARQUET).schema == table
    assert expressions(batch, table) == ["IF(`value` IS NULL, NULL, NAMED_STRUCT('Id', `value`.`ID`)) AS `Value`"]
    assert "columns value.id and value.ID differ only in case" in refusal(
        struct(value=struct(id=INT)), struct(value=struct(id=INT, ID=INT))
    )


def test_names_are_quoted() -> None:
    """Names may contain dots, quotes and backslashes."""
    names = ["a.b", "it's", "`q`", "back\\slash"]
    batch = StructType([StructField("v", StructType([StructField(name, INT) for name in names]))])
    table = evolve(batch, StructType([*batch.fields, StructField("w.x", INT)]), DELTA).schema
    wide = StructType([StructField("v", StructType([StructField(name, LONG) for name in names])), *table.fields[1:]])
    (value, other) = expressions(batch, wide)
    assert "'it\\'s', CAST(`v`.`it's` AS BIGINT)" in value
    assert "'`q`', CAST(`v`.```q``` AS BIGINT)" in value
    assert "'back\\\\slash', CAST(`v`.`back\\slash` AS BIGINT)" in value
    assert other == "CAST(NULL AS INT) AS `w.x`"
    assert (
        sql_type(table) == "STRUCT<`v`: STRUCT<`a.b`: INT, `it's`: INT, ```q```: INT, `back\\slash`: INT>, `w.x`: INT>"
    )
