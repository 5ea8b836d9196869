"""SQL of tables."""

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from skylarkmq.clients.spark.tables import ddl
from skylarkmq.clients.spark.tables.evolution import TableFormat, evolve

SCHEMA = StructType([StructField("topic", StringType()), StructField("od`d", IntegerType())])


def test_a_table_is_created_with_its_partitions_and_properties() -> None:
    """All names and texts are quoted."""
    statement = ddl.create("`c`.`n`.`t`", SCHEMA, "iceberg", ["`topic`", "hours(`at`)"], {"it's": "a\\b"})
    assert statement == (
        "CREATE TABLE IF NOT EXISTS `c`.`n`.`t` (`topic` STRING, `od``d` INT) USING iceberg "
        "PARTITIONED BY (`topic`, hours(`at`)) TBLPROPERTIES ('it\\'s' = 'a\\\\b')"
    )
    assert ddl.create("t", SCHEMA, "delta", [], {}).endswith("USING delta")


def test_an_evolution_becomes_statements() -> None:
    """New columns in one statement, each wider column in its own."""
    batch = StructType([StructField("od`d", LongType()), StructField("x", StringType()), StructField("y", LongType())])
    assert ddl.changes("t", evolve(SCHEMA, batch, TableFormat.ICEBERG)) == [
        "ALTER TABLE t ADD COLUMNS (`x` STRING, `y` BIGINT)",
        "ALTER TABLE t ALTER COLUMN `od``d` TYPE BIGINT",
    ]
    assert ddl.changes("t", evolve(SCHEMA, SCHEMA, TableFormat.ICEBERG)) == []


def test_properties_are_set() -> None:
    """In one statement; names of brokers in them insert no variables of Spark."""
    assert ddl.set_properties("t", {"a": "1", "b": "2"}) == "ALTER TABLE t SET TBLPROPERTIES ('a' = '1', 'b' = '2')"
    of_broker = {"a": '{"T": {"b${spark.secret}\'": 1}}'}
    assert ddl.set_properties("t", of_broker).endswith(r"""('a' = '{"T": {"b$\{spark.secret}\'": 1}}')""")
