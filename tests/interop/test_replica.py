"""Skylark's broker as the slave of a RocketMQ master: mixed messages, kills of both, equal copies, then as the master.

The long version: `python -m tests.interop.replication --messages 100000 --kills 10`.
"""

from pathlib import Path

import pytest

from tests.interop.brokers import APACHE_VERSIONS
from tests.interop.replication import Load, run

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", APACHE_VERSIONS)
def test_our_copy_of_rocketmqs_broker_takes_over(version: str, tmp_path: Path, measured: list[str]) -> None:
    """Log and queues are equal after a kill of each side; official clients read everything from our copy."""
    load = Load(version=version, role="slave", messages=300, kills=1)
    measured.append(f"{load}: {run(tmp_path, load)}")
