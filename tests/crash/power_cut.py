"""Power cuts: one seed is one store through several sessions, each ended by a power cut, a kill or a stop.

    python -m tests.crash.power_cut --seeds 1000000 --jobs 2      prints failing seeds, and a summary at the end
    python -m tests.crash.power_cut --seed 4711                   only this seed, with every step

A session sends, reads, lets flushers run, saves a state file, and may remove old segments. It ends at a system call
chosen by the seed, on a disk that then loses unsynced data (tests/harness/simulated_disk.py). The next session opens
the result; up to three power cuts may interrupt that recovery. `ExpectedState` (tests/crash/expected_state.py) contains
the checks.
"""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Final

from skylarkmq.broker.store.files.record_rules import INNER_BATCH
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.retention.cleaner import FIRST_ROUND_MS
from skylarkmq.protocol.message import tags_code
from tests.crash.expected_state import ExpectedState
from tests.crash.trial import Trial
from tests.harness.simulated_disk import PowerCut, SimulatedDisk
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.store_check import assert_consistent
from tests.harness.stores import Clock, config_of, message, older_version

NESTED_CUTS: Final = 3
QUEUES: Final = [("A", 0), ("A", 1), ("B", 0), ("B-1", 2)]
CROWDED: Final = 88  # percent used: segments are removed early, messages are still accepted
_PREPARED, _ROLLBACK = 4, 12


