"""A machine of a simulated group: a disk, a process around the core, and a clock of its own."""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import (
    BeginTerm,
    Close,
    Connect,
    Copied,
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
from skylarkmq.broker.ha.core.messages import Ack, Data, Message
from skylarkmq.broker.ha.core.node import Node
from skylarkmq.broker.ha.core.record import GroupRecord, Member
from skylarkmq.broker.ha.core.timings import Timings
from tests.ha.simulated_decisions import SimulatedDecisions
from tests.ha.simulated_disk import ENTRY, EPOCH, MESSAGE, Disk, epochs_in
from tests.ha.simulated_network import Direction, Network
from tests.ha.simulated_time import Simulation

FOUNDER: Final = "n1"
CHUNK_ENTRIES: Final = 64
"""Largest number of entries in one DATA."""


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
        self.simulation: Final = group.simulation
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
        return self.clock_origin + self.simulation.now * self.rate

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
        rng = self.simulation.rng
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
        self.machine: Final = machine
        self.group: Final = machine.group
        self.simulation: Final = machine.simulation
        self.name: Final = machine.name
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
        if self.paused or self._is_stepping:
            self._backlog.append(event)
            return
        self._is_stepping = True
        self._backlog.append(event)
        while self._backlog and self._runs():
            self._step(self._backlog.popleft())
        self._is_stepping = False

    def _runs(self) -> bool:
        return self.alive and not self.paused

    def _step(self, event: Event) -> None:
        effects = self.core.step(self.machine.clock(), event)
        for effect in effects:
            if self.alive:
                _EFFECTS[type(effect)](self, effect)
        if effects and self.core.leading != (self._life.leading if self._life else None):
            self._renew_life()

    def append(self, number: int) -> int | None:
        """Append a message as the leader; return its end, or None if the leader refuses it."""
        epoch = self.core.leading
        if self.paused or epoch is None or self.core.refusal is not None:
            return None
        self._extend(ENTRY.pack(MESSAGE, epoch, number), ())
        return len(self.machine.disk.log)

    # Effects

    def _store_state(self, effect: StoreState) -> None:
        simulation = self.simulation
        begin = max(simulation.now, self._state_free_at)
        self._state_free_at = begin + self.machine.state_s * simulation.between(0.1, 2)
        simulation.after(self._state_free_at - simulation.now, self._state_stored, effect.state)

    def _keep_epochs(self, effect: KeepEpochs) -> None:
        self.machine.disk.epochs = effect.epochs

    def _write(self, effect: Write) -> None:
        assert effect.offset == len(self.machine.disk.log), "a write that is not at the end"
        payload = bytes(effect.payload)
        self._extend(payload, epochs_in(payload, effect.offset))

    def _begin_term(self, effect: BeginTerm) -> None:
        self.group.term_began(self.machine, effect.epoch)
        at = len(self.machine.disk.log)
        self._extend(ENTRY.pack(EPOCH, effect.epoch, 0), (Epoch(effect.epoch, at),))

    def _set_end(self, effect: SetEnd) -> None:
        self.group.truncated()
        self._syncing = 0
        disk = self.machine.disk
        disk.synced = min(disk.synced, effect.end)  # a power cut leaves any prefix that has these bytes
        self.simulation.after(self.simulation.between(0.001, 0.05), self._end_set, effect.end)

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
            if link.feed:
                self._feed(link, link.feed)
        self._sync()

    def _sync(self) -> None:
        disk = self.machine.disk
        if self.alive and not self._syncing and disk.synced < len(disk.log):
            self._syncs += 1
            self._syncing = self._syncs
            delay = self.machine.sync_s * self.simulation.between(0.5, 2)
            self.simulation.after(delay, self._synced, self._syncing, len(disk.log))

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
            rng = self.simulation.rng
            machine.disk.cut_power(rng.random())
            state = machine.disk.state
            mark = min(state.committed, machine.disk.synced)
            machine.disk.state = HaState(state.promised, machine.new_store_id(), mark)
        self.simulation.after(self.simulation.between(0.05, 0.5), machine.start)

    # Links

    def _connect(self, effect: Connect) -> None:
        node = effect.node
        simulation, network = self.simulation, self.group.network
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
        elif not (isinstance(message, Data) and self._has_copied(link, message)):
            self.post(Received(link.number, message))

    def _has_copied(self, link: Link, data: Data) -> bool:
        """Append, sync and acknowledge every second DATA at once that the core allows; return whether that was done."""
        is_busy = not self._runs() or self._is_stepping or self._syncing or self.fails_sync
        is_wanted = data.offset // ENTRY.size % 2 and not epochs_in(bytes(data.payload), data.offset)
        if is_busy or not is_wanted or not self.core.may_copy(link.number, data):
            return False
        disk = self.machine.disk
        disk.log += data.payload
        end = disk.synced = len(disk.log)
        self._send(Send(link.number, Ack(data.epoch, end, end)))
        self.post(Copied(link.number, end, data.committed))
        return True

    def _send(self, effect: Send) -> None:
        link = self._links.get(effect.link)
        if link and link.out:
            link.out.send(effect.message)

    def _close(self, effect: Close) -> None:
        link = self._links.pop(effect.link, None)
        if link and link.out:
            link.is_open = False
            link.out.send(None)

    def _begin_feed(self, effect: Feed) -> None:
        if link := self._links.get(effect.link):
            link.feed, link.fed = effect, effect.start
            self._feed(link, effect)

    def _feed(self, link: Link, feed: Feed) -> None:
        """Send what the link has not received, in chunks of random size."""
        log = self.machine.disk.log
        while self.alive and link.is_open and link.fed < len(log):
            size = self.simulation.rng.randint(1, CHUNK_ENTRIES) * ENTRY.size
            payload = bytes(log[link.fed : link.fed + size])
            if link.out:
                link.out.send(Data(feed.epoch, link.fed, self.core.local.committed, payload))
            link.fed += len(payload)

    # Time

    def _tick(self) -> None:
        if self.alive:
            if not self.paused:
                self.post(Tick())
            self.simulation.after(0.1 / self.machine.rate, self._tick)

    def _show_life(self) -> None:
        if self.alive:
            if not self.paused:
                self._renew_life()
            self.simulation.after(1.0 / self.machine.rate, self._show_life)

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
                    self.simulation.after(self.group.network.delay(), self.post, Reached(name))
            self.simulation.after(0.5 / self.machine.rate, self._ping)


_EFFECTS: Final[dict[type[Effect], Callable[[Process, Any], None]]] = {
    StoreState: Process._store_state,
    KeepEpochs: Process._keep_epochs,
    Read: lambda process, effect: process.group.decisions.ask(process, effect),
    Swap: lambda process, effect: process.group.decisions.ask(process, effect),
    Connect: Process._connect,
    Send: Process._send,
    Feed: Process._begin_feed,
    Close: Process._close,
    Write: Process._write,
    SetEnd: Process._set_end,
    BeginTerm: Process._begin_term,
    Show: lambda process, effect: process.group.shown(process.machine, effect.end),
    Restart: lambda process, effect: process._restart(new_store=effect.new_store),
    Stop: lambda process, effect: process.group.stopped(process.machine, effect.reason),
}
