"""A whole group of three nodes in a simulation: its senders, its faults, and what is checked at each step.

For some seconds machines are killed, paused, lose power or their disks, fall silent in one direction, sync slowly or
not at all; clocks run at any rate; the store of decisions loses responses. Then everything is repaired. Checked at each
step:

    committed bytes never differ between two nodes, or between two times
    what becomes visible first is on the disks of `min` machines
    a new leader has all committed bytes; an epoch has one leader
    the recorded set never shrinks below `min`
    no node stops as damaged

After the repair a leader must commit new messages within 10 s, and all logs become equal. A run ends early once all
stores are in the set and nothing is left to happen.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from skylarkmq.broker.ha.core.events import HaState
from skylarkmq.broker.ha.core.record import GroupRecord
from skylarkmq.broker.ha.core.timings import Timings
from tests.ha.simulated_decisions import SimulatedDecisions
from tests.ha.simulated_disk import ENTRY, MESSAGE, Disk
from tests.ha.simulated_machine import FOUNDER, Machine
from tests.ha.simulated_network import Network
from tests.ha.simulated_time import Simulation

NODES: Final = ("n1", "n2", "n3")
TIMINGS: Final = Timings(keep_up_s=1.0, longest_wait_s=4.0)
JOIN_S: Final = (0.0, 1.0, 5.0, 5.0)
"""Time without faults at the start; the set becomes complete within the longest."""
FAULTS_S: Final = 8.0
QUIET_S: Final = 10.0
"""Time after the repair in which a leader has to commit."""
LATE_S: Final = 3.0
"""Requests of the time before the repair take effect up to this time after it."""
DRAIN_S: Final = 6.0
"""Time after the last message in which all logs become equal: a former leader that could not be reached may learn only
then that another one leads, and restarts."""
LOOK_S: Final = 0.1


class Violation(AssertionError):
    """A check failed."""


class Summary(msgspec.Struct):
    """What happened in one run, or in several. `cpu_s`: CPU time of blocks of runs."""

    runs: int = 0
    faults: int = 0
    committed: int = 0
    terms: int = 0
    set_changes: int = 0
    truncations: int = 0
    lost_groups: int = 0
    cpu_s: float = 0.0

    def add(self, other: "Summary") -> None:
        """Add the counts of other runs."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class SimulatedGroup:
    """A group of three, its senders, and the checks."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.simulation = Simulation(seed)
        self.network = Network(self.simulation)
        self.decisions = SimulatedDecisions(self.simulation, self._recorded)
        self.minimum = self.simulation.rng.choice((2, 2, 1))
        self.timings = TIMINGS
        self.machines = {name: Machine(self, name) for name in NODES}
        self.summary = Summary(runs=1)
        self.committed = bytearray()
        self._leaders: dict[int, str] = {}
        self._messages = 0
        self._rate = self.simulation.rng.choice((2, 5, 20))  # messages a second
        self._lost_disks = False
        if self.simulation.rng.random() < 0.3:
            self._fill(self.machines[FOUNDER].disk)
        self._trace = trace

    def _fill(self, disk: Disk) -> None:
        """Give the founder a log from before the group."""
        disk.log += b"".join(ENTRY.pack(MESSAGE, 0, number) for number in range(5))
        disk.synced = len(disk.log)
        disk.state = HaState(0, disk.state.store_id, disk.synced)
        self.committed += disk.log

    def run(self) -> Summary:
        """Run the whole schedule. Raises Violation."""
        simulation, rng = self.simulation, self.simulation.rng
        for machine in self.machines.values():
            simulation.after(simulation.between(0, 0.5), machine.start)
        self._send()
        simulation.run_until(rng.choice(JOIN_S))
        for _ in range(rng.randint(1, 12)):
            simulation.after(simulation.between(0, FAULTS_S), self._fault)
        simulation.run_until(simulation.now + FAULTS_S)
        self._repair()
        before = len(self.committed)
        simulation.run_until(simulation.now + LATE_S)
        self._wait(lambda: len(self.committed) > before and self._is_whole(), QUIET_S - LATE_S)
        if self._is_lost():
            self.summary.lost_groups += 1
            return self.summary
        self._expect(len(self.committed) > before, f"nothing was committed in {QUIET_S} quiet seconds")
        self._messages = -1  # no more
        self._wait(self._is_drained, DRAIN_S)
        for machine in self.machines.values():
            self._expect(
                machine.disk.log[: len(self.committed)] == self.committed, f"{machine.name} lacks committed bytes"
            )
        self.summary.committed += len(self.committed) // 8
        return self.summary

    def _wait(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Run until the condition holds, or for this time."""
        end = self.simulation.now + limit_s
        while self.simulation.now < end and not condition():
            self.simulation.run_until(min(self.simulation.now + LOOK_S, end))

    def _is_whole(self) -> bool:
        """Return whether all stores are in the recorded set."""
        record = self.decisions.record
        return record is not None and all(one.disk.state.store_id in record.in_sync for one in self.machines.values())

    def _is_drained(self) -> bool:
        """Return whether each log has all that was committed, and nothing else."""
        return all(one.disk.log == self.committed for one in self.machines.values())

    # What machines report

    def term_began(self, machine: Machine, epoch: int) -> None:
        """A leader is about to write its epoch record. One that was paused may do so after a later term has begun: it
        lacks what that term has committed, and no node acknowledges its record."""
        self.say(f"{machine.name} leads in epoch {epoch} from {len(machine.disk.log)} on")
        self._expect(epoch not in self._leaders, f"epoch {epoch} has two leaders")
        self._leaders[epoch] = machine.name
        self.summary.terms += 1
        self._expect(
            epoch < max(self._leaders) or machine.disk.log[: len(self.committed)] == self.committed,
            f"{machine.name} leads in epoch {epoch} without all of the {len(self.committed)} committed bytes",
        )

    def shown(self, machine: Machine, end: int) -> None:
        """A node makes its log visible up to `end`."""
        log = machine.disk.log
        self._expect(end <= len(log), f"{machine.name} shows {end}, its log ends at {len(log)}")
        common = min(end, len(self.committed))
        self._expect(log[:common] == self.committed[:common], f"{machine.name} shows other bytes than were committed")
        if end > len(self.committed):
            new = log[:end]
            copies = [one for one in self.machines.values() if one.disk.synced >= end and one.disk.log[:end] == new]
            enough = len(copies) >= self.minimum or self._lost_disks
            self._expect(enough, f"{machine.name} shows {end}, which {len(copies)} disks have")
            self.committed += log[len(self.committed) : end]

    def truncated(self) -> None:
        """A log is about to be truncated."""
        self.summary.truncations += 1

    def stopped(self, machine: Machine, reason: str) -> None:
        """A node wants an operator."""
        raise Violation(f"{machine.name} stops: {reason}")

    def say(self, line: str) -> None:
        """Print a line of the trace."""
        if self._trace:
            self._trace(f"{self.simulation.now:8.3f} {line}")

    def _recorded(self, before: GroupRecord | None, after: GroupRecord) -> None:
        self.say(f"record: epoch {after.epoch}, leader {after.leader or '-'}, in sync {', '.join(after.in_sync)}")
        if before is None:
            return
        self._expect(after.epoch >= before.epoch, "the recorded epoch went back")
        self.summary.set_changes += after.epoch == before.epoch
        if len(before.in_sync) >= self.minimum:
            self._expect(len(after.in_sync) >= self.minimum, f"the set shrank to {after.in_sync}")

    def _expect(self, holds: bool, problem: str) -> None:
        if not holds:
            raise Violation(f"at {self.simulation.now:.3f} s: {problem}")

    # Load and faults

    def _send(self) -> None:
        if self._messages >= 0:
            for machine in self.machines.values():
                if machine.process:
                    self._messages += 1
                    machine.process.append(self._messages)
            self.simulation.after(self.simulation.rng.expovariate(self._rate), self._send)

    def _fault(self) -> None:
        rng = self.simulation.rng
        machine = self.machines[rng.choice(NODES)]
        fault = rng.choice((
            self._kill, self._kill, self._cut_power, self._cut_all_power, self._pause, self._pause, self._cut_direction,
            self._isolate, self._cut_decisions, self._decisions_down, self._slow_disk, self._slow_state,
            self._fail_sync, self._wipe, self._clock,
        ))  # fmt: skip
        self.summary.faults += 1
        self.say(f"{machine.name}: {fault.__name__.strip('_').replace('_', ' ')}")
        fault(machine)

    def _later(self, call: Callable[..., Any], *args: Any) -> None:
        """Repair a fault after some time."""
        self.simulation.after(self.simulation.between(0.05, 5), call, *args)

    def _kill(self, machine: Machine) -> None:
        machine.kill()
        self._later(machine.start)

    def _cut_power(self, machine: Machine) -> None:
        machine.cut_power()
        self._later(machine.start)

    def _cut_all_power(self, _machine: Machine) -> None:
        for machine in self.machines.values():
            self._cut_power(machine)

    def _pause(self, machine: Machine) -> None:
        if machine.process:
            machine.process.pause()
            self._later(machine.process.resume)

    def _cut_direction(self, machine: Machine) -> None:
        pair = (machine.name, self.simulation.rng.choice([name for name in NODES if name != machine.name]))
        pair = pair if self.simulation.rng.random() < 0.5 else pair[::-1]
        self.network.cut.add(pair)
        self._later(self.network.cut.discard, pair)

    def _isolate(self, machine: Machine) -> None:
        for name in NODES:
            for pair in ((machine.name, name), (name, machine.name)):
                self.network.cut.add(pair)
                self._later(self.network.cut.discard, pair)
        if self.simulation.rng.random() < 0.5:
            self._cut_decisions(machine)

    def _cut_decisions(self, machine: Machine) -> None:
        self.decisions.cut.add(machine.name)
        self._later(self._join_decisions, machine)

    def _join_decisions(self, machine: Machine) -> None:
        self.decisions.cut.discard(machine.name)
        if machine.process:
            self.decisions.refresh(machine.process)

    def _decisions_down(self, _machine: Machine) -> None:
        self.decisions.down = True
        self._later(self._decisions_up)

    def _decisions_up(self) -> None:
        self.decisions.down = False
        for machine in self.machines.values():
            self._join_decisions(machine)

    def _slow_disk(self, machine: Machine) -> None:
        machine.sync_s = self.simulation.rng.choice((0.05, 0.5, 3.0))
        self._later(setattr, machine, "sync_s", 0.002)

    def _slow_state(self, machine: Machine) -> None:
        machine.state_s = self.simulation.rng.choice((0.2, 1.0, 3.0))
        self._later(setattr, machine, "state_s", 0.005)

    def _fail_sync(self, machine: Machine) -> None:
        if machine.process and self._can_lose(machine):
            self._lost_disks = True
            machine.process.fails_sync = True

    def _wipe(self, machine: Machine) -> None:
        if self._can_lose(machine):
            self._lost_disks = True
            machine.wipe()
            self._later(machine.start)

    def _clock(self, machine: Machine) -> None:
        """From now on the clock has another rate, without a step."""
        rate = self.simulation.rng.choice((0.2, 0.5, 1.0, 2.0, 5.0))
        machine.clock_origin += self.simulation.now * (machine.rate - rate)
        machine.rate = rate

    def _can_lose(self, machine: Machine) -> bool:
        """Return whether two copies stay in the set without this one: a swap under way may remove one of them."""
        record = self.decisions.record
        stores = {
            one.disk.state.store_id for one in self.machines.values() if one is not machine and not self._fails(one)
        }
        return record is not None and len(stores.intersection(record.in_sync)) >= 2

    def _fails(self, machine: Machine) -> bool:
        return machine.process is not None and machine.process.fails_sync

    def _repair(self) -> None:
        self.say("everything is repaired")
        self.network.cut.clear()
        for machine in self.machines.values():
            machine.sync_s, machine.state_s = 0.002, 0.005
            self._clock_of(machine)
            if machine.process:
                machine.process.fails_sync = False
                machine.process.resume()
            machine.start()
        self.decisions.cut.clear()
        self._decisions_up()

    def _clock_of(self, machine: Machine) -> None:
        machine.clock_origin += self.simulation.now * (machine.rate - 1)
        machine.rate = 1.0

    def _is_lost(self) -> bool:
        """Return whether no store of the recorded set exists any more."""
        record = self.decisions.record
        stores = {machine.disk.state.store_id for machine in self.machines.values()}
        return record is not None and not stores.intersection(record.in_sync)