class Run:
    """One run; the seed decides everything. `log_step` gets a line per step."""

    def __init__(self, seed: int, scratch: Path, helpers: SteppedHelpers, log_step: Callable[[str], None]) -> None:
        self.rng = rng = Random(seed)
        # The extra generators are separate, so that they do not change the other random decisions of a seed.
        self.expiry_rng = Random(f"expiry {seed}")
        self.expiry_chance = 0.1 if self.expiry_rng.random() < 0.3 else 0.0
        self.older_rng = Random(f"older {seed}")  # some seeds have records of an older version
        self.older_chance = 0.2 if self.older_rng.random() < 0.4 else 0.0
        self.helpers = helpers
        self.log_step = log_step
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
            max_index_num=rng.choice((3, 8, 30)),
            queue_units_in_memory=Random(f"memory {seed}").choice((0, 3, 1 << 19)),
        )
        self.expected = ExpectedState(is_sync=self.is_sync)
        self.store = self._new_store()
        self.counter = 0
        self._actions: dict[Callable[[], None], int] = {  # with their weights
            self._send: 16,
            self._send_batch: 4,
            self._get: 6,
            self._flush: 12,
            self._pass_time: 6,
            self._save: 4,
            self._allocate: 2,
            self._delete_topic: 1,
        }
        log_step(f"seed={seed} sync={self.is_sync} segment={self.config.mapped_file_size_commit_log}")

    def run(self) -> None:
        """Run all sessions. Raises AssertionError, or an error of the store, if a check fails."""
        for _ in range(self.rng.randint(1, 3)):
            self._open()
            try:
                self._run_session()
            except PowerCut:
                self.log_step(f"ended at call {self.disk.calls}")
                self._end()
        self._open()
        self.store.close()
        self.expected.stopped()
        self._open()
        self.helpers.forget(self.store)

    # opening

    def _new_store(self) -> MessageStore:
        return MessageStore(self.config, self.clock, disk=self.disk)

    def _open(self) -> None:
        for _ in range(NESTED_CUTS):
            if not self._load(self.rng.random() < 0.4):
                break
            self._end()
        else:
            self._load(False)
        self.expected.check(self.store)
        if self.rng.random() < 0.4:
            self._load_again()
        if self.rng.random() < 0.2:
            assert_consistent(self.root, self.config)
        self._check_state()
        self.store.start()

    def _load(self, cut: bool) -> bool:
        """Load the store; return whether the load was cut."""
        self.store = self._new_store()
        if cut:
            self.disk.cut_at = self.disk.calls + self.rng.randint(1, 40)
        try:
            found = self.store.load()
        except PowerCut:
            self.log_step(f"recovery ended at call {self.disk.calls}")
            return True
        self.log_step(f"recovered {found}")
        self.disk.revive()
        return False

    def _load_again(self) -> None:
        """Check that a second recovery changes nothing."""
        before = self.disk.snapshot()
        self.helpers.forget(self.store)
        self._load(False)
        after = self.disk.snapshot()
        changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
        assert not changed, f"changed by a second recovery: {changed}"
        self.expected.check(self.store)

    def _end(self) -> None:
        """End the process; mostly cut the power too."""
        self.helpers.forget(self.store)
        if self.rng.random() < 0.8:
            self.log_step("cut")
            self.disk.cut(self.rng)
            self.expected.cut()
        else:
            self.log_step("killed")
            self.disk.revive()
            self.expected.killed()

    # living

    def _run_session(self) -> None:
        rng = self.rng
        steps = rng.randint(3, 25)
        self.disk.cut_at = self.disk.calls + rng.randint(1, 12 * steps)
        for _ in range(steps):
            (action,) = rng.choices(list(self._actions), list(self._actions.values()))
            action()
            if self.expiry_rng.random() < self.expiry_chance:
                self._expire()
        if rng.random() < 0.3:
            self.store.close()
            self.expected.stopped()
            self.log_step("stopped")
        else:
            raise PowerCut

    def _message(self, topic: str, queue_id: int) -> Append:
        rng = self.rng
        self.counter += 1
        size = rng.choice((0, 10, 60, 200, 500, 1200)) + rng.randint(0, 40)
        body = b"%d:" % self.counter + rng.randbytes(size)
        tag = rng.choice(("", "TAGS\x01tag\x02"))
        keys = rng.choice(("", "KEYS\x01key\x02", f"KEYS\x01key k{self.counter}\x02UNIQ_KEY\x01U{self.counter}\x02"))
        return message(
            body,
            topic,
            queue_id,
            properties=f"{tag}{keys}".encode(),
            tags_code=tags_code("tag" if tag else ""),
            sys_flag=rng.choices((0, _PREPARED, _ROLLBACK), (8, 1, 1))[0] | self._odd_flags(),
            wait_flush=rng.random() < 0.8,
        )

    def _odd_flags(self) -> int:
        """Return flag bits that no record keeps."""
        is_odd = self.older_rng.random() < self.older_chance
        return self.older_rng.choice((0x40, 0x80, 0xC0, 0x1000, 1 << 30)) if is_odd else 0

    def _send(self) -> None:
        batch = [self._message(*self.rng.choice(QUEUES)) for _ in range(self.rng.randint(1, 4))]
        for append in batch:
            self.store.put(append)
        self._commit(batch)

    def _send_batch(self) -> None:
        queue = self.rng.choice(QUEUES)
        batch = [self._message(*queue) for _ in range(self.rng.randint(1, 3))]
        self.store.put_batch(batch)
        self._commit(batch)

    def _commit(self, batch: list[Append]) -> None:
        is_older = self.older_rng.random() < self.older_chance
        accepted = [append for append in batch if append.status is PutStatus.PENDING]
        assert len(accepted) == len(batch) or {append.status for append in batch} == {PutStatus.MESSAGE_ILLEGAL}
        self.expected.write(accepted, INNER_BATCH if is_older else 0)
        with older_version() if is_older else nullcontext():
            self.store.commit()
        self.expected.written(accepted)
        self.log_step(f"sent {[(one.topic, one.queue_id, one.queue_offset, one.physical_offset) for one in accepted]}")

    def _get(self) -> None:
        topic, queue_id = self.rng.choice(QUEUES)
        begin = self.store.min_offset(topic, queue_id)
        end = self.store.max_offset(topic, queue_id)
        if end and begin != end:
            offset = self.rng.randint(begin or 0, end - 1)
            self.expected.seen(self.store.get(topic, queue_id, offset, 32), offset)
            self.log_step(f"got {topic}/{queue_id} from {offset} of {end}")

    def _flush(self) -> None:
        """Run one flusher once; while it waits for the disk, the loop may send."""
        flusher = self.rng.choice(self.helpers.flushers)
        self.log_step(f"flush {flusher!r}")

        def send_meanwhile(call: str, path: str) -> None:
            if self.rng.random() < 0.15:
                self.disk.before_call = lambda call, path: None
                self._send()

        self.disk.before_call = send_meanwhile
        try:
            self.helpers.sync(flusher)
        finally:
            self.disk.before_call = lambda call, path: None
        self._step()
        self.expected.settled(self.helpers.flushers[0].done.end)

    def _step(self) -> None:
        try:
            self.store.step(self.clock.now_ms)
        finally:
            self.expected.expire(self.store.min_physical_offset)

    def _allocate(self) -> None:
        self.helpers.make_segments()
        self.helpers.make_calls()

    def _pass_time(self) -> None:
        self.clock.now_ms += self.rng.choice((1, 200, 1_100, 4_000, 61_000))
        self._step()

    def _expire(self) -> None:
        """Fill the disk for a while: the oldest segments are removed, one slow call at a time, and what depends on
        them."""
        rng = self.expiry_rng
        self._step()
        self.clock.now_ms += FIRST_ROUND_MS
        if rng.random() < 0.7:
            self.helpers.sync(self.helpers.flushers[0])
        self.disk.used = CROWDED
        for _ in range(rng.randint(1, 12)):
            self._step()
            if rng.random() < 0.7:
                self.helpers.make_calls()
            self.clock.now_ms += self.config.delete_commit_log_files_interval
        self.disk.used = 0
        self.expected.settled(self.helpers.flushers[0].done.end)
        self.log_step(f"log begins at {self.store.min_physical_offset}: {self.store.statistics().cleaner}")

    def _delete_topic(self) -> None:
        topic = self.rng.choice(QUEUES)[0]
        end = self.store.max_physical_offset
        self.expected.delete(topic, end)
        count = self.helpers.run(self.store.delete_topic(topic))
        self.expected.deleted(topic, end if count else 0)
        self.log_step(f"deleted {topic} below {end}: {count} queues")

    # the state file

    def _state_file(self) -> StateFile:
        return StateFile(self.root / "config" / "topics.json", validate=json.loads, disk=self.disk)

    def _save(self) -> None:
        self.counter += 1
        self.expected.save(self.counter)
        self.state.save(json.dumps({"number": self.counter, "filler": "x" * self.rng.choice((0, 600, 1500))}).encode())
        self.expected.saved(self.counter)
        self.log_step(f"saved {self.counter}")

    def _check_state(self) -> None:
        self.state = self._state_file()
        data = self.state.load()
        self.expected.loaded(None if data is None else json.loads(data)["number"])


TRIAL: Final = Trial("power_cut", Run, 3_000, __doc__)

if __name__ == "__main__":
    sys.exit(TRIAL.main())
