"""PyIceberg's catalogs, configured by the same settings as Iceberg's Spark runtime.

    spark.sql.catalog.lake.type = rest         ->    load_catalog("lake", type="rest", uri=...)
    spark.sql.catalog.lake.uri = http://...

Without such a setting, PyIceberg's own configuration is used: `.pyiceberg.yaml` and `PYICEBERG_CATALOG__LAKE__...`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from skylarkmq.clients.spark.tables.availability import CATALOG_SETTING, Unavailable
from skylarkmq.clients.spark.tables.names import IcebergName

IMPLEMENTATIONS: Final = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
}
"""Classes of `catalog-impl`, and PyIceberg's type of the same catalog."""

ONLY_JAVA: Final = frozenset({"io-impl", "catalog-impl", "cache-enabled", "cache.expiration-interval-ms"})
NOT_IN_PYTHON: Final = {
    "hadoop": "use a rest, hive, glue or sql catalog",
    "jdbc": "use type=sql with uri=postgresql+psycopg2://... or uri=sqlite:///...",
    "nessie": "use Nessie's REST catalog: type=rest",
}


def catalog_properties(settings: Iterable[tuple[str, str]], catalog: str) -> dict[str, str]:
    """Return PyIceberg's properties of a catalog from settings of Spark. Raises Unavailable."""
    prefix = f"{CATALOG_SETTING}{catalog}."
    given = {name.removeprefix(prefix): value for name, value in settings if name.startswith(prefix)}
    kind = given.get("type") or _implemented(given)
    if kind in NOT_IN_PYTHON:
        raise Unavailable(f"PyIceberg has no catalog of type {kind}: {NOT_IN_PYTHON[kind]}")
    properties = {name: value for name, value in given.items() if name not in ONLY_JAVA}
    if kind is not None:
        properties["type"] = kind
    if properties.pop("s3.path-style-access", "").lower() == "true":
        properties["s3.force-virtual-addressing"] = "false"
    return properties


def _implemented(given: Mapping[str, str]) -> str | None:
    implementation = given.get("catalog-impl")
    if implementation is None:
        return None
    if implementation not in IMPLEMENTATIONS:
        known = ", ".join(IMPLEMENTATIONS)
        raise Unavailable(f"PyIceberg has no catalog {implementation}; it has catalogs of {known}")
    return IMPLEMENTATIONS[implementation]


def catalog_of(settings: Iterable[tuple[str, str]], name: IcebergName) -> Any:
    """Return PyIceberg's catalog of a table. Raises Unavailable if it cannot be loaded."""
    properties = catalog_properties(settings, name.catalog)
    try:
        return load_catalog(name.catalog, **properties)
    except Exception as error:
        raise Unavailable(
            f"PyIceberg cannot load the catalog {name.catalog}: {error} Set --conf "
            f"{CATALOG_SETTING}{name.catalog}.type and .uri, or PyIceberg's own configuration."
        ) from error


def table_of(catalog: Any, name: IcebergName) -> Any:
    """Return PyIceberg's table. Raises Unavailable if it does not exist."""
    try:
        return catalog.load_table(name.in_catalog)
    except NoSuchTableError as error:
        raise Unavailable(f"the table {name} does not exist in the catalog {name.catalog}") from error
