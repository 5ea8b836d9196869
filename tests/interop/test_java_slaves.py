"""Slaves of RocketMQ behind a Skylark master: equal copies after kills, and a copy that takes over."""

from pathlib import Path

import pytest

from tests.interop.brokers import APACHE_VERSIONS
from tests.interop.replication import Load, run

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", APACHE_VERSIONS)
def test_a_slave_of_rocketmq_has_the_log_and_takes_over(version: str, tmp_path: Path, measured: list[str]) -> None:
    """A SYNC_MASTER and its slave are killed while messages of all kinds are sent: logs and queue units are equal, and
    the slave's store serves every message when RocketMQ starts as its master."""
    load = Load(version=version, role="master", messages=300, kills=1)
    measured.append(f"{load}: {run(tmp_path, load)}")
