"""A group of broker processes that are linked: n1 leads. For tests of whole daemons.

with LinkedGroup(tmp_path) as group:
    group.start("n1", "n2", "n3")
    group.send(b"hello")            # the response code, and the offset in the log
    group.kill("n2")
    group.log("n2")                 # the bytes of its commit log
"""

import json
import signal
from pathlib import Path
from typing import Any, Final, NamedTuple

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.message_id import decode_offset_id
from tests.ha.group_daemons import GroupDaemons, wait
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import RawClient

SECRET: Final = "a secret of this group"
SEND: Final = {
    "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": False,
}  # fmt: skip


class Sent(NamedTuple):
    """A response: its code and remark, and where the message is in the log."""

    code: int
    remark: str
    offset: int


class LinkedGroup(GroupDaemons):
    """`settings` are those of all nodes."""

    def __init__(self, directory: Path, **settings: object) -> None:
        usual = {"minInSyncReplicas": 2, "flushDiskType": "SYNC_FLUSH", "haClusterSecret": SECRET}
        super().__init__(directory, usual | settings)
        self.leader = "n1"
        self.names = ("n1", "n2", "n3")
        ports = free_ports(5)
        self.ha_ports = dict(zip(self.names, ports[:3], strict=True))
        self.leader_ports = {"listenPort": ports[3], "embeddedNamesrvPort": ports[4]}

    @property
    def peers(self) -> str:
        names = (self.leader, *(name for name in self.names if name != self.leader))
        return ",".join(f"{name}={LOOPBACK}:{self.ha_ports[name]}" for name in names)

    def start(self, *names: str, is_awaited: bool = True, **settings: object) -> None:
        """Start nodes, all at once, and wait until they run."""
        for name in names:
            own: dict[str, object] = {"haNodeId": name, "haPeers": self.peers, "brokerName": "broker-a"}
            own["haListenPort"] = self.ha_ports[name]
            if name == self.leader:
                own |= {"brokerRole": "SYNC_MASTER", **self.leader_ports}
            else:
                own |= {"brokerRole": "SLAVE", "brokerId": 1 + self.names.index(name)}
                own["namesrvAddr"] = f"{LOOPBACK}:{self.leader_ports['embeddedNamesrvPort']}"
            self.run(name, own | settings, is_awaited=False)
        for name in names if is_awaited else ():
            wait(lambda name=name: " ready port=" in self.daemons[name].output, self.daemons[name])  # type: ignore[misc]

    def stop(self, name: str) -> int:
        """End a process in order; return its exit code."""
        code = self.daemons[name].stop(signal.SIGTERM)
        self.kill(name)
        return code

    def send(self, body: bytes) -> Sent:
        """Send a message to the leader."""
        with RawClient(LOOPBACK, self.leader_ports["listenPort"], timeout=WAIT_LIMIT_S) as one:
            response = one.call(RequestCode.SEND_MESSAGE_V2, SEND, body)
        offset = -1
        if response.code == 0:
            offset = decode_offset_id(response.ext["msgId"])[2]
        return Sent(response.code, response.remark or "", offset)

    def max_offset(self) -> int:
        """Return the end of the leader's queue."""
        with RawClient(LOOPBACK, self.leader_ports["listenPort"], timeout=WAIT_LIMIT_S) as one:
            return int(one.call(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}).ext["offset"])

    def ready(self) -> tuple[int, str]:
        """Return the status of the leader's /readyz, and its line of the replication."""
        status, page = self.daemons[self.leader].page("/readyz")
        return status, page["checks"]["replication"]

    def wait_writable(self) -> None:
        """Wait until the leader takes messages."""
        wait(lambda: self.ready()[0] == 200, self.daemons[self.leader])

    def state(self, name: str) -> dict[str, Any]:
        """Return the content of a node's `haState`."""
        state: dict[str, Any] = json.loads((self.directory / name / "store" / "haState").read_text())
        return state

    def wait_equal(self, *names: str) -> None:
        """Wait until the logs of these nodes equal the leader's."""
        for name in names:
            wait(lambda name=name: self.log(name) == self.log(self.leader), self.daemons[name])  # type: ignore[misc]
