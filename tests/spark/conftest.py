"""A real Spark: one session for all tests in this folder, and common fixtures.

Java is required: without it the tests are skipped, which counts as failed under `CI=true` (tests/conftest.py).
"""

import os
import shutil
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.session import started


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two concurrent tasks; a task may fail once before the query fails."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("java is not installed: Spark needs 17 or newer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of PySpark's own imports and sockets
        session = started(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
