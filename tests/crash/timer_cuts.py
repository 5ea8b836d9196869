"""Power cuts while timers wait: one seed is one store with its timer files, through several sessions.

    python -m tests.crash.timer_cuts --seeds 100000 --jobs 2      prints failing seeds, and a summary at the end
    python -m tests.crash.timer_cuts --seed 4711                  only this seed, with every step

As tests/crash/power_cut.py, on the same disk. At the end all timers become due. Then every message that was on disk is
delivered, unless it was recalled; none is early; none is delivered whose recall was on disk in time; none is invented;
and if all sessions ended by a clean stop, none is delivered twice.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from skylarkmq.broker.delivery.timer.timers import Timers
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.record import Record
from tests.crash.sessions import StoreSessions
from tests.crash.trial import Trial
from tests.harness.simulated_disk import PowerCut
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.stores import records_of
from tests.harness.timed import deletion, timed, timers_on

PRECISION_MS: Final = 1_000
FARTHEST_MS: Final = 40_000
STEPS_AT_ONCE: Final = 400


class Waiting:
    """A message that was sent: its due time, its append, and its recall."""

    def __init__(self, append: Append, out_ms: int) -> None:
        self.append = append
        self.out_ms = out_ms
        self.is_durable = False
        self.deletion: Append | None = None
        self.is_deleted = False  # the recall was on disk before the message was due


class TimerRun(StoreSessions):
    """One run; the seed decides everything. `log_step` gets a line per step."""

    timers: Timers

    def __init__(self, seed: int, scratch: Path, helpers: SteppedHelpers, log_step: Callable[[str], None]) -> None:
        super().__init__(
            seed,
            scratch,
            helpers,
            log_step,
            message_index_enable=False,
            enabled_append_prop_crc=True,  # a torn message must not be taken for another
            force_verify_prop_crc=True,
        )
        self.window_slots = self.rng.choice((6, 100))
        self.sent: dict[bytes, Waiting] = {}
        self.actions |= {
            self._send: 10,
            self._recall: 3,
            self._deliver: 12,
            self.flush: 14,
            self._pass_time: 8,
        }

    def sizes(self) -> dict[str, Any]:
        return {
            "mapped_file_size_commit_log": self.rng.choice((8_192, 65_536)),
            "mapped_file_size_consume_queue": self.rng.choice((200, 2_000)),
            "queue_units_in_memory": self.rng.choice((0, 1 << 19)),
        }

    # opening and ending

    def open(self) -> None:
        """Open the store; the power may be cut during the recovery."""
        if self.rng.random() < 0.3:
            self.disk.cut_at = self.disk.calls + self.rng.randint(1, 40)
        self.open_at_last()

    def open_at_last(self) -> None:
        try:
            self._load()
        except PowerCut:
            self.end()
            self._load()
        if self.rng.random() < 0.3:
            self._load_timers_again()

    def between_lives(self) -> None:
        self.clock.now_ms += self.rng.choice((0, 0, 500, 20_000))

    def _load(self) -> None:
        self.store = MessageStore(self.config, self.clock, disk=self.disk)
        self.timers = self._new_timers()
        self.store.load()
        self.timers.delivery.load()
        self.disk.revive()
        self.store.start()
        self.log_step(f"opened at {self.clock.now_ms} {self.timers.delivery.check()} {self.timers!r}")

    def _new_timers(self) -> Timers:
        fields = {"window_slots": self.window_slots, "flush_interval_ms": 300}
        return timers_on(self.root, self.store, self.clock, self.disk, **fields)

    def _load_timers_again(self) -> None:
        """Check that a second load of the timers finds nothing new."""
        first, check = dict(self.timers.files.wheel.slots()), self.timers.delivery.check()
        self.timers.delivery.close()
        self.timers = self._new_timers()
        self.timers.delivery.load()
        again = dict(self.timers.files.wheel.slots())
        assert {at: slot.last for at, slot in again.items()} == {at: slot.last for at, slot in first.items()}
        assert self.timers.delivery.check() == check

    def forget(self) -> None:
        for one in self.sent.values():  # data that was not on disk is lost
            for append in (one.append, one.deletion):
                if append is not None:
                    append.physical_offset = -1
        super().forget()
        self.timers.delivery.close()

    def close(self) -> None:
        self.forget()

    # living

    def begin(self) -> int:
        steps = self.rng.randint(5, 60)
        self.disk.cut_at = self.disk.calls + self.rng.randint(1, 12 * steps)
        return steps

    def stop(self) -> None:
        asyncio.run(self._stopped())
        self.store.close()

    async def _stopped(self) -> None:
        task = asyncio.ensure_future(self.timers.delivery.stop())
        while not task.done():
            for flusher in self.helpers.flushers:
                self.helpers.sync(flusher)
            self.settle()
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
        self.log_step(f"sent {len(self.sent)} at {self.clock.now_ms}")

    def _recall(self) -> None:
        open_ones = [(n, one) for n, one in enumerate(self.sent.values()) if one.is_durable and one.deletion is None]
        waiting = [(n, one) for n, one in open_ones if one.out_ms >= self.clock.now_ms]
        if waiting:
            number, one = self.rng.choice(waiting)
            one.deletion = deletion(one.out_ms, f"k{number}")
            self.store.put(one.deletion)
            self.store.commit()
            self.log_step(f"recalled {number}")

    def _deliver(self) -> None:
        for _ in range(self.rng.choice((1, 2, STEPS_AT_ONCE))):
            next_ms = self.timers.delivery.step(self.clock.now_ms)
            if next_ms is None or next_ms > self.clock.now_ms:
                break
        self.log_step(f"delivered {self.timers.statistics().slots}")

    def settle(self) -> None:
        self.store.step(self.clock.now_ms)
        self.note_owed(self.store.flushed_offset)
        self.timers.step(self.clock.now_ms)

    def _pass_time(self) -> None:
        self.clock.now_ms += self.rng.choice((1, 200, 700, 1_000, 4_000))
        self.helpers.make_segments()
        self.settle()

    def note_owed(self, flushed: int) -> None:
        """Mark everything that is on disk by now."""
        for one in self.sent.values():
            one.is_durable |= (
                one.append.physical_offset >= 0 and one.append.physical_offset + one.append.size <= flushed
            )
            taken = one.deletion
            if taken is not None and taken.physical_offset >= 0 and taken.physical_offset + taken.size <= flushed:
                one.is_deleted |= self.clock.now_ms < one.out_ms + PRECISION_MS

    # the end

    def bring_to_an_end(self) -> None:
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

    def check(self) -> None:
        delivered: Counter[bytes] = Counter()
        for record in self._records():
            body = bytes(record.body).rstrip()
            assert body in self.sent, f"invented: {body!r}"
            delivered[body] += 1
            due_ms = self.sent[body].out_ms + PRECISION_MS
            assert record.store_timestamp >= due_ms, f"{body!r} is delivered {due_ms - record.store_timestamp} ms early"
        for body, one in self.sent.items():
            assert delivered[body] or not one.is_durable or one.deletion is not None, f"lost: {body!r}"
            assert not delivered[body] or not one.is_deleted, f"recalled, but delivered: {body!r}"
            assert delivered[body] <= 1 or self.may_repeat, f"delivered {delivered[body]} times: {body!r}"

    def _records(self) -> list[Record]:
        found: list[Record] = []
        offset = 0
        while (result := self.store.get("T", 0, offset, 32)).regions:
            found += records_of(result)
            offset = result.next_begin_offset
        return found


TRIAL: Final = Trial("timer_cuts", TimerRun, 3_000, __doc__)

if __name__ == "__main__":
    sys.exit(TRIAL.main())
