"""Power cuts while timers wait: one seed is one store with its timer files, through a few lives.

    python -m tests.crash.timer_cuts --seeds 100000 --jobs 2      a summary at the end, failing seeds as they come
    python -m tests.crash.timer_cuts --seed 4711                  that one alone, telling every step

As tests/crash/power_cut.py, on the same disk. Afterwards everything is let come due, and then: what was on disk as sent
has come, unless it was taken back; nothing has come early; nothing comes that was taken back while it waited, if that
was on disk; nothing was invented; and if no life ended by force, nothing came twice.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from broker.delivery.timer.timers import Timers
from broker.store.append import Append
from broker.store.message_store import MessageStore
from protocol.record import Record
from tests.crash.trial import Trial
from tests.harness.simulated_disk import PowerCut, SimulatedDisk
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.stores import Clock, Opened, config_of, records_of
from tests.harness.timed import deletion, timed, timers_of

PRECISION_MS: Final = 1_000
FARTHEST_MS: Final = 40_000
STEPS_AT_ONCE: Final = 400


class Waiting:
    """One message that was sent: when it is due, what stores it, and what takes it back."""

    def __init__(self, append: Append, out_ms: int) -> None:
        self.append = append
        self.out_ms = out_ms
        self.is_durable = False
        self.deletion: Append | None = None
        self.is_deleted = False  # on disk so, before it was due


class TimerRun:
    """Everything that one seed decides. `tell` gets a line per step."""

    def __init__(self, seed: int, scratch: Path, helpers: SteppedHelpers, tell: Callable[[str], None]) -> None:
        self.rng = rng = Random(seed)
        self.helpers = helpers
        self.tell = tell
        self.clock = Clock()
        self.disk = SimulatedDisk(scratch)
        self.root = scratch / "store"
        self.config = config_of(
            self.root,
            sync=rng.random() < 0.7,
            mapped_file_size_commit_log=rng.choice((8_192, 65_536)),
            mapped_file_size_consume_queue=rng.choice((200, 2_000)),
            message_index_enable=False,
            enabled_append_prop_crc=True,  # a torn message may not pass for another
            force_verify_prop_crc=True,
            queue_units_in_memory=rng.choice((0, 1 << 19)),
        )
        self.window_slots = rng.choice((6, 100))
        self.sent: dict[bytes, Waiting] = {}
        self.was_forced = False
        self.store: MessageStore
        self.timers: Timers
        self._actions: dict[Callable[[], None], int] = {
            self._send: 10,
            self._take_back: 3,
            self._deliver: 12,
            self._flush: 14,
            self._pass_time: 8,
        }

    def run(self) -> None:
        """AssertionError, or whatever the store raises, if something does not hold."""
        for _ in range(self.rng.randint(1, 4)):
            self._open(may_be_cut=True)
            try:
                self._live()
            except PowerCut:
                self._end()
            self.clock.now_ms += self.rng.choice((0, 0, 500, 20_000))
        self._open()
        self._let_come_due()
        self._check()
        self.helpers.forget(self.store)
        self.timers.delivery.close()

    # opening and ending

    def _open(self, *, may_be_cut: bool = False) -> None:
        if may_be_cut and self.rng.random() < 0.3:
            self.disk.cut_at = self.disk.calls + self.rng.randint(1, 40)
        try:
            self._load()
        except PowerCut:
            self._end()
            self._load()
        if self.rng.random() < 0.3:
            self._load_timers_again()

    def _load(self) -> None:
        self.store = MessageStore(self.config, self.clock, disk=self.disk)
        self.timers = self._new_timers()
        self.store.load()
        self.timers.delivery.load()
        self.disk.revive()
        self.store.start()
        self.tell(f"opened at {self.clock.now_ms} {self.timers.delivery.check()} {self.timers!r}")

    def _new_timers(self) -> Timers:
        it = Opened.__new__(Opened)  # what the maker of timers looks at
        it.root, it.store, it.clock = self.root, self.store, self.clock
        return timers_of(it, self.disk, window_slots=self.window_slots, flush_interval_ms=300)

    def _load_timers_again(self) -> None:
        """A second time nothing is found that the first has left."""
        first, check = dict(self.timers.files.wheel.slots()), self.timers.delivery.check()
        self.timers.delivery.close()
        self.timers = self._new_timers()
        self.timers.delivery.load()
        again = dict(self.timers.files.wheel.slots())
        assert {at: slot.last for at, slot in again.items()} == {at: slot.last for at, slot in first.items()}
        assert self.timers.delivery.check() == check

    def _end(self) -> None:
        """The process is gone; mostly the power too."""
        self.was_forced = True
        for one in self.sent.values():  # of what was not on disk nothing is known any more
            for append in (one.append, one.deletion):
                if append is not None:
                    append.physical_offset = -1
        self.helpers.forget(self.store)
        self.timers.delivery.close()
        if self.rng.random() < 0.8:
            self.tell("cut")
            self.disk.cut(self.rng)
        else:
            self.tell("killed")
            self.disk.revive()

    # living

    def _live(self) -> None:
        rng = self.rng
        steps = rng.randint(5, 60)
        self.disk.cut_at = self.disk.calls + rng.randint(1, 12 * steps)
        for _ in range(steps):
            (action,) = rng.choices(list(self._actions), list(self._actions.values()))
            action()
        if rng.random() < 0.4:
            self._stop()
        else:
            raise PowerCut

    def _stop(self) -> None:
        asyncio.run(self._stopped())
        self.store.close()
        self.tell("stopped")

    async def _stopped(self) -> None:
        task = asyncio.ensure_future(self.timers.delivery.stop())
        while not task.done():
            for flusher in self.helpers.flushers:
                self.helpers.sync(flusher)
            self._step()
            await asyncio.sleep(0)
        await task

    def _send(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            body = b"%d" % len(self.sent)
            due_ms = self.clock.now_ms + self.rng.choice((self.rng.randint(1, 3_000), self.rng.randint(1, FARTHEST_MS)))
            out_ms = (due_ms - 1) // PRECISION_MS * PRECISION_MS
            append = timed(body + b" " * self.rng.choice((0, 300)), out_ms, key=f"k{len(self.sent)}")
            self.sent[body] = Waiting(append, out_ms)
            self.store.put(append)
        self.store.commit()
        self.tell(f"sent {len(self.sent)} at {self.clock.now_ms}")

    def _take_back(self) -> None:
        open_ones = [(n, one) for n, one in enumerate(self.sent.values()) if one.is_durable and one.deletion is None]
        waiting = [(n, one) for n, one in open_ones if one.out_ms >= self.clock.now_ms]
        if waiting:
            number, one = self.rng.choice(waiting)
            one.deletion = deletion(one.out_ms, f"k{number}")
            self.store.put(one.deletion)
            self.store.commit()
            self.tell(f"taken back {number}")

    def _deliver(self) -> None:
        for _ in range(self.rng.choice((1, 2, STEPS_AT_ONCE))):
            next_ms = self.timers.delivery.step(self.clock.now_ms)
            if next_ms is None or next_ms > self.clock.now_ms:
                break
        self.tell(f"delivered {self.timers.statistics().slots}")

    def _flush(self) -> None:
        self.helpers.sync(self.rng.choice(self.helpers.flushers))
        self._step()

    def _step(self) -> None:
        self.store.step(self.clock.now_ms)
        self._note()
        self.timers.step(self.clock.now_ms)

    def _pass_time(self) -> None:
        self.clock.now_ms += self.rng.choice((1, 200, 700, 1_000, 4_000))
        self.helpers.make_segments()
        self._step()

    def _note(self) -> None:
        """What is on disk by now counts."""
        flushed = self.store.flushed_offset
        for one in self.sent.values():
            one.is_durable |= (
                one.append.physical_offset >= 0 and one.append.physical_offset + one.append.size <= flushed
            )
            taken = one.deletion
            if taken is not None and taken.physical_offset >= 0 and taken.physical_offset + taken.size <= flushed:
                one.is_deleted |= self.clock.now_ms < one.out_ms + PRECISION_MS

    # afterwards

    def _let_come_due(self) -> None:
        for _ in range(4):
            self.clock.now_ms += FARTHEST_MS
            while (next_ms := self.timers.delivery.step(self.clock.now_ms)) is not None:
                self.clock.now_ms = max(next_ms, self.clock.now_ms)
                for flusher in self.helpers.flushers:
                    self.helpers.sync(flusher)
                self.store.step(self.clock.now_ms)
            for flusher in self.helpers.flushers:
                self.helpers.sync(flusher)
            self.store.step(self.clock.now_ms)

    def _check(self) -> None:
        came: Counter[bytes] = Counter()
        for record in self._records():
            body = bytes(record.body).rstrip()
            assert body in self.sent, f"invented: {body!r}"
            came[body] += 1
            due_ms = self.sent[body].out_ms + PRECISION_MS
            assert record.store_timestamp >= due_ms, f"{body!r} came {due_ms - record.store_timestamp} ms early"
        for body, one in self.sent.items():
            assert came[body] or not one.is_durable or one.deletion is not None, f"lost: {body!r}"
            assert not came[body] or not one.is_deleted, f"taken back, and came: {body!r}"
            assert came[body] <= 1 or self.was_forced, f"came {came[body]} times: {body!r}"

    def _records(self) -> list[Record]:
        found: list[Record] = []
        offset = 0
        while (result := self.store.get("T", 0, offset, 32)).regions:
            found += records_of(result)
            offset = result.next_begin_offset
        return found


def _is_before(append: Append, end: int) -> bool:
    return append.physical_offset >= 0 and append.physical_offset + append.size <= end


TRIAL: Final = Trial("timer_cuts", TimerRun, 3_000, __doc__)

if __name__ == "__main__":
    sys.exit(TRIAL.main())
