"""Which tables can be maintained, and the command before the start of Spark."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from skylarkmq.clients.spark.tables import maintenance
from skylarkmq.clients.spark.tables.availability import Unavailable
from skylarkmq.clients.spark.tables.command import table as command
from skylarkmq.clients.spark.tables.evolution import TableFormat
from skylarkmq.clients.spark.tables.maintenance import Request, local_format, require_own_files


@pytest.fixture(autouse=True)
def no_prepared_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)

    def refuse(_request: Request, _format: TableFormat) -> Any:
        raise AssertionError("a session of Spark is started")

    monkeypatch.setattr(maintenance, "_session", refuse)


def test_the_format_is_that_of_the_files_or_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths that are not local are left to Spark."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "a.b.c").mkdir()
    assert local_format(str(tmp_path / "delta"), {}) is TableFormat.DELTA
    assert local_format("a.b.c", {}) is TableFormat.PARQUET
    assert local_format("lake.shop.orders", {}) is TableFormat.ICEBERG
    assert local_format("s3a://lake/a.b.c", {}) is None
    assert local_format("file:/lake/orders", {}) is None
    assert local_format("orders", {"spark.hadoop.fs.defaultFS": "hdfs://n"}) is None
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert local_format("delta", {}) is None


def test_tables_whose_files_belong_to_others_are_refused() -> None:
    """Those of an archive, and those that are marked."""
    require_own_files("lake.shop.orders", {"gc.enabled": "true", "skylark.last-batch.q": "1"})
    with pytest.raises(Unavailable, match="those of an archive"):
        require_own_files("lake.mq.messages", {"skylark.archive.end.broker-a": "1"})
    with pytest.raises(Unavailable, match=r"gc\.enabled=false"):
        require_own_files("lake.shop.orders", {"gc.enabled": "FALSE"})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("compact", "nowhere/orders"), "there is no table at nowhere/orders"),
        (("compact", "{directory}"), "a directory of Parquet files cannot be compacted safely: Spark's log"),
        (("compact", "{directory}", "--file-bytes", "0"), "--file-bytes must be a size such as 256m, not '0'"),
        (("compact", "{directory}", "--engine", "spark"), "--engine is for Iceberg tables"),
        (("compact", "{directory}", "--conf", "x"), "'x' must be KEY=VALUE"),
        (("compact", "lake.o", "--format", "iceberg"), "an Iceberg table is named catalog.namespace.table"),
        (("expire", "{directory}", "--older-than", "23h"), "--older-than must be 1d or more for Parquet"),
        (
            ("expire", "{directory}", "--older-than", "soon"),
            "--older-than must be a time such as 7d or 12h, not 'soon'",
        ),
        (("expire", "{directory}", "--older-than", "9999999999d"), "--older-than must be a time such as 7d"),
        (("compact", "lake.shop.missing", "{catalog}"), "the table lake.shop.missing does not exist in the catalog"),
        (("compact", "lake.shop.o", "--conf", "spark.sql.catalog.lake.type=hadoop"), "no catalog of type hadoop"),
    ],
)
def test_a_mistake_is_one_line_with_advice(arguments: tuple[str, ...], error: str, tmp_path: Path) -> None:
    """Spark is not started; the exit code is 2."""
    catalog = f"--conf=spark.sql.catalog.lake.uri=sqlite:///{tmp_path}/catalog.db"
    given = [part.format(directory=tmp_path, catalog=catalog) for part in arguments]
    done = CliRunner().invoke(command, given)
    (line,) = done.stderr.splitlines()
    assert (done.exit_code, line.startswith("mqspark-table: ")) == (2, True), done.output
    assert error in line
