"""What is under deploy/prometheus, and what the broker tells, as Prometheus's own tool reads it."""

import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.harness.daemon import running
from tests.harness.ports import LOOPBACK
from tests.interop.toolchain import promtool

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("what", ["config", "rules"])
def test_prometheus_takes_configuration_and_rules(what: str) -> None:
    """promtool finds no fault in either."""
    path = DEPLOY / {"config": "prometheus.yml", "rules": "alerts.yml"}[what]
    done = subprocess.run([promtool(), "check", what, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_can_read_what_a_broker_tells(tmp_path: Path) -> None:
    """promtool reads all of it; what it would like otherwise are names that others have chosen."""
    tool = promtool()
    with running(directory=tmp_path) as daemon:
        address = f"http://{LOOPBACK}:{daemon.health_port}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read()
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, check=False)
    complaints = done.stderr.decode().splitlines()
    assert [line for line in complaints if not line.startswith("rocketmq_")] == []
