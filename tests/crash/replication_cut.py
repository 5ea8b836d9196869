"""Power cuts of a replicated group: one seed is one group whose machines lose power together or alone, several times.

    python -m tests.crash.replication_cut --seeds 0-9999 --jobs 2     prints failing seeds, and a summary at the end
    python -m tests.crash.replication_cut --seed 4711                 only this seed, with every step
    python -m tests.crash.replication_cut --seeds 0-19999 --results docs/benchmarks/replication_cut.csv

Two or three nodes run the real core, link and store (tests/crash/linked_machine.py) on simulated disks. The leader
takes messages, batches, delayed messages and transactions. Power fails at a system call of one machine, mostly for all
of them at once, also during recoveries. Unsynced sectors are lost or kept, each as a whole. Now and then a process is
killed or stopped, and an operator may let another node of the set lead. Checked:

    copies      what is acknowledged or committed is on the disks of `min` machines at that moment
    kept        a store of the recorded set that starts again has all that was committed
    equal       below the committed mark all logs are equal, byte by byte
    visible     nothing above the committed mark is in a queue; queues have one unit for each record below it
    at the end  the group takes messages; all logs and units are equal, all acknowledged messages are read on each
                node, `store verify` finds nothing
"""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.ha.link.state_files import StateFiles
from skylarkmq.broker.ha.link.static_decisions import encode_revised
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import SystemTopic
from tests.crash.committed_log import CommittedLog, units_of
from tests.crash.linked_machine import STEP_S, GroupSettings, LinkedMachine, LinkedProcess, Time, simulated_members
from tests.crash.trial import LogStep, Trial
from tests.harness.delayed import delayed
from tests.harness.simulated_disk import PowerCut
from tests.harness.simulated_loop import SimulatedNetwork
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.store_check import assert_consistent
from tests.harness.stores import message

CUTS: Final = "cuts"
TOGETHER: Final = "together"
LOST_GROUPS: Final = "lost_groups"
COUNTED: Final = (CUTS, TOGETHER, LOST_GROUPS)
"""Counts of a run: power cuts; those that hit all machines; groups without a store that may lead."""

SEGMENT_BYTES: Final = (12_288, 16_384)
"""A quarter has room for the epoch records of all terms of a run."""
REST_S: Final = 120.0
"""A group without faults comes to rest within this time of the simulation."""
_QUEUES: Final = [("A", 0), ("A", 1), ("B", 0)]
_PREPARED, _COMMIT, _ROLLBACK = 4, 8, 12


