"""The daemons of a replicated group: a name server, a master and a slave, each killed and started again by a test."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from skylarkmq.protocol.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse
from tests.interop.brokers import (
    DEFAULT_WHEEL_FLUSHES,
    apache_commands,
    broker_ports,
    log_file,
    skylark_commands,
    wait_until,
)
from tests.interop.toolchain import ROOT

BROKER_NAME: Final = "replicated"
CLUSTER: Final = "DefaultCluster"
OK: Final = 0
SIZES: Final = {
    "mappedFileSizeCommitLog": 2 << 20,
    "mappedFileSizeConsumeQueue": 20 * 1_000,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000,
}
"""Small sizes, so that log, queues and index consist of many files."""
LONG_MS: Final = 3_600_000
SHORT_TIMERS: Final = {"registerNameServerPeriod": 10_000, "haSendHeartbeatInterval": 1_000}
"""A slave of RocketMQ finds its master by a registration, and gets data after its first report."""


class Node:
    """One daemon. `port` is where it serves requests; `crashes` is how often it has ended by itself."""

    def __init__(self, home: Path, command: Sequence[str], environment: Mapping[str, str], port: int) -> None:
        self.home = home
        self.port = port
        self._command = list(command)
        self._environment = os.environ | dict(environment)
        self.process: subprocess.Popen[bytes] | None = None
        self.crashes = 0

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        with log_file(self.home).open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """End the process with SIGTERM, and wait until it has stopped."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(PROCESS_LIMIT_S)
            self.process = None

    def revive(self) -> None:
        """Start the process again, and count a crash, if it has ended by itself: the JVM of RocketMQ 4.9 may crash when
        a topic is deleted, because a thread still writes to the queue that another one unmaps."""
        if self.process is not None and self.process.poll() is not None:
            self.crashes += 1
            self.start()

    def client(self) -> RawClient:
        return RawClient(LOOPBACK, self.port, WAIT_LIMIT_S)

    def call(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"") -> RawResponse:
        """Send one request on a connection of its own. Raises OSError."""
        with self.client() as client:
            return client.call(code, ext, body)

    def responds(self, code: int) -> bool:
        """Return whether this request succeeds. Raises AssertionError if the process has ended."""
        assert self.process is not None
        assert self.process.poll() is None, log_file(self.home).read_text(errors="replace")[-5_000:]
        try:
            return self.call(code).code == OK
        except OSError:
            return False

    def log_bounds(self) -> tuple[int, int]:
        """Return the first byte of the log, and the byte after its last one. Raises OSError."""
        table = body_table(self.call(RequestCode.GET_BROKER_RUNTIME_INFO))
        return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])


def register_transactions(home: Path) -> None:
    """Register the topics of transactions, unless the store has a table of topics already.

    RocketMQ 4.9 registers them later, in its transaction checks. The deletion of any topic also deletes the queues of
    all topics that are not registered.
    """
    table = home / "store" / "config" / "topics.json"
    if not table.exists():
        table.parent.mkdir(parents=True)
        topics = {name: TopicConfig(name, 1, 1) for name in (SystemTopic.TRANSACTION_HALF, SystemTopic.TRANSACTION_OP)}
        table.write_bytes(TopicConfigSerializeWrapper(topic_config_table=topics).encode())


def body_table(response: RawResponse) -> dict[str, str]:
    table: dict[str, str] = json.loads(response.body)["table"]
    return table


