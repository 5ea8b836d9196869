"""A client in another container reaches the broker by the address that it advertises, and nothing else is configured.

Containers are network, mount and host name namespaces here, made by `unshare` and connected by a pair of virtual
interfaces, as container engines do it; no engine is needed. The broker has the settings of the image.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.harness.limits import PROCESS_LIMIT_S

pytestmark = pytest.mark.daemon

ROOT: Final = Path(__file__).resolve().parent.parent
POLL_S: Final = 0.05
BROKER, CLIENT = "172.30.0.2", "172.30.0.3"
POD = "skylark-0.skylark.mq.svc.cluster.local"
SENDER: Final = """
import sys
from skylarkmq import Message, blocking
with blocking.connect(sys.argv[1]) as mq, mq.producer("shop") as producer:
    print(producer.send(Message("Orders", b"one coffee")).status.name)
"""
(IMAGE_LINE,) = re.findall(r"^ENV (.*SKYLARK_.*)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
IMAGE: Final = {
    name: value for name, value in re.findall(r"(\w+)=(\S+)", IMAGE_LINE) if name.startswith(("SKYLARK_", "PYTHON"))
}


class Container:
    """Namespaces that a sleeping process holds."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, directory: Path) -> None:
        self.pid = process.pid
        self.directory = directory / name
        self.directory.mkdir()
        self.run("hostname", name)
        self.run("ip", "link", "set", "lo", "up")

    def command(self, *command: str) -> list[str]:
        """Return a command that runs inside, in the container's directory: a new mount namespace begins at `/`."""
        namespaces = [f"--target={self.pid}", "--net", "--uts", "--mount"]
        return ["nsenter", *namespaces, f"--wd={self.directory}", "--", *command]

    def run(self, *command: str) -> None:
        subprocess.run(self.command(*command), check=True, capture_output=True)

    def use_hosts(self, text: str) -> None:
        """Replace /etc/hosts."""
        hosts = self.directory / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{text}\n")
        self.run("mount", "--bind", str(hosts), "/etc/hosts")

    def python(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start Python inside, with these variables only; its output is in one pipe."""
        inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        return subprocess.Popen(
            self.command(sys.executable, *arguments),
            env=inherited | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@contextmanager
def container(name: str, directory: Path) -> Iterator[Container]:
    process = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "sleep", "infinity"])
    try:
        deadline = time.monotonic() + PROCESS_LIMIT_S
        while Path(f"/proc/{process.pid}/comm").read_text().strip() != "sleep":
            assert time.monotonic() < deadline, "no namespaces"
            time.sleep(POLL_S)
        yield Container(process, name, directory)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[tuple[Container, Container]]:
    """A container for the broker and one for a client, in a network without a gateway."""
    allowed = subprocess.run(["unshare", "--net", "--uts", "--mount", "ip", "link"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip(f"no namespaces: {allowed.stderr.decode().strip()}")
    with ExitStack() as stack:
        pair = [stack.enter_context(container(name, tmp_path)) for name in ("skylark-0", "client")]
        ends = [("eth0", "netns", str(one.pid)) for one in pair]
        subprocess.run(["ip", "link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1]], check=True)
        for one, address in zip(pair, (BROKER, CLIENT), strict=True):
            one.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
            one.run("ip", "link", "set", "eth0", "up")
        yield pair[0], pair[1]


def advertised(broker: Container, client: Container, namesrv: str, **variables: str) -> str:
    """Start the broker, let the client send a message, and return the address in the broker's log."""
    daemon = broker.python("-m", "skylarkmq.broker", **IMAGE, **variables)
    assert daemon.stdout is not None
    try:
        lines = []
        for line in daemon.stdout:
            lines.append(line)
            if " ready port=" in line:
                break
        log = "".join(lines)
        assert " ready port=" in log, log
        sender = client.python("-c", SENDER, namesrv)
        output, _ = sender.communicate(timeout=PROCESS_LIMIT_S)
        assert output == "OK\n", output
    finally:
        daemon.terminate()
        daemon.communicate(timeout=PROCESS_LIMIT_S)
    (found,) = re.findall(r" advertised=(\S+) ", log)
    return str(found)


def test_in_a_network_with_a_gateway_it_is_the_address_of_the_container(
    containers: tuple[Container, Container],
) -> None:
    """As in Docker's own networks."""
    broker, client = containers
    broker.run("ip", "route", "add", "default", "via", "172.30.0.1")
    assert advertised(broker, client, f"{BROKER}:9876") == BROKER


def test_in_a_network_without_a_gateway_it_is_the_address_of_the_host_name(
    containers: tuple[Container, Container],
) -> None:
    """As in an internal network of Docker, which writes the container's address to /etc/hosts."""
    broker, client = containers
    broker.use_hosts(f"{BROKER} skylark-0")
    assert advertised(broker, client, f"{BROKER}:9876") == BROKER


def test_in_a_pod_of_a_stateful_set_it_is_the_name_of_the_pod(containers: tuple[Container, Container]) -> None:
    """The kubelet writes the name to /etc/hosts; clients resolve it by the cluster's DNS."""
    broker, client = containers
    for one in containers:
        one.use_hosts(f"{BROKER} {POD} skylark-0")
    broker.run("ip", "route", "add", "default", "via", "172.30.0.1")
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "POD_IP": BROKER}
    assert advertised(broker, client, f"{POD}:9876", **pod) == POD


def test_in_any_other_pod_it_is_the_address_of_the_pod(containers: tuple[Container, Container]) -> None:
    """Its /etc/hosts has the host name only."""
    broker, client = containers
    broker.use_hosts(f"{BROKER} skylark-0")
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "POD_IP": BROKER}
    assert advertised(broker, client, f"{BROKER}:9876", **pod) == BROKER


def test_a_container_without_a_network_does_not_start(tmp_path: Path, containers: tuple[Container, Container]) -> None:
    """One line names the setting."""
    with container("alone", tmp_path) as alone:
        alone.use_hosts("127.0.1.1 alone")
        daemon = alone.python("-m", "skylarkmq.broker", **IMAGE)
        output, _ = daemon.communicate(timeout=PROCESS_LIMIT_S)
    assert daemon.returncode == 1
    assert output.startswith("mqbroker: bindAddress=0.0.0.0: expected with brokerIP1, ")
    assert output.count("\n") == 1
