"""A group of RocketMQ is moved to Skylark while it serves, and back, as docs/run/migrate.md describes.

    python -m tests.interop.migration 4.9.7

    Java master ──▶ Skylark slave
                    Skylark master ──▶ Java slave
                                       Java master

The broker keeps its name, address and offsets. A consumer group gets each message once: its offsets were copied, too.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from skylarkmq.protocol.bodies.route import TopicRouteData
from skylarkmq.protocol.codes import RequestCode
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import RawClient, RawResponse
from tests.interop.brokers import (
    APACHE_VERSIONS,
    DEFAULT_WHEEL_FLUSHES,
    READ_WRITE,
    apache_commands,
    daemon,
    skylark_commands,
    wait_until,
)
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup
from tests.interop.plan import SYNC, Order
from tests.interop.toolchain import ROOT

TOPIC, GROUP, NAME = "Orders", "billing", "broker-a"
QUEUES, SENT = 4, 40
MASTER, SLAVE = "ASYNC_MASTER", "SLAVE"
SIZES: Final = {"mappedFileSizeConsumeQueue": 20 * 10_000, "maxHashSlotNum": 50_000, "maxIndexNum": 200_000}
CLIENT_OF: Final = {"4.9.7": "java-4.9.8", "5.3.3": "java-5.3.3"}
PAGE: Final = (ROOT / "docs" / "run" / "migrate.md").read_text()


class Stages:
    """Runs clients of RocketMQ in each stage of the move. Each sends SENT messages, and consumes all of them."""

    def __init__(self, home: Path, command: Callable[[Path], list[str]], namesrv_port: int) -> None:
        self._home = home
        self._command = command
        self._namesrv_port = namesrv_port
        self._sent = 0

    def run(self, node: "Node") -> None:
        """Send and consume while this node is the master. The group gets no message of an earlier stage again."""
        wait_until(lambda: self._is_master(node), f"the route to {node.home.name}")
        home = self._home / f"clients-{node.home.name}"
        home.mkdir()
        drivers = DriverGroup(home, node.home / "broker.log")
        try:
            namesrv = f"{LOOPBACK}:{self._namesrv_port}"
            drivers.start("member", self._command, "consume", namesrv, TOPIC, GROUP)
            producer = drivers.start("producer", self._command, "produce", namesrv, TOPIC, "shop")
            drivers.wait_until(lambda: len(drivers.started) == 2, "both clients have started", PROCESS_LIMIT_S)
            names = [f"{node.home.name}-{number}" for number in range(SENT)]
            producer.send([Order(n, SYNC, "TagA", (n,), {"n": n}, n.encode()) for n in names])
            drivers.wait_for_messages(set(names), PROCESS_LIMIT_S)
            assert not drivers.failed, drivers.summary()
            assert sorted(each.message.n for each in drivers.deliveries) == sorted(names)
            self._sent += SENT
            wait_until(lambda: node.consumed() == self._sent, "the member has committed what its listener returned")
        finally:
            drivers.stop()

    def _is_master(self, node: "Node") -> bool:
        try:
            with RawClient(LOOPBACK, self._namesrv_port) as client:
                response = client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        except OSError:
            return False  # RocketMQ's name server is starting
        if response.code != 0:
            return False
        route = TopicRouteData.decode(response.body)
        return any(data.broker_addrs.get(0) == f"{LOOPBACK}:{node.port}" for data in route.broker_datas)


class Node:
    """A broker on a store below `home`: started and stopped by the test, in one role after the other."""

    def __init__(self, kind: str, home: Path, namesrv_port: int) -> None:
        home.mkdir()
        self.home = home
        self._kind = kind
        self._namesrv_port = namesrv_port
        self._running = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def start(self, port: int, role: str) -> None:
        """Start in this role, and wait until it serves requests."""
        self.port = port
        of_role = settings_of_slave() if role == SLAVE else {"brokerRole": role, "brokerId": 0}
        settings = SIZES | {
            "brokerName": NAME,
            **of_role,
            "namesrvAddr": f"{LOOPBACK}:{self._namesrv_port}",
            "brokerIP1": LOOPBACK,
            "brokerIP2": LOOPBACK,
            "bindAddress": LOOPBACK,
            "haListenPort": port + 1,
        }
        if self._kind == "skylark":
            (command,) = skylark_commands(self.home, self._namesrv_port, port, settings)
        else:
            del settings["bindAddress"]
            settings |= DEFAULT_WHEEL_FLUSHES
            _, command = apache_commands(self._kind, self.home, self._namesrv_port, port, settings)
        self._process = process = self._running.enter_context(daemon(*command, self.home))

        def serves() -> bool:
            assert process.poll() is None, (self.home / "broker.log").read_text(errors="replace")[-3_000:]
            try:
                return self.call(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
            except OSError:
                return False

        wait_until(serves, f"{self.home.name} serves as {role}")

    def stop(self) -> None:
        """Stop in order."""
        self._running.close()

    def kill(self) -> None:
        """End the process with SIGKILL, if it runs: nothing of its store is needed any more."""
        if self._process is not None:
            self._process.kill()
        self._running.close()

    def call(self, code: int, ext: dict[str, object] | None = None) -> RawResponse:
        with RawClient(LOOPBACK, self.port) as client:
            return client.call(code, ext or {})

    def end_of_log(self) -> int:
        return int(json.loads(self.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]["commitLogMaxOffset"])

    def has_topic(self) -> bool:
        return TOPIC in json.loads(self.call(RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]

    def offsets(self) -> list[str | None]:
        """Return the offsets of the group by queue; None without one."""
        position = {"consumerGroup": GROUP, "topic": TOPIC}
        codes = [self.call(RequestCode.QUERY_CONSUMER_OFFSET, position | {"queueId": queue}) for queue in range(QUEUES)]
        return [each.ext.get("offset") for each in codes]

    def consumed(self) -> int:
        """Return the number of messages that the group has consumed, in all queues from their begin."""
        return sum(int(offset or 0) for offset in self.offsets())


def settings_of_slave() -> dict[str, object]:
    """Return the settings of the page that make a broker a slave, without names and addresses."""
    section = PAGE.partition("## Without stopping")[2]
    (block,) = re.findall(r"```properties\n(.*?)```", section, flags=re.DOTALL)
    given = dict(line.split("=", 1) for line in block.split())
    return {key: given[key] for key in ("brokerId", "brokerRole")}


def verify(store: Path) -> None:
    """Run the check of the page: `mqbroker store verify`."""
    assert "`mqbroker store verify " in PAGE
    command = [sys.executable, "-m", "skylarkmq.broker", "store", "verify", str(store)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def create_topic(node: Node) -> None:
    numbers = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": READ_WRITE, "topicSysFlag": 0}
    ext = {"topic": TOPIC, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": False, **numbers}
    assert node.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0


def wait_until_copied(master: Node, slave: Node) -> None:
    """Wait until the slave has the log and the tables of its master, which has sent and committed everything."""
    wait_until(slave.has_topic, "the slave has the topic")
    wait_until(lambda: master.offsets() == slave.offsets(), "the slave has the offsets")
    wait_until(lambda: master.end_of_log() == slave.end_of_log(), "the slave has the log")


@contextmanager
def name_server(version: str, home: Path) -> Iterator[int]:
    """Start RocketMQ's name server, which all nodes use; yield its port."""
    home.mkdir()
    port, unused = free_ports(2)
    command, _ = apache_commands(version, home, port, unused, {})
    with daemon(*command, home) as process:
        yield port
        process.kill()  # it stores nothing


