"""Spark to a Delta table: each message is one row after kills and stops.

The tox environments have Delta's jar (`[tool.tox]` of pyproject.toml). Without it the program ends with an error.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skylarkmq import Message
from tests.examples.program import Program, started
from tests.examples.topics import send
from tests.harness.ports import LOOPBACK

pytestmark = pytest.mark.spark

PROGRAM = "spark_to_delta.py"
HAS_DELTA = "io.delta:" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")
TOPIC = "Orders"


@contextmanager
def running(namesrv: str, directory: Path) -> Iterator[Program]:
    """Start the program with its table and checkpoint below a directory."""
    arguments = (TOPIC, directory / "orders", directory / "checkpoint", "--namesrv", namesrv)
    with started(PROGRAM, *arguments, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP=LOOPBACK) as program:
        yield program


def order(number: int) -> Message:
    return Message(TOPIC, json.dumps({"id": f"order-{number}", "cents": number}).encode())


def table(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Delta table."""
    from deltalake import DeltaTable  # noqa: PLC0415 - only the environments with Delta's jar have it

    found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return found


@pytest.fixture(autouse=True)
def java() -> None:
    """Skip the tests without Java."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("java is not installed: Spark needs 17 or newer")


def test_each_message_is_one_row_after_kills(namesrv: str, tmp_path: Path) -> None:
    """Killed between Delta's commit and that of the checkpoint: the batch runs again and adds nothing."""
    if not HAS_DELTA:
        return  # the next test
    send(namesrv, [*map(order, range(10)), Message(TOPIC, b"no order")])
    with running(namesrv, tmp_path) as program:
        program.wait_for("written batch=0 rows=11")
        program.kill()
    commits = tmp_path / "checkpoint" / "commits"
    (commits / "0").unlink()
    (commits / ".0.crc").unlink()
    send(namesrv, [*map(order, range(10, 20))])
    with running(namesrv, tmp_path) as program:
        program.wait_for("written batch=1 rows=10")
        assert program.stop() == 0
        assert "stopped" in program.output
    rows = table(tmp_path / "orders")
    assert sorted(row["order"]["cents"] for row in rows if row["order"]) == list(range(20))
    assert [row["body"] for row in rows if not row["order"]] == [b"no order"]
    assert len({(row["queueId"], row["queueOffset"]) for row in rows}) == len({row["msgId"] for row in rows}) == 21


def test_without_the_jar_the_program_fails(namesrv: str, tmp_path: Path) -> None:
    """The error names what is missing, and no table is written."""
    if HAS_DELTA:
        return
    send(namesrv, [order(1)])
    with running(namesrv, tmp_path) as program:
        assert program.wait() == 1
        assert "delta" in program.output.lower()
    assert not (tmp_path / "orders").exists()
