"""Skylark's broker as the slave of a RocketMQ master: mixed messages, kills of both, equal copies, then as the master.

The long version: `python -m tests.interop.replication --messages 100000 --kills 10`.
"""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.interop.brokers import APACHE_VERSIONS
from tests.interop.replication import Counts, short_runs

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Counts]]]:
    with short_runs(tmp_path_factory.mktemp("replicas"), "slave") as runs:
        yield runs


@pytest.mark.parametrize("version", APACHE_VERSIONS)
def test_our_copy_of_rocketmqs_broker_takes_over(
    version: str, runs: dict[str, Future[Counts]], measured: list[str]
) -> None:
    """Log and queues are equal after a kill of each side; official clients read everything from our copy."""
    measured.append(f"slave of Skylark behind RocketMQ {version}: {runs[version].result()}")
