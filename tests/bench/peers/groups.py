"""Groups of brokers with one name, all on this machine: a leader, and followers that copy its log.

    alone           ours, without followers
    classic         ours: a master with SLAVEs, by RocketMQ's replication
    link            ours: a leader and followers of the replication link
    apache-5.3.3    RocketMQ's own: a master with SLAVEs

All brokers use SYNC_FLUSH. The master of a group that begins with followers is a SYNC_MASTER, and a send waits for all
of them; without followers it is an ASYNC_MASTER. Every group has a name server of its own, and is ready once all
followers count as in sync in the response to GET_BROKER_HA_STATUS (907) of the leader.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from skylarkmq.protocol.bodies.cluster import KVTable
from skylarkmq.protocol.bodies.ha import HARuntimeInfo
from skylarkmq.protocol.codes import RequestCode
from tests.bench.peers.started import COMPILED, HEAP, MAKERS, NEWER, SYNC, Started
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.interop.brokers import (
    BrokerUnderTest,
    CommandMaker,
    all_alive,
    apache_commands,
    broker_ports,
    daemon,
    log_file,
    running_broker,
    wait_until,
)

ALONE, CLASSIC, LINK = "alone", "classic", "link"
NAME: Final = "bench"
SEGMENT_BYTES: Final = 128 << 20
"""Small, because several brokers write zeros to their next segments at the same time: with 1 GiB each, that would take
most of the CPU of a short run."""
Ports = tuple[int, int]
"""Of a name server and of a broker; replicas connect to the next port after the broker's."""


class Group:
    """A running group that begins with some followers. `ports`: those of the leader, then those of each follower that
    may be started."""

    def __init__(self, kind: str, directory: Path, ports: list[Ports], followers: int) -> None:
        self.kind = kind
        self._followers = followers
        self._directory = directory
        self._ports = ports
        self._running: list[BrokerUnderTest] = []

    def __repr__(self) -> str:
        return f"<Group {self.kind} of {len(self._running)}>"

    @property
    def leader(self) -> Started:
        """The broker that producers send to."""
        return self.process(0)

    def process(self, number: int) -> Started:
        """Return a running member; 0 is the leader."""
        running = self._running[number]
        return Started(self.kind, running.broker_address, running.namesrv, running.process)

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
        start = _running_follower if number else running_broker
        with start(_maker(self.kind), home, self._settings(number), (namesrv_port, port)) as running:
            self._running.append(running)
            try:
                yield
            finally:
                self._running.pop()

    def _settings(self, number: int) -> dict[str, object]:
        common = {"flushDiskType": SYNC, "mappedFileSizeCommitLog": SEGMENT_BYTES, "brokerName": NAME}
        if self.kind == ALONE:
            return common
        if number:
            common |= {"brokerRole": "SLAVE", "brokerId": number, "namesrvAddr": f"{LOOPBACK}:{self._ports[0][0]}"}
        else:
            common |= {"brokerRole": "SYNC_MASTER" if self._followers else "ASYNC_MASTER"}
        if self.kind == LINK:
            peers = ",".join(f"n{of}={LOOPBACK}:{port + 1}" for of, (_, port) in enumerate(self._ports))
            return common | {"haPeers": peers, "haNodeId": f"n{number}"}
        return common | {"inSyncReplicas": 1 + self._followers, "totalReplicas": len(self._ports)}


def _maker(kind: str) -> CommandMaker:
    return MAKERS[COMPILED] if kind != NEWER else partial(apache_commands, kind.partition("-")[2], jvm=HEAP)


@contextmanager
def _running_follower(
    make: CommandMaker, home: Path, settings: Mapping[str, object], ports: Ports
) -> Iterator[BrokerUnderTest]:
    """Start a broker that uses the name server of its leader, and stop it on exit."""
    command, environment = make(home, *ports, settings)[-1]
    with daemon(command, environment, home) as process:
        wait_until(lambda: all_alive([process], home) and _listens(ports[1]), "a follower")
        with closing(BrokerUnderTest(*ports, 0.0, log_file(home), process, None, None)) as running:
            wait_until(running.has_sampled, "the first sample of the statistics")
            yield running


def _listens(port: int) -> bool:
    try:
        RawClient(LOOPBACK, port).close()
    except ConnectionError:
        return False
    return True


@contextmanager
def started_group(kind: str, directory: Path, followers: int = 0, *, later: int = 0) -> Iterator[Group]:
    """Start a group, and wait until its followers are in sync. `later`: further followers, for `Group.member`."""
    group = Group(kind, directory, [broker_ports() for _ in range(1 + followers + later)], followers)
    with ExitStack() as members:
        for number in range(1 + followers):
            members.enter_context(group.member(number))
        if followers:
            group.wait_in_sync(followers)
        yield group
