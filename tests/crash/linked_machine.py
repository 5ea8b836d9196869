"""Machines of a replicated group in one thread: simulated disks, and processes with a real store and a real link.

    LinkedMachine    a disk, and at times a process
    LinkedProcess    MessageStore, LinkMember and HaServer in a loop of their own, wired as in the daemon

Nothing runs by itself: `act`, `sync` and the transports of the loop make the next thing happen. Each of them may raise
PowerCut, and then the process has ended.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, TypeVar
from unittest.mock import patch

from skylarkmq.broker.base.address_ranges import LOOPBACK as LOOPBACK_NETWORKS
from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.ha.config import BrokerRole, ReplicationConfig
from skylarkmq.broker.ha.link.member import LinkMember
from skylarkmq.broker.ha.link.state_files import StateFiles
from skylarkmq.broker.ha.link.static_decisions import Revised, load_revised
from skylarkmq.broker.ha.peers import Peer
from skylarkmq.broker.ha.port.server import HaServer
from skylarkmq.broker.ha.refused import Refused
from skylarkmq.broker.remoting.config import TlsConfig, TlsMode
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.broker.store.flush.flusher import Flusher
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.disk import offset_file_name
from tests.harness.ports import LOOPBACK
from tests.harness.simulated_disk import SimulatedDisk
from tests.harness.simulated_loop import SimulatedLoop, SimulatedNetwork
from tests.harness.stepped_helpers import HelpersOfOne, SteppedHelpers
from tests.harness.stores import config_of

T = TypeVar("T")

STEP_S: Final = 0.1
GROUP: Final = "broker-a"
SECRET: Final = "a secret of this group"
_EPOCH_MS: Final = 1_700_000_000_000


class Time:
    """The time of a run, in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def seconds(self, *_: object) -> float:
        """Return the steady time."""
        return self.now_s

    def ms(self) -> int:
        """Return Unix time."""
        return _EPOCH_MS + round(self.now_s * 1000)


class GroupSettings(NamedTuple):
    """What all nodes of a group have in common. `sizes`: settings of the stores."""

    minimum: int
    is_sync: bool
    segment_bytes: int
    sizes: dict[str, Any]


class LinkedMachine:
    """A machine of the group. `starts_at`: when its process starts again."""

    def __init__(self, name: str, port: int, directory: Path) -> None:
        directory.mkdir()
        self.peer = Peer(name, LOOPBACK, port)
        self.root = directory / "store"
        self.disk = SimulatedDisk(directory)
        self.disk.tears_sectors = False  # docs/reference/disk.md, "Followers"
        self.process: LinkedProcess | None = None
        self.starts_at = 0.0

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.peer.name

    @property
    def files(self) -> StateFiles:
        """The state files, as an operator reads them."""
        return StateFiles(self.root)

    @property
    def record(self) -> Revised | None:
        """The record of the group in `haRecord`."""
        return load_revised(self.files.record)

    def has_durably(self, begin: int, data: bytes, segment_bytes: int) -> bool:
        """Return whether a power cut certainly leaves these bytes of the log, which begin at `begin`."""
        end = begin + len(data)
        while begin < end:
            start = begin - begin % segment_bytes
            piece = data[: min(end, start + segment_bytes) - begin]
            content = self.disk.durable(f"{self.root}/commitlog/{offset_file_name(start)}")
            if content[begin - start : begin - start + len(piece)] != piece:
                return False
            begin, data = begin + len(piece), data[len(piece) :]
        return True


