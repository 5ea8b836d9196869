"""A group in one process: real nodes, links over loopback, and logs in plain files. For tests.

The log is bytes. An epoch record is `\\xffE<epoch>`; messages are any other bytes. A "sync" takes as long as the test
wants: `sync` makes all written bytes durable.
"""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, Self, cast

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import HaState, Restart, Stop, Synced, Written
from skylarkmq.broker.ha.core.identity import Identity
from skylarkmq.broker.ha.core.local import Log
from skylarkmq.broker.ha.core.node import Node
from skylarkmq.broker.ha.core.record import GroupRecord, Member
from skylarkmq.broker.ha.core.timings import Timings
from skylarkmq.broker.ha.link.links import Links, LinkSettings
from skylarkmq.broker.ha.link.log_bytes import FileRange
from skylarkmq.broker.ha.link.runner import Runner
from skylarkmq.broker.ha.link.static_decisions import FollowerDecisions, LeaderDecisions, SkippedEpochs
from skylarkmq.broker.ha.link.threads import DiskCalls
from skylarkmq.broker.ha.peers import Peer
from skylarkmq.broker.remoting.tls import ReloadingContext, ServerTls

EPOCH: Final = b"\xffE"
SEGMENT: Final = 1 << 20
SKIPPED_EPOCHS: Final = 3
TAKE_OVER_EPOCHS: Final = 16


def epochs_in(payload: bytes, start: int) -> tuple[Epoch, ...]:
    """Return the epochs that begin in these bytes, which begin at offset `start`."""
    found, at = [], -1
    while (at := payload.find(EPOCH, at + 1)) >= 0:
        found.append(Epoch(payload[at + 2], start + at))
    return tuple(found)


