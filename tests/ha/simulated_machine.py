"""A machine of a simulated group: a disk that loses unsynced bytes, a process around the core, and a clock of its own.

The log consists of entries of 8 bytes: the epoch if an entry begins a term, or the number of a message. Offsets are in
bytes, as in the real log. Entries never survive a power cut in part, because recovery drops a torn record.
"""

import struct
from collections import deque
from typing import Final, Protocol

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import (
    BeginTerm,
    Close,
    Connect,
    Effect,
    EndSet,
    Event,
    Feed,
    HaState,
    KeepEpochs,
    Life,
    LifeRenewed,
    Linked,
    LinkFailed,
    Reached,
    Read,
    Received,
    Restart,
    Send,
    SetEnd,
    Show,
    StateStored,
    Stop,
    StoreState,
    Swap,
    Synced,
    SyncFailed,
    Tick,
    Unlinked,
    Write,
    Written,
)
from skylarkmq.broker.ha.core.identity import Identity
from skylarkmq.broker.ha.core.local import Log
from skylarkmq.broker.ha.core.messages import Data, Message
from skylarkmq.broker.ha.core.node import Node
from skylarkmq.broker.ha.core.record import GroupRecord, Member
from skylarkmq.broker.ha.core.timings import Timings
from tests.ha.simulated_decisions import SimulatedDecisions
from tests.ha.simulated_network import Direction, Network
from tests.ha.simulated_time import Simulation

ENTRY: Final = struct.Struct(">HHI")  # kind, epoch, number
EPOCH, MESSAGE = 1, 2
CHUNK: Final = 64 * ENTRY.size
FOUNDER: Final = "n1"


def epochs_in(log: bytes | bytearray, start: int) -> tuple[Epoch, ...]:
    """Return the epochs that begin in these bytes, which begin at offset `start`."""
    return tuple(
        Epoch(epoch, start + n * ENTRY.size)
        for n, (kind, epoch, _) in enumerate(ENTRY.iter_unpack(log))
        if kind == EPOCH
    )


class Disk:
    """`log`: as the kernel has it; the first `synced` bytes are on the disk. `state` and `epochs` are on the disk."""

    def __init__(self, store_id: str) -> None:
        self.log = bytearray()
        self.synced = 0
        self.state = HaState(0, store_id, 0)
        self.epochs = EpochHistory()

    def cut_power(self, survives: float) -> None:
        """Lose unsynced entries, but for this part of them."""
        unsynced = (len(self.log) - self.synced) // ENTRY.size
        del self.log[self.synced + round(unsynced * survives) * ENTRY.size :]


class Group(Protocol):
    """What a machine needs of its group."""

    simulation: Simulation
    network: Network
    decisions: SimulatedDecisions
    machines: dict[str, "Machine"]
    minimum: int
    timings: Timings

    def term_began(self, machine: "Machine", epoch: int) -> None: ...
    def shown(self, machine: "Machine", end: int) -> None: ...
    def truncated(self) -> None: ...
    def stopped(self, machine: "Machine", reason: str) -> None: ...


class Machine:
    """A machine; its process is `process`, None while it is down."""

    def __init__(self, group: Group, name: str) -> None:
        self.name = name
        self.group = group
        self.stores = 0
        self.disk = Disk(self.new_store_id())
        self.process: Process | None = None
        self.has_power = True
        self.rate = 1.0  # of its clock
        self.clock_origin = group.simulation.between(0, 1000)
        self.sync_s = 0.002
        self.state_s = 0.005
        self.starts = 0

    def new_store_id(self) -> str:
        """Return an id that no other store has had."""
        self.stores += 1
        return f"{self.name}/{self.stores}"

    def clock(self) -> float:
        """Return the steady time of this machine."""
        return self.clock_origin + self.group.simulation.now * self.rate

    def start(self) -> None:
        """Recover the log, sync it, and start a process."""
        if self.process is None:
            self.has_power = True
            disk, state = self.disk, self.disk.state
            disk.synced = len(disk.log)
            if len(disk.log) < state.committed:
                disk.state = HaState(state.promised, self.new_store_id(), len(disk.log))
            self.starts += 1
            self.process = Process(self)
            self.process.run()

    def kill(self) -> None:
        """End the process at once; the kernel keeps what was written, and resets the links."""
        if self.process:
            self.process.end(resets=True)
            self.process = None

    def cut_power(self) -> None:
        """Switch the machine off: unsynced data is lost in part, and the links just fall silent."""
        self.has_power = False
        if self.process:
            self.process.end(resets=False)
            self.process = None
        rng = self.group.simulation.rng
        self.disk.cut_power(rng.choice((0, 1, rng.random())))

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.kill()
        self.disk = Disk(self.new_store_id())


