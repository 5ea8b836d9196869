"""Names of tables."""

import pytest

from skylarkmq.clients.spark.tables.names import iceberg_name, side_table


def test_an_iceberg_name_has_a_catalog_a_namespace_and_a_table() -> None:
    """A namespace may have several parts; SQL quotes each part."""
    name = iceberg_name("lake.shop.eu.orders-1")
    assert (name.catalog, name.namespace, name.table) == ("lake", ("shop", "eu"), "orders-1")
    assert (name.sql, name.namespace_sql) == ("`lake`.`shop`.`eu`.`orders-1`", "`lake`.`shop`.`eu`")
    assert (name.in_catalog, str(name)) == (("shop", "eu", "orders-1"), "lake.shop.eu.orders-1")


@pytest.mark.parametrize(
    "text", ["orders", "shop.orders", "s3a://lake/orders", "lake..orders", "lake.shop.or ders", ""]
)
def test_other_names_are_refused(text: str) -> None:
    """With an example."""
    with pytest.raises(ValueError, match=r"such as lake\.orders\.messages"):
        iceberg_name(text)


def test_the_side_table_is_beside_the_table() -> None:
    """Both for names and for directories."""
    assert side_table("lake.shop.orders") == "lake.shop.orders_bad"
    assert side_table("s3a://lake/orders/") == "s3a://lake/orders_bad"