class FileLog:
    """A log in one file, which pretends to consist of segments. `shown` is the visible end."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self.end = self.synced = os.fstat(self.fd).st_size
        self.start = self.shown = 0
        self.is_synced_at_once = True
        self.fails: OSError | None = None
        self.runner: Runner | None = None
        self.links: Links | None = None

    def close(self) -> None:
        os.close(self.fd)

    def content(self) -> bytes:
        return os.pread(self.fd, self.end, 0)

    def epochs(self) -> tuple[Epoch, ...]:
        return epochs_in(self.content(), 0)

    # As the runner sees it

    def write(self, offset: int, payload: bytes | memoryview) -> Written:
        assert offset == self.end, "a write that is not at the end"
        if self.fails:
            raise self.fails
        os.pwrite(self.fd, payload, offset)
        self.end += len(payload)
        if self.links is not None:
            self.links.written()
        if self.is_synced_at_once:
            asyncio.get_running_loop().call_soon(self.sync)
        return Written(self.end, epochs_in(bytes(payload), offset))

    def copy(self, offset: int, payload: bytes | memoryview) -> int | None:
        if not self.is_synced_at_once or epochs_in(bytes(payload), offset):
            return None
        self.write(offset, payload)
        self.synced = self.end
        return self.end

    def set_end(self, end: int) -> None:
        os.ftruncate(self.fd, end)
        self.end = self.synced = end

    def begin_term(self, epoch: int, in_sync: tuple[str, ...]) -> Written:
        return self.write(self.end, EPOCH + bytes([epoch]))

    def show(self, end: int) -> bool:
        self.shown = end
        return True

    def sync(self) -> None:
        if self.runner is not None and self.synced < self.end:
            self.synced = self.end
            self.runner.post(Synced(self.end))

    # As a feed sees it

    def view(self, offset: int, size: int) -> memoryview:
        return memoryview(os.pread(self.fd, min(size, SEGMENT - offset % SEGMENT), offset))

    def file_range(self, offset: int, size: int) -> FileRange:
        return FileRange(os.dup(self.fd), offset, min(size, SEGMENT - offset % SEGMENT))

    def whole_records(self, part: FileRange) -> int:
        return part.size


class MemoryFiles:
    """State files that are durable at once. `fails`: they cannot be written."""

    def __init__(self, state: HaState) -> None:
        self.state = state
        self.epochs = EpochHistory()
        self.fails = False

    def keep_state(self, state: HaState) -> None:
        if self.fails:
            raise OSError("the disk is full")
        self.state = state

    def keep_epochs(self, epochs: EpochHistory) -> None:
        self.epochs = epochs


class MemoryFile:
    """The file of the record."""

    def __init__(self) -> None:
        self.content: bytes | None = None

    def load(self) -> bytes | None:
        return self.content

    def save(self, data: bytes) -> None:
        self.content = data


class HasLinks(Protocol):
    """A node, whose links are None while it is stopped."""

    @property
    def links(self) -> Links | None: ...


class FirstBytes(asyncio.Protocol):
    """The HA port: passes a connection on after its first read."""

    def __init__(self, member: HasLinks) -> None:
        self._member = member

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._member.links is None:
            self._transport.abort()
        else:
            self._member.links.accept(self._transport, data)


class TestNode:
    """A node with its disk: it can be killed and started again."""

    __test__ = False

    def __init__(self, group: "TestGroup", name: str, directory: Path) -> None:
        self.name = name
        self.group = group
        self.directory = directory
        self.files = MemoryFiles(HaState(0, f"store-{name}", 0))
        self.record_file = MemoryFile()
        self.secret = group.secret
        self.group_name = "broker-a"
        self.server_tls: ServerTls | None = None
        self.client_tls: ReloadingContext | None = None
        self.log: FileLog | None = None
        self.links: Links | None = None
        self.runner: Runner | None = None
        self.ended: Restart | Stop | None = None
        self.starts = 0
        self._threads = ThreadPoolExecutor(1)
        self._server: asyncio.Server | None = None

    async def listen(self) -> Peer:
        self._server = await asyncio.get_running_loop().create_server(lambda: FirstBytes(self), "127.0.0.1", 0)
        return Peer(self.name, "127.0.0.1", self._server.sockets[0].getsockname()[1])

    def start(self) -> Runner:
        self.starts += 1
        self.ended = None
        log = self.log = FileLog(self.directory / self.name)
        me = Identity(
            self.group_name, self.name, f"{self.name}.{self.starts}", self.group.timings,
            self._founds if self.is_leader else None, SEGMENT, True,
        )  # fmt: skip
        before = tuple(entry for entry in self.files.epochs.entries if entry.start < 0)
        node = Node(me, self.files.state, Log(0, log.end, EpochHistory((*before, *log.epochs()))), 0.0)
        disk = DiskCalls(self._threads)
        settings = LinkSettings(
            self.name,
            self.group.peers,
            SEGMENT,
            self.secret,
            needs_certificate=self.server_tls is not None and self.secret is None,
            catch_up_bytes_per_s=self.group.rate,
        )
        links = self.links = log.links = Links(
            settings, log, lambda: node.local.committed, server_tls=self.server_tls, client_tls=self.client_tls
        )
        runner = self.runner = log.runner = Runner(node, log, self.files, disk, links, self._end)
        links.post = runner.post
        if self.is_leader:
            runner.decisions = LeaderDecisions(
                self.name,
                self.record_file,
                disk,
                runner.post,
                minimum=self.group.minimum,
                acks=self.group.acks,
                skipped=SkippedEpochs(self.group.skipped_epochs, TAKE_OVER_EPOCHS + self.group.skipped_epochs),
            )
        else:
            runner.decisions = FollowerDecisions(self.group.leader, self.group.minimum, runner.post)
        runner.start()
        return runner

    @property
    def is_leader(self) -> bool:
        return self.name == self.group.leader

    @property
    def committed(self) -> int:
        return 0 if self.runner is None else self.runner.node.local.committed

    def send(self, message: bytes) -> int:
        """Append a message as the leader; return its end."""
        assert self.log is not None
        assert self.runner is not None
        assert self.runner.node.leading is not None
        self.runner.post(self.log.write(self.log.end, message))
        return self.log.end

    def _founds(self, store_id: str) -> GroupRecord:
        members = {self.name: Member(store_id)}
        return GroupRecord(
            epoch=0,
            leader=self.name,
            in_sync=(store_id,),
            members=members,
            min=self.group.minimum,
            acks=self.group.acks,
        )

    def _end(self, why: Restart | Stop) -> None:
        self.ended = why
        self.kill()

    def kill(self) -> None:
        """End the process; the log keeps what was written."""
        if self.runner is not None and self.links is not None and self.log is not None:
            self.runner.stop()
            self.links.post = lambda _: None
            self.links.stop()
            self.log.close()
            self.runner = self.links = None

    def close(self) -> None:
        self.kill()
        if self._server is not None:
            self._server.close()
        self._threads.shutdown()


def is_catching_up(node: TestNode) -> bool:
    """Return whether a follower of this node is served from its files."""
    return node.links is not None and any(feed.is_catching_up for feed in node.links._feeds.values())


class TestGroup:
    """Three nodes, of which n1 leads."""

    __test__ = False

    def __init__(self, directory: Path, *, minimum: int = 2, acks: str = "all", secret: bytes | None = None) -> None:
        self.leader = "n1"
        self.minimum = minimum
        self.acks = acks
        self.secret = secret
        self.rate = 0
        self.skipped_epochs = SKIPPED_EPOCHS
        self.timings = Timings(beat_s=0.05, behind_s=0.3, connect_s=0.05, read_s=0.2, keep_up_s=0.3, mark_s=0.1)
        self.peers: dict[str, Peer] = {}
        self.nodes = {name: TestNode(self, name, directory) for name in ("n1", "n2", "n3")}

    async def __aenter__(self) -> Self:
        for name, node in self.nodes.items():
            self.peers[name] = await node.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.close()
        await asyncio.sleep(0)

    def __getitem__(self, name: str) -> TestNode:
        return self.nodes[name]

    def start(self, *names: str) -> None:
        for name in names:
            self.nodes[name].start()
