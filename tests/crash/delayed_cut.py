"""Delayed messages and power cuts: one seed is one store that delivers through several sessions with different ends.

    python -m tests.crash.delayed_cut --seeds 100000 --jobs 2     prints failing seeds, and a summary at the end
    python -m tests.crash.delayed_cut --seed 4711                 only this seed, with every step

A session sends delayed messages, lets time pass and flushers run, delivers due messages, and saves delayOffset.json. It
ends with a clean stop, a kill, or a power cut at a system call chosen by the seed. At the end the run delivers all
messages. The checks, at the end and meanwhile:

    never early    no message is put into its topic before its delay has passed since it was stored
    never lost     every message that was acknowledged under SYNC_FLUSH, or was flushed, is in its topic
    not invented   every delivered message was sent
    not repeated   unless a process ended other than by a clean stop
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.app.sections.delivery import DELAY_OFFSETS_FILE
from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.delivery.delay.level import LATENESS_BOUNDS_S, DelayLevel
from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.offsets import DelayOffsets
from skylarkmq.protocol.codes import SystemTopic
from tests.crash.expected_state import log_of
from tests.crash.sessions import StoreSessionsWithOffsets
from tests.crash.trial import Trial
from tests.harness.delayed import delayed
from tests.harness.stepped_helpers import SteppedHelpers

DELAYS_MS: Final = (1_000, 3_000)
TOPICS: Final = ("A", "B")


class Sent(msgspec.Struct):
    """A delayed message: its due time (ms), and the result of its put."""

    due_ms: int
    append: Append
    is_owed: bool = False


class DelayedRun(StoreSessionsWithOffsets):
    """One run; the seed decides everything. `log_step` gets a line per step."""

    def __init__(self, seed: int, scratch: Path, helpers: SteppedHelpers, log_step: Callable[[str], None]) -> None:
        super().__init__(
            f"delayed {seed}",
            scratch,
            helpers,
            log_step,
            message_delay_level=" ".join(f"{delay // 1000}s" for delay in DELAYS_MS),
        )
        self.sent: dict[int, Sent] = {}
        self.of_this_session: list[Sent] = []
        self.actions |= {
            self._send: 12,
            self.flush: 8,
            self._pass_time: 12,
            self.save: 4,
            self.helpers.make_segments: 2,
        }

    # session

    def open(self) -> None:
        self.of_this_session = []
        self.store = MessageStore(self.config, self.clock, disk=self.disk)
        found = self.store.load()
        self.log_step(f"recovered {found}")
        self.disk.revive()
        self.file = StateFile(self.root / "config" / DELAY_OFFSETS_FILE, validate=DelayOffsets.decode, disk=self.disk)
        self.offsets = DelayOffsetTable(0, self.clock)
        self.offsets.load(self.file.load())
        self.log_step(f"offsets {self.offsets}")
        self.store.start()
        put = self.store.put

        def put_on_time(append: Append) -> None:
            if append.topic != SystemTopic.SCHEDULE:
                number = int(bytes(append.body).split(b":")[0])
                due_ms = self.sent[number].due_ms
                assert self.clock.now_ms >= due_ms, f"{number} is delivered {due_ms - self.clock.now_ms} ms early"
            put(append)

        self.store.put = put_on_time
        lateness = Histogram(LATENESS_BOUNDS_S)
        self.levels = [
            DelayLevel(number, delay_ms, self.store, self.offsets, lateness)
            for number, delay_ms in enumerate(DELAYS_MS, 1)
        ]

    # actions

    def _send(self) -> None:
        batch = []
        for _ in range(self.rng.randint(1, 4)):
            number, level = len(self.sent), self.rng.randint(1, len(DELAYS_MS))
            body = b"%d:" % number + self.rng.randbytes(self.rng.choice((0, 30, 300)))
            append = delayed(body, level, self.rng.choice(TOPICS), self.rng.randint(0, 1))
            sent = self.sent[number] = Sent(self.clock.now_ms + DELAYS_MS[level - 1], append)
            self.of_this_session.append(sent)
            batch.append(append)
        for append in batch:
            self.store.put(append)
        self.store.commit()
        self.log_step(f"sent {[append.physical_offset for append in batch]}")

    def settle(self) -> None:
        self.store.step(self.clock.now_ms)
        self.offsets.settle(self.store.flushed_offset)
        self.note_owed(self.store.flushed_offset)

    def note_owed(self, flushed: int) -> None:
        """Mark the messages that were acknowledged, or are on disk: they must be delivered."""
        for sent in self.of_this_session:
            append = sent.append
            is_acknowledged = self.is_sync and append.status is PutStatus.PUT_OK
            if is_acknowledged or (append.size and append.physical_offset + append.size <= flushed):
                sent.is_owed = True

    def _pass_time(self) -> None:
        self.clock.now_ms += self.rng.choice((1, 10, 300, 1_000, 5_000))
        if self.rng.random() < 0.4:  # to just before a message is due
            ahead = [sent.due_ms for sent in self.sent.values() if sent.due_ms > self.clock.now_ms]
            if ahead:
                self.clock.now_ms = max(self.clock.now_ms, self.rng.choice(ahead) - self.rng.randint(1, 5))
        self.settle()
        self._deliver()

    def _deliver(self) -> None:
        for level in self.levels:
            for _ in range(self.rng.randint(0, 3)):
                level.step(self.clock.now_ms)
        self.log_step(f"delivered up to {self.offsets}")

    def encode(self) -> bytes:
        return self.offsets.encode()

    # the end

    def bring_to_an_end(self) -> None:
        for _ in range(1_000):
            self.clock.now_ms += 500
            self.flush_all()
            nexts = [level.step(self.clock.now_ms) for level in self.levels]
            if nexts == [None] * len(nexts):
                break
        self.flush_all()

    def check(self) -> None:
        delivered = Counter(
            int(record.body.split(b":")[0]) for record in log_of(self.store) if record.topic != SystemTopic.SCHEDULE
        )
        strange = delivered.keys() - self.sent.keys()
        assert not strange, f"never sent: {strange}"
        lost = {number for number, sent in self.sent.items() if sent.is_owed} - delivered.keys()
        assert not lost, f"lost: {sorted(lost)}"
        repeated = {number for number, times in delivered.items() if times > 1}
        assert self.may_repeat or not repeated, f"delivered more than once: {sorted(repeated)}"


TRIAL: Final = Trial("delayed_cut", DelayedRun, 1_000, __doc__)

if __name__ == "__main__":
    sys.exit(TRIAL.main())