class LinkedProcess:
    """A process of a machine. `peers`: of all nodes, the leader first. `ended`: why the daemon ends by itself."""

    def __init__(
        self,
        machine: LinkedMachine,
        peers: tuple[Peer, ...],
        settings: GroupSettings,
        time: Time,
        network: SimulatedNetwork,
        helpers: SteppedHelpers,
    ) -> None:
        self.own: HelpersOfOne = ([], [], [])
        self.name = machine.name
        self.leads = peers[0].name == self.name
        self.is_loaded = self.is_open = False
        self.ended: DaemonEnded | None = None
        self.compared = 0  # up to here the log was found to be that of the group
        self._helpers = helpers
        self._time = time
        helpers.switch(self.own)
        self.loop = SimulatedLoop(network, time.seconds)
        replication = ReplicationConfig(
            broker_role=BrokerRole.SYNC_MASTER if self.leads else BrokerRole.SLAVE,
            ha_peers=peers,
            ha_node_id=self.name,
            ha_cluster_secret=SECRET,
            ha_allowed_networks=LOOPBACK_NETWORKS,
            min_in_sync_replicas=settings.minimum,
        )
        self.config = config_of(machine.root, sync=settings.is_sync, is_follower=not self.leads, **settings.sizes)
        self.store = MessageStore(self.config, time.ms, disk=machine.disk)
        self.member = LinkMember(
            replication,
            self.config,
            GROUP,
            self.store,
            self._end,
            time.ms,
            server_tls=ServerTls(TlsConfig(mode=TlsMode.DISABLED)),
            client_tls=None,
            disk=machine.disk,
        )
        self.server: HaServer | None = None
        if self.leads:
            counts = Refused(counts=self.member.links.refused)
            self.server = HaServer(replication, None, self.member.links.accept, counts)
        self._port = machine.peer.port

    def __repr__(self) -> str:
        return f"<LinkedProcess {self.name} leads={self.leads} {self.store!r}>"

    # life

    def load(self) -> None:
        """Load the store and the node. Raises PowerCut, StoreError, and DaemonEnded."""
        self._helpers.switch(self.own)
        self.member.load()
        self.is_loaded = True

    def begin(self) -> None:
        """Start the store and the link. Call it with `act`."""
        self.store.start(self.loop)
        self.member.start()
        self.loop.create_task(self._open())
        self._step()

    async def _open(self) -> None:
        await self.member.begun()
        if self.server is not None:
            await self.server.start(LOOPBACK, self._port)
        self.is_open = True

    def _step(self) -> None:
        self.loop.call_later(STEP_S, self._step)
        self.store.step(self._time.ms())
        self.member.step()
        if self.server is not None:
            self.server.step()

    def _end(self, why: DaemonEnded) -> None:
        self.ended = why

    def stop(self) -> None:
        """Stop the daemon in order. Call it with `act`; `drop` has to follow."""
        if self.server is not None:
            self.loop.create_task(self.server.stop())
        self.member.stop()
        self.store.close()

    def drop(self, *, is_noticed: bool) -> None:
        """End the process at once. `is_noticed`: its peers get the end of their connections."""
        self.loop.end(is_noticed=is_noticed)
        self._helpers.switch(self.own)
        self._helpers.forget(self.store)

    # steps

    def act(self, call: Callable[[], T]) -> T:
        """Return the result of a call inside the process, after all that follows from it at once."""
        self._helpers.switch(self.own)
        return self.loop.run(call)

    def sync(self, flusher: Flusher) -> None:
        """Run one sync of a flusher, and announce it."""
        self._helpers.switch(self.own)
        self._helpers.sync(flusher)
        self.loop.readable(flusher.event_fd)

    def make_segments(self) -> None:
        """Create the segments that were requested in the background."""
        self._helpers.switch(self.own)
        self._helpers.make_segments()

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield the steps that this process waits for: syncs, calls in threads, arrived bytes."""
        for flusher in self.own[0]:
            if flusher._submitted is not flusher.done and flusher.failure is None:
                yield partial(self.sync, flusher)
        for calls in self.own[2]:
            if calls.is_waiting:
                yield partial(self.act, calls.step)
        for transport in self.loop.transports:
            if transport.is_deliverable:
                yield partial(self.act, partial(transport.deliver, 1 << 20))

    # state

    @property
    def node(self) -> Any:
        """The node of the core."""
        return self.member._node

    @property
    def shown(self) -> int:
        """The log below this byte is visible."""
        return self.store.dispatched_offset if self.store.replica is None else self.store.replica.shown

    def log_bytes(self, begin: int, end: int) -> bytes:
        """Return these bytes of the log, as its process reads them."""
        data = b""
        while begin < end:
            segment = self.store._log.files.find(begin)
            assert segment is not None, f"{self.name} has no byte {begin} of its log"
            data += segment.view[begin - segment.start : min(end, segment.end) - segment.start]
            begin = min(end, segment.end)
        return data


class _StoreIds:
    """Ids for stores and processes, instead of random ones."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def token_hex(self, count: int) -> str:
        """Return an id."""
        return self._rng.randbytes(count).hex()

    def randbelow(self, limit: int) -> int:
        """Return a number below `limit`."""
        return self._rng.randrange(limit)


@contextmanager
def simulated_members(time: Time, rng: Random, helpers: SteppedHelpers) -> Iterator[None]:
    """Give all members of this process the time of a run, ids that its seed decides, and threads without threads."""
    member = "skylarkmq.broker.ha.link.member"
    with (
        patch(f"{member}.clock_gettime", time.seconds),
        patch("skylarkmq.broker.ha.link.runner.clock_gettime", time.seconds),
        patch(f"{member}.secrets", _StoreIds(rng)),
        patch(f"{member}.ThreadPoolExecutor", helpers.thread),
    ):
        yield
