"""SQL statements that create and change tables, for Delta and Iceberg in Spark. Pure: texts from schemas.

A table is named `catalog`.`namespace`.`table` or delta.`/path`; the functions get the name as SQL, already quoted.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql.types import StructType

from skylarkmq.clients.spark.tables.evolution import Evolution, sql_type


def quoted(*parts: str) -> str:
    """Return a name of these parts as SQL."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def text(value: str) -> str:
    """Return a text as an SQL literal. `${name}` in it is not a variable, whose value Spark would insert."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\{") + "'"


def create(
    name: str, schema: StructType, table_format: str, partitions: Sequence[str], properties: Mapping[str, str]
) -> str:
    """Return CREATE TABLE IF NOT EXISTS. `partitions` are SQL: columns, or transforms of Iceberg."""
    columns = ", ".join(f"{quoted(field.name)} {sql_type(field.dataType)}" for field in schema.fields)
    statement = f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING {table_format}"
    if partitions:
        statement += f" PARTITIONED BY ({', '.join(partitions)})"
    return f"{statement} {_properties('TBLPROPERTIES', properties)}".rstrip()


def changes(name: str, evolution: Evolution) -> list[str]:
    """Return the ALTER TABLE statements that apply an evolution."""
    statements = []
    if evolution.added:
        columns = ", ".join(f"{quoted(*added.path)} {sql_type(added.type)}" for added in evolution.added)
        statements.append(f"ALTER TABLE {name} ADD COLUMNS ({columns})")
    statements += [
        f"ALTER TABLE {name} ALTER COLUMN {quoted(*widened.path)} TYPE {sql_type(widened.after)}"
        for widened in evolution.widened
    ]
    return statements


def set_properties(name: str, properties: Mapping[str, str]) -> str:
    """Return ALTER TABLE ... SET TBLPROPERTIES."""
    return f"ALTER TABLE {name} {_properties('SET TBLPROPERTIES', properties)}"


def _properties(clause: str, properties: Mapping[str, str]) -> str:
    values = ", ".join(f"{text(key)} = {text(value)}" for key, value in properties.items())
    return f"{clause} ({values})" if values else ""
