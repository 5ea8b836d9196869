"""The quick start of docs/use/spark/sources.md and the first table of docs/use/spark/tables.md run unchanged."""

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylarkmq.clients.spark.pipeline.command import pipeline
from tests.harness.daemon import running

pytestmark = pytest.mark.spark

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "use" / "spark" / "sources.md").read_text()
QUICK_START = TEXT.split("## Quick start")[1].split("\n## ")[0]
TABLES = (Path(__file__).resolve().parents[2] / "docs" / "use" / "spark" / "tables.md").read_text()
FIRST_TABLE = TABLES.split("## A first table in five minutes")[1].split("\n## ")[0]
SERVER = "127.0.0.1:9876"


def test_the_quick_start_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick start writes 1,000 rows, reads them, counts them in a stream and writes them to Parquet."""
    (program,) = re.findall(r"^```python\n(.*?)^```", QUICK_START, flags=re.MULTILINE | re.DOTALL)
    (command,) = re.findall(r"^mqspark-pipeline (.*)$", QUICK_START, flags=re.MULTILINE)
    assert SERVER in program
    monkeypatch.chdir(tmp_path)
    with running(directory=tmp_path) as daemon:
        said = io.StringIO()
        with redirect_stdout(said):
            exec(compile(program.replace(SERVER, daemon.namesrv), "docs/use/spark/sources.md", "exec"), {})
        assert "read 1000\n" in said.getvalue()
        assert re.search(r"\|paid\|\s*1000\|", said.getvalue())
        command = command.replace(SERVER, daemon.namesrv).replace("-o lake", f"-o {tmp_path / 'lake'}")
        done = CliRunner().invoke(pipeline, shlex.split(command))
        assert done.exit_code == 0, done.output
        assert "lag Orders=0" in done.stderr
    assert spark.read.parquet(str(tmp_path / "lake")).count() == 1000


def test_the_first_table_is_written_and_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand orders in an Iceberg table, and the other message with its reason in the side table."""
    send, read = re.findall(r"^```python\n(.*?)^```", FIRST_TABLE, flags=re.MULTILINE | re.DOTALL)
    (command,) = re.findall(r"^mqspark-pipeline (.*?)\n```", FIRST_TABLE, flags=re.MULTILINE | re.DOTALL)
    command = command.replace("\\\n", " ").replace("$PWD", str(tmp_path))
    command = command.replace(
        "--checkpoint checkpoint", f"--checkpoint {tmp_path / 'checkpoint'}"
    )  # Spark started elsewhere
    monkeypatch.chdir(tmp_path)
    with running(directory=tmp_path) as daemon:
        exec(compile(send.replace(SERVER, daemon.namesrv), "docs/use/spark/tables.md", "exec"), {})
        done = CliRunner().invoke(pipeline, shlex.split(command.replace(SERVER, daemon.namesrv)))
        assert done.exit_code == 0, done.output
    said = io.StringIO()
    with redirect_stdout(said):
        exec(compile(read, "docs/use/spark/tables.md", "exec"), {})
    assert said.getvalue().startswith("[(1000, 999, 'Orders')]\nthe body is not a JSON object of the schema")
    assert said.getvalue().endswith("b'no order'\n")