class Link:
    """One end of a connection between two processes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.out: Direction | None = None
        self.feed: Feed | None = None
        self.fed = 0
        self.is_open = True


class Process:
    """A run of the core on a machine: carries out its effects."""

    def __init__(self, machine: Machine) -> None:
        disk = machine.disk
        self.machine = machine
        self.group = machine.group
        self.name = machine.name
        self.alive = True
        self.paused = False
        self.fails_sync = False
        self._backlog: deque[Event] = deque()
        self._is_stepping = False
        self._links: dict[int, Link] = {}
        self._link_count = 0
        self._state_free_at = 0.0
        self._syncing = 0  # number of the sync under way; 0: none
        self._syncs = 0
        self._life: Life | None = None
        founds = self._founds if machine.name == FOUNDER else None
        me = Identity("group", machine.name, f"{machine.name}.{machine.starts}", self.group.timings, founds)
        before = tuple(entry for entry in disk.epochs.entries if entry.start < 0)
        log = Log(0, len(disk.log), EpochHistory((*before, *epochs_in(disk.log, 0))))
        self.core = Node(me, disk.state, log, machine.clock())

    def run(self) -> None:
        """Start: time, signs of life, pings."""
        self.group.decisions.watch(self)
        self._tick()
        self._show_life()
        self._ping()

    def _founds(self, store_id: str) -> GroupRecord:
        return GroupRecord(
            epoch=0,
            leader=self.name,
            in_sync=(store_id,),
            members={self.name: Member(store_id)},
            min=self.group.minimum,
        )

    def end(self, *, resets: bool) -> None:
        """The process is gone."""
        self.alive = False
        for link in list(self._links.values()):
            if resets and link.out:
                link.out.send(None)
        self._links.clear()

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does."""
        self.paused = True

    def resume(self) -> None:
        """Continue with everything that has happened since."""
        self.paused = False
        self.post(Tick())

    def post(self, event: Event) -> None:
        """Pass an event to the core, after those that wait, and carry out the effects."""
        if not self.alive:
            return
        self._backlog.append(event)
        if not (self.paused or self._is_stepping):
            self._is_stepping = True
            while self._backlog and self._runs():
                self._step(self._backlog.popleft())
            self._is_stepping = False

    def _runs(self) -> bool:
        return self.alive and not self.paused

    def _step(self, event: Event) -> None:
        for effect in self.core.step(self.machine.clock(), event):
            if self.alive:
                self._carry_out(effect)
        if self.core.leading != (self._life.leading if self._life else None):
            self._renew_life()

    def append(self, number: int) -> int | None:
        """Append a message as the leader; return its end, or None if the leader refuses it."""
        epoch = self.core.leading
        if self.paused or epoch is None or self.core.refusal is not None:
            return None
        self._extend(ENTRY.pack(MESSAGE, epoch, number), ())
        return len(self.machine.disk.log)

    # Effects

    def _carry_out(self, effect: Effect) -> None:  # noqa: C901 - one case for each effect
        disk = self.machine.disk
        match effect:
            case StoreState(state):
                simulation = self.group.simulation
                begin = max(simulation.now, self._state_free_at)
                self._state_free_at = begin + self.machine.state_s * simulation.between(0.1, 2)
                simulation.after(self._state_free_at - simulation.now, self._state_stored, state)
            case KeepEpochs(epochs):
                disk.epochs = epochs
            case Read() | Swap():
                self.group.decisions.ask(self, effect)
            case Connect(node):
                self._connect(node)
            case Send(link, message):
                self._send(link, message)
            case Feed(link, _, start):
                if link in self._links:
                    self._links[link].feed, self._links[link].fed = effect, start
                    self._feed(self._links[link])
            case Close(link):
                self._close(link)
            case Write(offset, payload):
                assert offset == len(disk.log), "a write that is not at the end"
                self._extend(payload, epochs_in(payload, offset))
            case SetEnd(end):
                self.group.truncated()
                self._syncing = 0
                disk.synced = min(disk.synced, end)  # a power cut leaves any prefix that has these bytes
                self.group.simulation.after(self.group.simulation.between(0.001, 0.05), self._end_set, end)
            case BeginTerm(epoch):
                self.group.term_began(self.machine, epoch)
                at = len(disk.log)
                self._extend(ENTRY.pack(EPOCH, epoch, 0), (Epoch(epoch, at),))
            case Show(end):
                self.group.shown(self.machine, end)
            case Restart(_, new_store):
                self._restart(new_store=new_store)
            case Stop(reason):
                self.group.stopped(self.machine, reason)

    def _state_stored(self, state: HaState) -> None:
        if self.alive:
            self.machine.disk.state = state
            self.post(StateStored(state))

    def _end_set(self, end: int) -> None:
        """The truncation is on the disk."""
        disk = self.machine.disk
        if self.alive:
            assert end <= len(disk.log), "a log that does not begin at 0"
            del disk.log[end:]
            disk.synced = end
            self.post(EndSet(end))

    def _extend(self, payload: bytes, epochs: tuple[Epoch, ...]) -> None:
        log = self.machine.disk.log
        log += payload
        self.post(Written(len(log), epochs))
        for link in list(self._links.values()):
            self._feed(link)
        self._sync()

    def _sync(self) -> None:
        disk = self.machine.disk
        if self.alive and not self._syncing and disk.synced < len(disk.log):
            self._syncs += 1
            self._syncing = self._syncs
            delay = self.machine.sync_s * self.group.simulation.between(0.5, 2)
            self.group.simulation.after(delay, self._synced, self._syncing, len(disk.log))

    def _synced(self, number: int, end: int) -> None:
        if not self.alive or self._syncing != number:
            return
        self._syncing = 0
        if self.fails_sync:
            self.post(SyncFailed())
            return
        self.machine.disk.synced = end
        self.post(Synced(end))
        self._sync()

    def _restart(self, *, new_store: bool) -> None:
        machine = self.machine
        machine.kill()
        if new_store:
            rng = self.group.simulation.rng
            machine.disk.cut_power(rng.random())
            state = machine.disk.state
            mark = min(state.committed, machine.disk.synced)
            machine.disk.state = HaState(state.promised, machine.new_store_id(), mark)
        self.group.simulation.after(self.group.simulation.between(0.05, 0.5), machine.start)

    # Links

    def _connect(self, node: str) -> None:
        simulation, network = self.group.simulation, self.group.network
        peer = self.group.machines[node]
        if not network.round_trip(self.name, node) or not peer.has_power:
            simulation.after(1.0, self.post, LinkFailed(node, refused=False))
        elif peer.process is None:
            simulation.after(network.delay(), self.post, LinkFailed(node, refused=True))
        else:
            simulation.after(network.delay(), self._connected, peer.process)

    def _connected(self, peer: "Process") -> None:
        if not self.alive:
            return
        if not peer.alive:
            self.post(LinkFailed(peer.name, refused=peer.machine.has_power))
            return
        ours, theirs = self._new_link(), peer._new_link()
        network = self.group.network
        ours.out = Direction(network, self.name, peer.name, lambda message: peer._arrived(theirs, message))
        theirs.out = Direction(network, peer.name, self.name, lambda message: self._arrived(ours, message))
        self.post(Linked(ours.number, peer.name))

    def _new_link(self) -> Link:
        self._link_count += 1
        link = self._links[self._link_count] = Link(self._link_count)
        return link

    def _arrived(self, link: Link, message: Message | None) -> None:
        if not link.is_open:
            return
        if message is None:
            link.is_open = False
            self._links.pop(link.number, None)
            self.post(Unlinked(link.number))
        else:
            self.post(Received(link.number, message))

    def _send(self, number: int, message: Message) -> None:
        link = self._links.get(number)
        if link and link.out:
            link.out.send(message)

    def _close(self, number: int) -> None:
        link = self._links.pop(number, None)
        if link and link.out:
            link.is_open = False
            link.out.send(None)

    def _feed(self, link: Link) -> None:
        """Send what the link has not received, in chunks of random size."""
        log = self.machine.disk.log
        while self.alive and link.is_open and link.feed and link.fed < len(log):
            size = self.group.simulation.rng.randint(1, CHUNK // ENTRY.size) * ENTRY.size
            payload = bytes(log[link.fed : link.fed + size])
            self._send(link.number, Data(link.feed.epoch, link.fed, self.core.local.committed, payload))
            link.fed += len(payload)

    # Time

    def _tick(self) -> None:
        if self.alive:
            if not self.paused:
                self.post(Tick())
            self.group.simulation.after(0.1 / self.machine.rate, self._tick)

    def _show_life(self) -> None:
        if self.alive:
            if not self.paused:
                self._renew_life()
            self.group.simulation.after(1.0 / self.machine.rate, self._show_life)

    def _renew_life(self) -> None:
        self._life = Life(self.machine.disk.state.store_id, self.core.leading)
        asked_at = self.machine.clock()
        self.group.decisions.renew(self, self._life, lambda: self.post(LifeRenewed(asked_at)))

    def _ping(self) -> None:
        if self.alive:
            for name, peer in self.group.machines.items():
                other = peer.process
                answers = other is not None and not other.paused and not self.paused and name != self.name
                if answers and self.group.network.round_trip(self.name, name):
                    self.group.simulation.after(self.group.network.delay(), self.post, Reached(name))
            self.group.simulation.after(0.5 / self.machine.rate, self._ping)