class Group:
    """A name server of RocketMQ, and two brokers with one name: one of RocketMQ, one of Skylark.

    `version` is RocketMQ's, `ours` the role of Skylark's broker. `settings` are further ones of both.
    """

    def __init__(
        self,
        home: Path,
        version: str,
        ours: str,
        settings: Mapping[str, object] = {},
        master_role: str = "SYNC_MASTER",
    ) -> None:
        self.home = home
        self.version = version
        self.ours = ours
        self._settings = {
            "brokerName": BROKER_NAME,
            "brokerClusterName": CLUSTER,
            "fileReservedTime": 10_000,
            "transactionCheckInterval": LONG_MS,
            "transactionTimeOut": LONG_MS,
            "messageIndexSafe": "true",
            **SHORT_TIMERS,
            **SIZES,
            **settings,
        }
        (self.namesrv_port, self.java_port), (_, self.our_port) = broker_ports(), broker_ports()
        java_role = "SLAVE" if ours == "master" else master_role
        self.name_server, java = self._java(home / "java", java_role)
        skylark = self.skylark(home / "skylark", master_role if ours == "master" else "SLAVE", totalReplicas=2)
        self.master, self.slave = (skylark, java) if ours == "master" else (java, skylark)

    @property
    def crashes(self) -> int:
        """How often the master has ended by itself."""
        return self.master.crashes

    @property
    def namesrv(self) -> str:
        return f"{LOOPBACK}:{self.namesrv_port}"

    def _java(self, home: Path, role: str) -> tuple[Node, Node]:
        home.mkdir(parents=True, exist_ok=True)
        if role != "SLAVE" and self.version.startswith("4"):
            register_transactions(home)
        settings = self._settings | {"brokerRole": role, "brokerId": int(role == "SLAVE")}
        if self.ours == "slave":  # which copies the progress of timers
            settings |= DEFAULT_WHEEL_FLUSHES
        commands = apache_commands(self.version, home, self.namesrv_port, self.java_port, settings)
        ports = self.namesrv_port, self.java_port
        name_server, broker = (Node(home, *command, port) for command, port in zip(commands, ports, strict=True))
        return name_server, broker

    def skylark(self, home: Path, role: str, **settings: object) -> Node:
        """Return a broker of Skylark in this group, on the store below `home`."""
        home.mkdir(parents=True, exist_ok=True)
        own = {
            "namesrvAddr": self.namesrv,
            "brokerIP1": LOOPBACK,
            "bindAddress": LOOPBACK,
            "brokerRole": role,
            "brokerId": int(role == "SLAVE"),
            **settings,
        }
        [command] = skylark_commands(home, self.namesrv_port, self.our_port, self._settings | own)
        return Node(home, *command, self.our_port)

    def copy_as_master(self) -> Node:
        """Return a master on the store of the slave, which has stopped."""
        home = self.slave.home
        return self._java(home, "ASYNC_MASTER")[1] if self.ours == "master" else self.skylark(home, "ASYNC_MASTER")

    def start(self) -> None:
        self.name_server.start()
        wait_until(lambda: self.name_server.responds(RequestCode.GET_BROKER_CLUSTER_INFO), "the name server")
        self.start_master()
        self.start_slave()

    def start_master(self) -> None:
        """Start the master, and wait until it is registered."""
        self.master.start()
        wait_until(lambda: self.master.responds(RequestCode.GET_BROKER_RUNTIME_INFO), "the master")
        wait_until(self._is_master_registered, "the master's registration")

    def _is_master_registered(self) -> bool:
        return self.master.address.encode() in self.name_server.call(RequestCode.GET_BROKER_CLUSTER_INFO).body

    def start_slave(self) -> None:
        """Start the slave; behind our master also wait until it copies, which may take a minute."""
        self.slave.start()
        wait_until(lambda: self.slave.responds(RequestCode.GET_BROKER_RUNTIME_INFO), "the slave")
        if self.ours == "master":
            wait_until(self._has_slave, "the slave is connected")

    def _has_slave(self) -> bool:
        status = json.loads(self.master.call(RequestCode.GET_BROKER_HA_STATUS).body)
        return bool(status["haConnectionInfo"])

    def wait_equal(self) -> int:
        """Wait until the slave has all of the master's log, and return its end."""
        ends: list[int] = []

        def equal() -> bool:
            ends[:] = [self.master.log_bounds()[1], self.slave.log_bounds()[1]]
            return ends[0] == ends[1]

        wait_until(equal, "the slave has the whole log")
        return ends[0]

    def close(self) -> None:
        for node in (self.slave, self.master, self.name_server):
            node.kill()
