"""A real Spark, one session for all tests here, and what they share.

Java has to be there: without it the tests are skipped, and under `CI=true` that counts as failed (tests/conftest.py).
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
    """Local, two tasks at a time, each of which may fail once and then the query does."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("java is not installed: Spark needs 17 or newer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PySpark's own imports and sockets
        session = started(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