class Run:
    """One run; the seed decides everything. `log_step` gets a line per step."""

    def __init__(self, seed: int, scratch: Path, helpers: SteppedHelpers, log_step: LogStep) -> None:
        self.rng = rng = Random(f"replication {seed}")
        self.helpers = helpers
        self.log_step = log_step
        self.time = Time()
        self.network = SimulatedNetwork()
        segment = rng.choice(SEGMENT_BYTES)
        sizes = {
            "mapped_file_size_commit_log": segment,
            "mapped_file_size_consume_queue": rng.choice((200, 2_000)),
            "max_hash_slot_num": 10,
            "max_index_num": 30,
            "queue_units_in_memory": rng.choice((0, 3, 1 << 19)),
        }
        self.settings = GroupSettings(rng.choice((2, 2, 2, 1)), rng.random() < 0.7, segment, sizes)
        count = rng.choice((2, 2, 3))
        self.machines = [LinkedMachine(f"n{n}", 1_000 + n, scratch / f"n{n}") for n in range(1, count + 1)]
        self.leader = self.machines[0]
        self.counts: Counter[str] = Counter()
        self.may_cut_starts = True
        self.may_be_overtaken = False
        """A node promised an epoch and led no term in it, so the next leader may find that promise, and stop."""
        self.sent = 0
        self.log = CommittedLog(self.machines, self.settings)
        log_step(f"seed={seed} nodes={count} {self.settings}")

    def run(self) -> Counter[str]:
        """Run all sessions, and return the counts. Raises AssertionError or StoreError if a check fails."""
        with simulated_members(self.time, self.rng, self.helpers), ExitStack() as stack:
            for machine in self.machines:
                stack.callback(self._drop, machine)  # also after a check has failed, as those of mutants do
            for _ in range(self.rng.randint(3, 8)):
                self._session()
                if self.counts[LOST_GROUPS]:
                    break
            else:
                self._finish()
        return self.counts

    # sessions

    def _session(self) -> None:
        """Let the group work, and end with a power cut, a kill or a stop."""
        rng = self.rng
        if rng.random() < 0.75:
            self._rest(lambda: self._takes_messages, rng.choice((1.0, 3.0, 6.0)))
        target = self.leader if rng.random() < 0.5 else rng.choice(self.machines)
        steps = rng.randint(5, 60)
        before = self.counts[CUTS]
        if target.process is not None:
            target.disk.cut_at = target.disk.calls + rng.randint(1, 2 * steps)
        for _ in range(steps):
            self._step()
            if self.counts[CUTS] > before or self.counts[LOST_GROUPS]:
                return
        target.disk.cut_at = -1
        how = rng.random()
        if how < 0.8:
            self._lose_power(target)
        elif target.process is not None:
            self._end_process(target, is_killed=how < 0.92)
            target.starts_at = self.time.now_s + rng.choice((0.0, 0.5))
        if rng.random() < 0.1:
            self._elect()

    def _step(self) -> None:
        """Let one thing happen."""
        rng = self.rng
        (action,) = rng.choices(
            (self._send, self._step_one, self._deliver_part, self._pass_time, self._stall, self._look),
            (14, 30, 4, 8, 1, 1),
        )
        action()

    def _step_one(self) -> None:
        """Run one of the steps that processes wait for."""
        steps = [(machine, step) for machine, process in self._running() for step in process.steps()]
        if steps:
            self._do(*self.rng.choice(steps))

    def _deliver_part(self) -> None:
        """Hand over some bytes of a connection."""
        waiting = [
            (machine, transport)
            for machine, process in self._running()
            for transport in process.loop.transports
            if transport.is_deliverable
        ]
        if waiting:
            machine, transport = self.rng.choice(waiting)
            size = self.rng.choice((1, 20, 100, 700))
            process = machine.process
            assert process is not None
            self._do(machine, lambda: process.act(lambda: transport.deliver(size)))

    def _pass_time(self) -> None:
        """Let 0.1 s pass, while nothing that was begun ends."""
        self.time.now_s += STEP_S
        for machine in self.machines:
            if machine.process is None and machine.starts_at <= self.time.now_s:
                self._start(machine)
        for machine, process in self._running():
            if self.rng.random() < 0.2:
                self._do(machine, process.make_segments)
            self._do(machine, partial(process.act, lambda: None))

    def _stall(self) -> None:
        """Let so much time pass that links end."""
        for _ in range(25):
            self._pass_time()

    def _rest(self, is_enough: Callable[[], bool], limit_s: float) -> bool:
        """Let everything happen at once, until a condition holds. Return whether it does."""
        until = self.time.now_s + limit_s
        while not (found := is_enough()) and self.time.now_s < until and not self.counts[LOST_GROUPS]:
            self._pass_time()
            for _ in range(8):
                steps = [(machine, step) for machine, process in self._running() for step in process.steps()]
                for machine, step in steps:
                    self._do(machine, step)
                if not steps:
                    break
        return found

    def _running(self) -> list[tuple[LinkedMachine, LinkedProcess]]:
        return [(machine, machine.process) for machine in self.machines if machine.process is not None]

    # machines

    def _start(self, machine: LinkedMachine) -> None:
        peers = (self.leader.peer, *(one.peer for one in self.machines if one is not self.leader))
        process = LinkedProcess(machine, peers, self.settings, self.time, self.network, self.helpers)
        machine.process = process
        if self.may_cut_starts and self.rng.random() < 0.2:
            machine.disk.cut_at = machine.disk.calls + self.rng.randint(1, 60)
        try:
            process.load()
        except PowerCut:
            self._lose_power(machine)
            return
        except DaemonEnded as ended:
            self.log_step(f"{machine.name} does not start: {ended}")
            if machine is not self.leader:
                raise
            self._elect()
            return
        machine.disk.cut_at = -1
        self.log_step(f"{machine.name} started {process.store!r} {process.node.local.committed}")
        revised = self.leader.record
        self.log.check_loaded(process, () if revised is None else revised.record.in_sync)
        self._do(machine, lambda: process.act(process.begin))

    def _do(self, machine: LinkedMachine, step: Callable[[], object]) -> None:
        """Run a step of a process. Its machine may lose power in it."""
        process = machine.process
        if process is None:
            return
        try:
            step()
        except PowerCut:
            self.log.compare()
            self._lose_power(machine)
            return
        self.log.compare()
        if process.ended is not None:
            self.log_step(f"{machine.name}: {process.ended}")
            if self.may_be_overtaken and machine is self.leader and not process.ended.may_restart:
                self._elect()  # as the line of the leader advises
                return
            assert process.ended.may_restart, f"{machine.name}: {process.ended}"
            self._end_process(machine, is_killed=True)
            machine.starts_at = self.time.now_s

    def _lose_power(self, machine: LinkedMachine) -> None:
        """Cut the power of this machine, or of all."""
        rng = self.rng
        is_common = rng.random() < 0.7
        hit = self.machines if is_common else [machine]
        self.log_step(f"power cut: {', '.join(one.name for one in hit)}, call {machine.disk.calls} of {machine.name}")
        self.counts[CUTS] += 1
        self.counts[TOGETHER] += is_common
        for one in hit:
            self._drop(one, is_noticed=rng.random() < 0.5)
            one.disk.cut(rng)
            one.starts_at = self.time.now_s + rng.choice((0.0, 0.1, 0.5, 3.0))

    def _end_process(self, machine: LinkedMachine, *, is_killed: bool) -> None:
        self.log_step(f"{machine.name} {'killed' if is_killed else 'stopped'}")
        process = machine.process
        if not is_killed and process is not None and process.is_open:
            self._do(machine, lambda: process.act(process.stop))
        self._drop(machine)
        machine.disk.revive()

    def _drop(self, machine: LinkedMachine, *, is_noticed: bool = True) -> None:
        if machine.process is not None:
            machine.process.drop(is_noticed=is_noticed)
            machine.process = None

    def _elect(self) -> None:
        """Stop all nodes, and let another store of the set lead, as in docs/reference/wire.md, "Replication link"."""
        for machine in self.machines:
            self._drop(machine)
            machine.disk.revive()
            machine.starts_at = self.time.now_s
        revised = self.leader.record
        if revised is None:
            return
        states = [(machine, machine.files.state()) for machine in self.machines if machine is not self.leader]
        able = [machine for machine, state in states if state and state.store_id in revised.record.in_sync]
        former, own = self.leader, self.leader.files.state()
        if able:
            self.may_be_overtaken |= own is not None and own.promised > revised.record.epoch
            self.leader = self.rng.choice(able)
            StateFiles(self.leader.root, self.leader.disk).record.save(encode_revised(revised))
            self.log_step(f"{self.leader.name} is going to lead after {former.name}")
        elif own is None or own.store_id not in revised.record.in_sync:
            self.log_step("no store may lead")
            self.counts[LOST_GROUPS] += 1

    # messages

    @property
    def _takes_messages(self) -> bool:
        process = self.leader.process
        return process is not None and process.is_open and process.store.is_writable

    def _message(self, topic: str, queue_id: int) -> Append:
        rng = self.rng
        self.sent += 1
        body = b"%d:" % self.sent + rng.randbytes(rng.choice((0, 10, 60, 200, 500, 1_200)) + rng.randint(0, 40))
        properties = b"KEYS\x01k%d\x02" % self.sent * rng.choice((0, 1, 1, 60))
        if self.settings.minimum == 1 and rng.random() < 0.1:  # a follower drops whole records that seem torn
            properties += b"zeros\x01" + bytes(rng.choice((1, 30, 600)))
        return message(body, topic, queue_id, properties=properties[:700], wait_flush=rng.random() < 0.8)

    def _messages(self) -> list[Append]:
        """Return single messages, a batch, a delayed message, or records of a transaction."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.15:
            return [delayed(b"%d:" % (self.sent + 1) + rng.randbytes(50), rng.randint(1, 3))]
        if kind < 0.25:
            half = self._message(SystemTopic.TRANSACTION_HALF, 0)
            op = message(b"%d" % self.sent, SystemTopic.TRANSACTION_OP, 0, tag="d")
            topic, queue_id = rng.choice(_QUEUES)
            return [
                half,
                op,
                message(bytes(half.body), topic, queue_id, sys_flag=_COMMIT, prepared_transaction_offset=1),
            ]
        if kind < 0.3:
            topic, queue_id = rng.choice(_QUEUES)
            return [message(b"%d:" % self.sent, topic, queue_id, sys_flag=rng.choice((_PREPARED, _ROLLBACK)))]
        return [self._message(*rng.choice(_QUEUES)) for _ in range(rng.choice((1, 1, 2, 4)))]

    def _send(self) -> None:
        """Send messages in one iteration of the leader's loop."""
        process = self.leader.process
        if process is None or not process.is_open:
            return
        batch = self._messages()
        is_batch = self.rng.random() < 0.2 and len({(one.topic, one.queue_id) for one in batch}) == 1
        self._do(self.leader, lambda: process.act(lambda: self._put(process, batch, is_batch=is_batch)))

    def _put(self, process: LinkedProcess, batch: list[Append], *, is_batch: bool) -> None:
        if is_batch:
            process.store.put_batch(batch)
        else:
            for append in batch:
                process.store.put(append)
        assert PutStatus.MESSAGE_ILLEGAL not in {append.status for append in batch}
        process.store.commit()
        process.store.flush.when_settled(partial(self._settled, process, batch))
        self.log_step(f"sent {[(one.physical_offset, one.size, one.status.name) for one in batch]}")

    def _settled(self, process: LinkedProcess, batch: list[Append]) -> None:
        """The leader responds to the producers now."""
        for append in batch:
            if append.wait_flush and append.status is PutStatus.PUT_OK:
                self.log.acknowledge(process, append)

    def _look(self) -> None:
        """Check the queues of all followers."""
        for _, process in self._running():
            if process.store.replica is not None:
                self.log.check_queues(process)

    # the end

    def _finish(self) -> None:
        """Repair everything. The group takes messages, and all copies become equal."""
        self.may_cut_starts = False
        for machine in self.machines:
            machine.disk.cut_at = -1
        self._rest_at_last("start", lambda: len(self._running()) == len(self.machines))
        self._rest(lambda: False, 4.0)  # links of machines without power end
        self._rest_at_last("take messages", lambda: self._takes_messages)
        if self.counts[LOST_GROUPS]:
            return
        for _ in range(3):
            self._send()
        before = len(self.log.acknowledged)
        last = self._message("A", 0)
        last.wait_flush = True
        leader = self.leader.process
        assert leader is not None
        self._do(self.leader, lambda: leader.act(lambda: self._put(leader, [last], is_batch=False)))
        self._rest_at_last("acknowledge", lambda: len(self.log.acknowledged) > before)
        self._rest_at_last("come to rest", self._is_at_rest)
        self.log_step(f"at rest: {len(self.log.data)} bytes, {len(self.log.acknowledged)} acknowledged")
        units = []
        for _, process in self._running():
            self.log.check_queues(process)
            process.act(partial(self.log.check_messages, process))
            units.append(process.act(partial(units_of, process)))
        assert all(one == units[0] for one in units), f"the units of the queues differ: {units}"
        for machine, process in self._running():
            process.act(process.stop)
            self._drop(machine)
            assert_consistent(machine.root, process.config)

    def _rest_at_last(self, what: str, is_enough: Callable[[], bool]) -> None:
        """Wait for a condition."""
        found = self._rest(is_enough, REST_S)
        if not found and not self.counts[LOST_GROUPS]:
            states = [(machine.name, machine.process, machine.starts_at) for machine in self.machines]
            raise AssertionError(f"the group does not {what} within {REST_S:g} s: {states}")

    def _is_at_rest(self) -> bool:
        ends = {
            (process.node.local.written, process.node.local.committed, process.shown) for _, process in self._running()
        }
        return len(self._running()) == len(self.machines) and ends == {(len(self.log.data),) * 3}


TRIAL: Final = Trial("replication_cut", Run, 20_000, __doc__, COUNTED, piece=100)

if __name__ == "__main__":
    sys.exit(TRIAL.main())
