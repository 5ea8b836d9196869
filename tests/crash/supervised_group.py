"""A leader and two followers of a replication link, each a supervised process behind its own proxy and disk."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from skylarkmq.protocol.bodies.ha import HARuntimeInfo
from skylarkmq.protocol.codes import RequestCode
from tests.crash.supervised_node import SupervisedNode
from tests.harness.observed_disk import ObservedDisk
from tests.harness.one_way_proxy import OneWayProxy
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import RawClient
from tests.harness.small_disk import SmallDisk

LEADER: Final = "n1"
FOLLOWERS: Final = ("n2", "n3")
SEGMENT_BYTES: Final = 1 << 20
SLAVE_TIMEOUT_MS: Final = 2_000
"""Below the time limit of producers, as docs/run/replication.md advises."""
START_LIMIT_S: Final = 120.0
LAG_BYTES: Final = 64 << 10
POLL_S: Final = 0.1
CALL_LIMIT_S: Final = 5.0
SETTINGS: Final[dict[str, object]] = {
    "brokerName": "broker-a",
    "haClusterSecret": "a secret of this group",
    "flushDiskType": "SYNC_FLUSH",
    "slaveTimeout": SLAVE_TIMEOUT_MS,
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 20 * 1024,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
    "cleanFileForciblyEnable": False,  # a full disk would delete old messages, which the proof reads
}


class SupervisedGroup:
    """`disk_bytes`: size of each follower's own file system in memory; 0: it is on the disk of `directory`."""

    def __init__(self, directory: Path, minimum: int, library: Path, *, disk_bytes: int = 0, restart_s: float) -> None:
        self._directory = directory
        self._minimum = minimum
        self._library = library
        self._disk_bytes = disk_bytes
        self._restart_s = restart_s
        names = (LEADER, *FOLLOWERS)
        ports = free_ports(2 * len(names) + 3 * len(names))
        self._ha_ports = dict(zip(names, ports, strict=False))
        self._proxy_ports = dict(zip(names, ports[len(names) :], strict=False))
        self._own_ports = {name: ports[2 * len(names) + 3 * n :][:3] for n, name in enumerate(names)}
        self.leader = self._node(LEADER)
        self.followers = tuple(map(self._node, FOLLOWERS))

    def __repr__(self) -> str:
        return f"<SupervisedGroup {self.nodes}>"

    @property
    def nodes(self) -> tuple[SupervisedNode, ...]:
        """Return all nodes, the leader first."""
        return (self.leader, *self.followers)

    @property
    def namesrv(self) -> str:
        """Return the address of the name server."""
        return f"{LOOPBACK}:{self._own_ports[LEADER][1]}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.close() for node in self.nodes))

    def mount_disks(self) -> str:
        """Mount the followers' file systems. Return why that is impossible; "" if it is done."""
        problems = [follower.small_disk.mount() for follower in self.followers if follower.small_disk is not None]
        return next(filter(None, problems), "")

    async def start(self) -> None:
        """Start all nodes, and wait until all are in sync."""
        await asyncio.gather(*(node.start() for node in self.nodes))
        problem = await self.wait(self.all_in_sync, START_LIMIT_S)
        assert not problem, f"{problem}: {[node.last_line for node in self.nodes]}"

    async def stop(self) -> list[str]:
        """Stop all nodes in order. Return those whose exit code is not 0."""
        codes = {node.name: await node.stop() for node in self.nodes}
        return [f"{name} stopped with exit code {code}" for name, code in codes.items() if code]

    async def wait(self, condition: Callable[[HARuntimeInfo], bool], limit_s: float) -> str:
        """Wait until the leader's status fulfills a condition. Return how it failed; "" if it did."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            with suppress(OSError):
                if condition(await asyncio.to_thread(self._status)):
                    return ""
            if any(node.needs_operator for node in self.nodes):
                return "a node needs an operator"
            await asyncio.sleep(POLL_S)
        return f"not within {limit_s:g} s: {condition.__name__}"

    @staticmethod
    def all_in_sync(status: HARuntimeInfo) -> bool:
        """Return whether all followers count as copies."""
        return status.in_sync_slave_nums == len(FOLLOWERS)

    @staticmethod
    def all_linked(status: HARuntimeInfo) -> bool:
        """Return whether all followers lack next to nothing, whether or not they count yet."""
        lags = [copy.diff for copy in status.ha_connection_info]
        return len(lags) == len(FOLLOWERS) and max(lags) <= LAG_BYTES

    @staticmethod
    def all_equal(status: HARuntimeInfo) -> bool:
        """Return whether all followers have all bytes on their disks."""
        return [copy.diff for copy in status.ha_connection_info] == [0] * len(FOLLOWERS)

    def _status(self) -> HARuntimeInfo:
        with RawClient(LOOPBACK, self._own_ports[LEADER][0], timeout=CALL_LIMIT_S) as client:
            response = client.call(RequestCode.GET_BROKER_HA_STATUS)
        if response.code:
            raise OSError(response.remark)
        return HARuntimeInfo.decode(response.body)

    def _node(self, name: str) -> SupervisedNode:
        directory = self._directory / name
        directory.mkdir(parents=True)
        leads = name == LEADER
        proxy = None if leads else OneWayProxy(self._proxy_ports[name], self._ha_ports[LEADER])
        small = SmallDisk(directory / "store", self._disk_bytes) if self._disk_bytes and not leads else None
        disk = ObservedDisk(self._directory / f"{name}-disk", self._library)
        return SupervisedNode(directory, self._settings(name), disk, small, proxy, self._restart_s)

    def _settings(self, name: str) -> dict[str, object]:
        """Followers reach the leader's port for replicas by their proxy."""
        to_leader = self._ha_ports[LEADER] if name == LEADER else self._proxy_ports[name]
        ports = {LEADER: to_leader} | {follower: self._ha_ports[follower] for follower in FOLLOWERS}
        listen, namesrv, health = self._own_ports[name]
        own: dict[str, object] = {
            "listenPort": listen,
            "embeddedNamesrvPort": namesrv,
            "metricsPromExporterPort": health,
            "haListenPort": self._ha_ports[name],
            "haNodeId": name,
            "haPeers": ",".join(f"{peer}={LOOPBACK}:{port}" for peer, port in ports.items()),
            "minInSyncReplicas": self._minimum,
        }
        if name == LEADER:
            return SETTINGS | own | {"brokerRole": "SYNC_MASTER"}
        own |= {"brokerRole": "SLAVE", "brokerId": 1 + FOLLOWERS.index(name), "namesrvAddr": self.namesrv}
        return SETTINGS | own