def move_and_back(version: str, home: Path) -> None:
    """Send and consume with clients of RocketMQ in each of the three stages. Raises AssertionError if a message is lost
    or delivered again."""
    command = CLIENTS[CLIENT_OF[version]].command
    (home / "build").mkdir()
    command(home / "build")  # build the driver, or skip, before anything starts
    master_port, copy_port = free_ports(2, beside=(-2, 1))
    with ExitStack() as stack:
        namesrv_port = stack.enter_context(name_server(version, home / "namesrv"))
        stages = Stages(home, command, namesrv_port)
        java, skylark, back = (
            Node(kind, home / name, namesrv_port)
            for kind, name in ((version, "java"), ("skylark", "skylark"), (version, "java-again"))
        )
        for node in (java, skylark, back):
            stack.callback(node.kill)
        java.start(master_port, MASTER)
        create_topic(java)
        stages.run(java)

        skylark.start(copy_port, SLAVE)
        wait_until_copied(java, skylark)
        java.stop()
        skylark.stop()
        verify(skylark.home / "store")
        skylark.start(master_port, MASTER)
        stages.run(skylark)

        back.start(copy_port, SLAVE)
        wait_until_copied(skylark, back)
        skylark.stop()
        back.stop()
        back.start(master_port, MASTER)
        stages.run(back)


def main() -> None:
    """Move a group of the version that is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", choices=APACHE_VERSIONS)
    version = parser.parse_args().version
    with tempfile.TemporaryDirectory() as home:
        move_and_back(version, Path(home))
    print(f"a group of {version} was moved to Skylark and back")


if __name__ == "__main__":
    main()
