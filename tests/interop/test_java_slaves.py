"""Slaves of RocketMQ behind a Skylark master: equal copies after kills, and a copy that takes over."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.interop.brokers import APACHE_VERSIONS
from tests.interop.replication import Counts, short_runs

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Counts]]]:
    with short_runs(tmp_path_factory.mktemp("slaves"), "master") as runs:
        yield runs


@pytest.mark.parametrize("version", APACHE_VERSIONS)
def test_a_slave_of_rocketmq_has_the_log_and_takes_over(
    version: str, runs: dict[str, Future[Counts]], measured: list[str]
) -> None:
    """A SYNC_MASTER and its slave are killed while messages of all kinds are sent: logs and queue units are equal, and
    the slave's store serves every message when RocketMQ starts as its master."""
    measured.append(f"slave of RocketMQ {version}: {runs[version].result()}")
