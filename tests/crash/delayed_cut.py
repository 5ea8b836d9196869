"""Delayed messages and power cuts: one seed is one store that delivers through a few lives, each ended as it comes.

    python -m tests.crash.delayed_cut --seeds 100000 --jobs 2     a summary at the end, failing seeds as they come
    python -m tests.crash.delayed_cut --seed 4711                 that one alone, telling every step

A life sends delayed messages, lets time pass and flushers run, delivers what is due, saves delayOffset.json, and ends
by a clean stop, a kill, or a cut at a system call chosen by the seed. At the end everything is delivered. What must
hold then, and on the way:

    never early    no message is put into its topic before its delay has passed since it was stored
    never lost     whatever was acknowledged under SYNC_FLUSH, or was flushed, is in its topic
    not invented   nothing is delivered that was not sent
    not repeated   unless a process ended other than by a clean stop
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from broker.background import DELAY_OFFSETS_FILE
from broker.buckets import Buckets
from broker.delivery.delay.level import LATENESS_BOUNDS_S, DelayLevel
from broker.delivery.delay.offsets import DelayOffsetTable
from broker.store.append import Append, PutStatus
from broker.store.message_store import MessageStore
from broker.store.state_file import StateFile
from protocol.bodies.offsets import DelayOffsets
from protocol.codes import SystemTopic
from tests.crash.account import log_of
from tests.crash.power_cut import NESTED_CUTS
from tests.crash.trial import Trial
from tests.harness.delayed import delayed
from tests.harness.simulated_disk import PowerCut, SimulatedDisk
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.stores import Clock, config_of

DELAYS_MS: Final = (1_000, 3_000)
TOPICS: Final = ("A", "B")


class Sent(msgspec.Struct):
    """A delayed message: when it is due (ms), and how that put ended."""

    due_ms: int
    append: Append
    is_owed: bool = False


class DelayedRun:
    """Everything that one seed decides. `tell` gets a line per step."""

    def __init__(self, seed: int, scratch: Path, helpers: SteppedHelpers, tell: Callable[[str], None]) -> None:
        self.rng = rng = Random(f"delayed {seed}")
        self.helpers = helpers
        self.tell = tell
        self.clock = Clock()
        self.disk = SimulatedDisk(scratch)
        self.root = scratch / "store"
        self.is_sync = rng.random() < 0.7
        self.config = config_of(
            self.root,
            sync=self.is_sync,
            mapped_file_size_commit_log=rng.choice((2048, 4096, 8192)),
            mapped_file_size_consume_queue=rng.choice((100, 200, 2000)),
            max_hash_slot_num=10,
            max_index_num=30,
            queue_units_in_memory=rng.choice((0, 3, 1 << 19)),
            message_delay_level=" ".join(f"{delay // 1000}s" for delay in DELAYS_MS),
        )
        self.sent: dict[int, Sent] = {}
        self.of_this_life: list[Sent] = []
        self.may_repeat = False
        self._actions: dict[Callable[[], None], int] = {  # and how often each
            self._send: 12,
            self._flush: 8,
            self._pass_time: 12,
            self._save: 4,
            self.helpers.make_segments: 2,
        }

    def run(self) -> None:
        """AssertionError, or whatever the store raises, if something does not hold."""
        for _ in range(self.rng.randint(1, 4)):
            try:
                self._open()
                self._live()
            except PowerCut:
                self._end()
        for _ in range(NESTED_CUTS):
            try:
                self._open()
                break
            except PowerCut:
                self._end()
        self.disk.cut_at = -1
        self._deliver_all()
        self._check()
        self._stop()

    # life

    def _open(self) -> None:
        self.of_this_life = []
        self.store = MessageStore(self.config, self.clock, disk=self.disk)
        found = self.store.load()
        self.tell(f"recovered {found}")
        self.disk.revive()
        self.file = StateFile(self.root / "config" / DELAY_OFFSETS_FILE, validate=DelayOffsets.decode, disk=self.disk)
        self.offsets = DelayOffsetTable(0, self.clock)
        self.offsets.load(self.file.load())
        self.tell(f"offsets {self.offsets}")
        self.store.start()
        put = self.store.put

        def put_on_time(append: Append) -> None:
            if append.topic != SystemTopic.SCHEDULE:
                number = int(bytes(append.body).split(b":")[0])
                due_ms = self.sent[number].due_ms
                assert self.clock.now_ms >= due_ms, f"{number} is delivered {due_ms - self.clock.now_ms} ms early"
            put(append)

        self.store.put = put_on_time
        lateness = Buckets(LATENESS_BOUNDS_S)
        self.levels = [
            DelayLevel(number, delay_ms, self.store, self.offsets, lateness)
            for number, delay_ms in enumerate(DELAYS_MS, 1)
        ]

    def _live(self) -> None:
        rng = self.rng
        if rng.random() < 0.8:
            self.disk.cut_at = self.disk.calls + rng.randint(1, 120)
        actions, weights = list(self._actions), list(self._actions.values())
        for _ in range(rng.randint(5, 60)):
            rng.choices(actions, weights)[0]()
        if rng.random() < 0.4:
            self._stop()
            self.tell("stopped")
        else:
            raise PowerCut

    def _stop(self) -> None:
        """As the daemon does: deliveries end, the log is flushed, offsets are saved, the store is closed."""
        self.helpers.sync(self.helpers.flushers[0])
        self._settle()
        self.file.save(self.offsets.encode())
        self.store.close()
        self._note_owed(flushed=self.store.max_physical_offset)
        self.helpers.forget(self.store)

    def _end(self) -> None:
        """The process is gone; mostly the power too."""
        self.may_repeat = True
        self.helpers.forget(self.store)
        if self.rng.random() < 0.8:
            self.tell("cut")
            self.disk.cut(self.rng)
        else:
            self.tell("killed")
            self.disk.revive()

    # actions

    def _send(self) -> None:
        turn = []
        for _ in range(self.rng.randint(1, 4)):
            number, level = len(self.sent), self.rng.randint(1, len(DELAYS_MS))
            body = b"%d:" % number + self.rng.randbytes(self.rng.choice((0, 30, 300)))
            append = delayed(body, level, self.rng.choice(TOPICS), self.rng.randint(0, 1))
            sent = self.sent[number] = Sent(self.clock.now_ms + DELAYS_MS[level - 1], append)
            self.of_this_life.append(sent)
            turn.append(append)
        for append in turn:
            self.store.put(append)
        self.store.commit()
        self.tell(f"sent {[append.physical_offset for append in turn]}")

    def _flush(self) -> None:
        self.helpers.sync(self.rng.choice(self.helpers.flushers))
        self._settle()

    def _settle(self) -> None:
        self.store.step(self.clock.now_ms)
        self.offsets.settle(self.store.flushed_offset)
        self._note_owed(self.store.flushed_offset)

    def _note_owed(self, flushed: int) -> None:
        """What was acknowledged, or is on the disk, must be delivered."""
        for sent in self.of_this_life:
            append = sent.append
            is_acknowledged = self.is_sync and append.status is PutStatus.PUT_OK
            if is_acknowledged or (append.size and append.physical_offset + append.size <= flushed):
                sent.is_owed = True

    def _pass_time(self) -> None:
        self.clock.now_ms += self.rng.choice((1, 10, 300, 1_000, 5_000))
        if self.rng.random() < 0.4:  # to just before something is due
            ahead = [sent.due_ms for sent in self.sent.values() if sent.due_ms > self.clock.now_ms]
            if ahead:
                self.clock.now_ms = max(self.clock.now_ms, self.rng.choice(ahead) - self.rng.randint(1, 5))
        self._settle()
        self._deliver()

    def _deliver(self) -> None:
        for level in self.levels:
            for _ in range(self.rng.randint(0, 3)):
                level.step(self.clock.now_ms)
        self.tell(f"delivered up to {self.offsets}")

    def _save(self) -> None:
        self.file.save(self.offsets.encode())

    # the end

    def _deliver_all(self) -> None:
        for _ in range(1_000):
            self.clock.now_ms += 500
            for flusher in self.helpers.flushers:
                self.helpers.sync(flusher)
            self._settle()
            nexts = [level.step(self.clock.now_ms) for level in self.levels]
            if nexts == [None] * len(nexts):
                break
        for flusher in self.helpers.flushers:
            self.helpers.sync(flusher)
        self._settle()

    def _check(self) -> None:
        came = Counter(
            int(record.body.split(b":")[0]) for record in log_of(self.store) if record.topic != SystemTopic.SCHEDULE
        )
        strange = came.keys() - self.sent.keys()
        assert not strange, f"never sent: {strange}"
        lost = {number for number, sent in self.sent.items() if sent.is_owed} - came.keys()
        assert not lost, f"lost: {sorted(lost)}"
        repeated = {number for number, times in came.items() if times > 1}
        assert self.may_repeat or not repeated, f"delivered more than once: {sorted(repeated)}"


TRIAL: Final = Trial("delayed_cut", DelayedRun, 1_000, __doc__)

if __name__ == "__main__":
    sys.exit(TRIAL.main())
