"""The module with which `docker compose` loads its files accepts those of deploy/."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.interop.go_commands import compose_loader

pytestmark = pytest.mark.interop

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
REPLICATION: Final = "docker-compose.replication.yml"
SERVICES: Final = {
    "docker-compose.yml": {"namesrv", "broker", "prometheus", "grafana"},
    REPLICATION: {"namesrv", "n1", "n2", "n3", "etcd"},
}


def loaded(path: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CLUSTER_SECRET": "0123456789abcdef"}
    return subprocess.run([compose_loader(), path], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("name", SERVICES)
def test_compose_files_are_valid(name: str) -> None:
    """By their schema, and with each volume, secret and dependency that a service names."""
    done = loaded(DEPLOY / name)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert set(services) == SERVICES[name]
    for service in services.values():
        assert service.get("image")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("    volumes: [n1:/data]", "    volumes: [n9:/data]", 'service "n1" refers to undefined volume n9'),
        ("secrets: [cluster-secret]", "secrets: [other]", "refers to undefined secret other"),
        ("    namesrv: {condition:", "    nameserver: {condition:", 'depends on undefined service "nameserver"'),
        ("stop_grace_period:", "stop_period:", "additional properties 'stop_period' not allowed"),
    ],
)
def test_mistakes_in_a_compose_file_are_found(tmp_path: Path, before: str, after: str, reason: str) -> None:
    """Otherwise the test above would pass for any file."""
    text = (DEPLOY / REPLICATION).read_text()
    assert before in text
    path = tmp_path / "docker-compose.yml"
    path.write_text(text.replace(before, after))
    done = loaded(path)
    assert done.returncode == 1
    assert reason in done.stderr
