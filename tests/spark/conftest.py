"""A real Spark: one session for all tests in this folder, and common fixtures.

Java is required: without it the tests are skipped, which counts as failed under `CI=true` (tests/conftest.py).

Spark gives a Python process 10 s for its start, which no setting changes. On a busy machine a test may fail because of
that alone: it runs again, with new brokers, because it has sent messages to those of its module.
"""

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.session import started

FOLDER = Path(__file__).parent
SLOW_START = "Python worker failed to connect back"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, among all tests of the run."""
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun=SLOW_START))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """If a test runs again, finish the fixtures of its module. pytest-rerunfailures keeps them."""
    if getattr(item, "execution_count", 1) > 1:
        for fixtures in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]  # private
            for fixture in fixtures:
                if fixture.scope == "module":
                    fixture.finish(item._request)  # type: ignore[attr-defined]


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
