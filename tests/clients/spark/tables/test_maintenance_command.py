"""The command that maintains a table by PyIceberg, without Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from typer.testing import CliRunner

from skylarkmq.clients.spark.tables import maintenance
from skylarkmq.clients.spark.tables.command import table as command
from skylarkmq.clients.spark.tables.evolution import TableFormat
from skylarkmq.clients.spark.tables.maintenance import Request

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def no_prepared_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)

    def refuse(_request: Request, _format: TableFormat) -> Any:
        raise AssertionError("a session of Spark is started")

    monkeypatch.setattr(maintenance, "_session", refuse)


def test_the_summary_of_pyiceberg_needs_no_spark(tmp_path: Path) -> None:
    """As a line, and as JSON."""
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = load_catalog("lake", **settings)
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", Schema(NestedField(1, "id", LongType())))
    catalog.close()
    conf = [f"--conf=spark.sql.catalog.lake.{name}={value}" for name, value in settings.items()]
    done = CliRunner().invoke(command, ["compact", "lake.shop.orders", *conf])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("lake.shop.orders: 0 files became 0, 0 bytes were rewritten in ")
    done = CliRunner().invoke(command, ["expire", "lake.shop.orders", "--older-than", "7d", "--json", *conf])
    summary = json.loads(done.stdout)
    assert isinstance(summary.pop("seconds"), float)
    assert summary == {
        "table": "lake.shop.orders",
        "operation": "expire",
        "format": "iceberg",
        "engine": "pyiceberg",
        "filesDeleted": 0,
        "snapshots": 0,
    }


def test_other_errors_of_pyiceberg_end_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their text and the exit code 1."""
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = load_catalog("lake", **settings)
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", Schema(NestedField(1, "id", LongType())))
    catalog.close()
    monkeypatch.setattr("pyiceberg.table.Table.scan", lambda _table: 1 // 0)
    conf = [f"--conf=spark.sql.catalog.lake.{name}={value}" for name, value in settings.items()]
    done = CliRunner().invoke(command, ["compact", "lake.shop.orders", *conf])
    assert done.exit_code == 1
    assert "lake.shop.orders: ZeroDivisionError: integer division" in done.stderr
