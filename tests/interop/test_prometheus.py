"""Prometheus's own tool accepts the files of deploy/prometheus and the metrics of the broker, and alerts fire."""

import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.harness.daemon import running
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.interop.toolchain import promtool

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
ALERTS = Path(__file__).resolve().parent / "alerts"

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("kind", ["config", "rules"])
def test_promtool_accepts_configuration_and_rules(kind: str) -> None:
    """promtool reports no problem in either file."""
    path = DEPLOY / {"config": "prometheus.yml", "rules": "alerts.yml"}[kind]
    done = subprocess.run([promtool(), "check", kind, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("tests", sorted(ALERTS.glob("*.yml")), ids=lambda tests: tests.stem)
def test_alerts_fire_when_they_should(tests: Path) -> None:
    """Each file has the series, and the times at which each alert fires and does not fire, with its text."""
    done = subprocess.run([promtool(), "test", "rules", tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_metrics_of_a_broker(tmp_path: Path) -> None:
    """promtool parses all metrics. It may only criticize names that RocketMQ defines (rocketmq_*)."""
    tool = promtool()
    with running(directory=tmp_path) as daemon:
        address = f"http://{LOOPBACK}:{daemon.health_port}/metrics"
        with urllib.request.urlopen(address, timeout=WAIT_LIMIT_S) as response:
            text = response.read()
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, check=False)
    problems = done.stderr.decode().splitlines()
    assert [line for line in problems if not line.startswith("rocketmq_")] == []
