"""A real Spark, one session for all tests here, and what they share.

Java has to be there: without it the tests are skipped, and under `CI=true` that counts as failed (tests/conftest.py).
Executor workers import this tree from where the tests run, whatever the directory they were started in.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from clients.spark import register

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Local, two tasks at a time, each of which may fail once and then the query does."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("java is not installed: Spark needs 17 or newer")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    home = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in (SETTINGS | {"spark.local.dir": home, "spark.sql.warehouse.dir": home / "warehouse"}).items():
        builder = builder.config(name, str(value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PySpark's own imports and sockets
        session = builder.getOrCreate()
    register(session)
    yield session
    session.stop()
