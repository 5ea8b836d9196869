"""Spark's settings of a catalog as PyIceberg's."""

import pytest

from skylarkmq.clients.spark.tables.availability import Unavailable
from skylarkmq.clients.spark.tables.names import iceberg_name
from skylarkmq.clients.spark.tables.pyiceberg_catalog import catalog_of, catalog_properties, table_of

pytestmark = pytest.mark.spark

LAKE = "spark.sql.catalog.lake"


def test_settings_of_the_catalog_become_properties() -> None:
    """Settings of other catalogs, and those that only Java has, are left out."""
    settings = {
        f"{LAKE}": "org.apache.iceberg.spark.SparkCatalog",
        f"{LAKE}.catalog-impl": "org.apache.iceberg.rest.RESTCatalog",
        f"{LAKE}.uri": "http://catalog:8181",
        f"{LAKE}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{LAKE}.s3.path-style-access": "true",
        "spark.sql.catalog.lakeside.uri": "http://other",
    }
    assert catalog_properties(settings.items(), "lake") == {
        "uri": "http://catalog:8181",
        "type": "rest",
        "s3.force-virtual-addressing": "false",
    }
    assert catalog_properties({}.items(), "lake") == {}


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [
        ("type", "hadoop", "use a rest, hive, glue or sql catalog"),
        ("type", "jdbc", "use type=sql"),
        ("catalog-impl", "com.example.Own", "PyIceberg has no catalog com.example.Own"),
    ],
)
def test_a_catalog_that_pyiceberg_lacks_is_refused(setting: str, value: str, advice: str) -> None:
    """With the catalogs to use."""
    with pytest.raises(Unavailable) as caught:
        catalog_properties([(f"{LAKE}.{setting}", value)], "lake")
    assert advice in str(caught.value)


def test_a_missing_catalog_or_table_is_refused() -> None:
    """With the settings to add."""
    name = iceberg_name("lake.shop.orders")
    with pytest.raises(Unavailable, match=r"Set --conf spark\.sql\.catalog\.lake\.type"):
        catalog_of([], name)
    catalog = catalog_of([(f"{LAKE}.type", "in-memory")], name)
    catalog.create_namespace("shop")
    with pytest.raises(Unavailable, match=r"the table lake\.shop\.orders does not exist"):
        table_of(catalog, name)
