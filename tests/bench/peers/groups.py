"""Groups of brokers with one name, all on this machine: a leader, and followers that copy its log.

    alone           ours, without followers
    classic         ours: a SYNC_MASTER with SLAVEs, by RocketMQ's replication
    link            ours: a leader and followers of the replication link
    apache-5.3.3    RocketMQ's own: a SYNC_MASTER with SLAVEs

A send waits for all followers. Every group has a name server of its own, and is ready once all followers count as in
sync in the response to GET_BROKER_HA_STATUS (907) of the leader.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from skylarkmq.protocol.bodies.cluster import KVTable
from skylarkmq.protocol.bodies.ha import HARuntimeInfo
from skylarkmq.protocol.codes import RequestCode
from tests.bench.peers.started import COMPILED, HEAP, MAKERS, NEWER, SEGMENT_BYTES, SYNC, Started
from tests.harness.ports import LOOPBACK
from tests.interop.brokers import (
    BrokerUnderTest,
    CommandMaker,
    Commands,
    apache_commands,
    broker_ports,
    running_broker,
    wait_until,
)

ALONE, CLASSIC, LINK = "alone", "classic", "link"
NAME: Final = "bench"
Ports = tuple[int, int]
"""Of a name server and of a broker; replicas connect to the next port after the broker's."""


class Group:
    """A running group. `ports`: those of the leader first, then those of each follower that may be started."""

    def __init__(self, kind: str, directory: Path, ports: list[Ports], flush: str) -> None:
        self.kind = kind
        self._directory = directory
        self._ports = ports
        self._flush = flush
        self._running: list[BrokerUnderTest] = []

    def __repr__(self) -> str:
        return f"<Group {self.kind} of {len(self._running)}>"

    @property
    def leader(self) -> Started:
        """The broker that producers send to."""
        leader = self._running[0]
        return Started(self.kind, leader.broker_address, leader.namesrv, leader.process)

    def end(self, number: int) -> int:
        """Return the end of the log of a member; 0 is the leader."""
        return int(self.figures(number)["commitLogMaxOffset"])

    def figures(self, number: int) -> dict[str, str]:
        """Return what a member responds to GET_BROKER_RUNTIME_INFO (28)."""
        return KVTable.decode(self._running[number].call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table

    def in_sync(self) -> int:
        """Return how many followers are in sync."""
        body = self._running[0].call(RequestCode.GET_BROKER_HA_STATUS).body
        return HARuntimeInfo.decode(body).in_sync_slave_nums

    def wait_in_sync(self, followers: int) -> None:
        """Wait until that many followers are in sync."""
        wait_until(lambda: self.in_sync() >= followers, f"{followers} followers in sync of {self.kind}")

    @contextmanager
    def member(self, number: int) -> Iterator[None]:
        """Start a member; stop it at the end."""
        home = self._directory / f"{self.kind}-{number}"
        home.mkdir()
        namesrv_port, port = self._ports[0][0], self._ports[number][1]
        make = _maker(self.kind, has_name_server=number == 0)
        with running_broker(make, home, self._settings(number), (namesrv_port, port)) as running:
            self._running.append(running)
            try:
                yield
            finally:
                self._running.pop()

    def _settings(self, number: int) -> dict[str, object]:
        common = {"flushDiskType": self._flush, "mappedFileSizeCommitLog": SEGMENT_BYTES, "brokerName": NAME}
        if self.kind == ALONE:
            return common
        namesrv = {} if number == 0 else {"namesrvAddr": f"{LOOPBACK}:{self._ports[0][0]}"}
        role = {"brokerRole": "SLAVE", "brokerId": number} if number else {"brokerRole": "SYNC_MASTER"}
        if self.kind == LINK:
            peers = ",".join(f"n{of}={LOOPBACK}:{port + 1}" for of, (_, port) in enumerate(self._ports))
            return common | namesrv | role | {"haPeers": peers, "haNodeId": f"n{number}", "haClusterSecret": "bench"}
        return common | namesrv | role | {"inSyncReplicas": len(self._ports)}


def _maker(kind: str, *, has_name_server: bool) -> CommandMaker:
    if kind != NEWER:
        return MAKERS[COMPILED]
    apache = partial(apache_commands, kind.partition("-")[2], jvm=HEAP)
    return apache if has_name_server else partial(_without_name_server, apache)


def _without_name_server(
    make: CommandMaker, home: Path, namesrv_port: int, broker_port: int, settings: Mapping[str, object]
) -> Commands:
    return make(home, namesrv_port, broker_port, settings)[-1:]


@contextmanager
def started_group(
    kind: str, directory: Path, followers: int = 0, flush: str = SYNC, *, later: int = 0
) -> Iterator[Group]:
    """Start a group, and wait until its followers are in sync. `later`: further followers, for `Group.member`."""
    group = Group(kind, directory, [broker_ports() for _ in range(1 + followers + later)], flush)
    with ExitStack() as members:
        for number in range(1 + followers):
            members.enter_context(group.member(number))
        if followers:
            group.wait_in_sync(followers)
        yield group
