"""Power cuts of a follower: one seed is one store that follows a log, in sessions that end with a cut, kill or stop.

    python -m tests.crash.follower_cut --seeds 100000 --jobs 2    prints failing seeds, and a summary at the end
    python -m tests.crash.follower_cut --seed 4711                only this seed, with every step

The other log is a list of records. A session appends some of them, runs flushers, shows what is committed (or, as a
classic slave, all that is written), and at times the log that it follows is replaced by one that has a prefix in common
with it: the follower is truncated there. The disk writes each sector as a whole, as in
docs/reference/disk.md, "Followers".

After each start the log is a prefix of the log that was followed, not shorter than its synced end. Visible is what lies
below the mark, in queues that have a unit for each of its records. In the end the store becomes a master: it has every
record of the log, and numbers messages after them.
"""

import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final

from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.replica.replica_log import ReplicaLog
from skylarkmq.protocol.record import BLANK, BLANK_SIZE, MAGIC_BLANK, encode
from tests.crash.trial import LogStep, Trial
from tests.harness.simulated_disk import PowerCut, SimulatedDisk
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.store_check import assert_consistent
from tests.harness.stores import BORN_HOST, Clock, config_of, message

_QUEUES: Final = [("A", 0), ("A", 1), ("B", 0)]


class FollowedLog:
    """The bytes of a log, the end of each record, and the queue of each."""

    def __init__(
        self, segment: int, data: bytes = b"", ends: tuple[int, ...] = (), queues: tuple[int, ...] = ()
    ) -> None:
        self._segment = segment
        self.data = data
        self.ends = list(ends)
        self.queues = list(queues)  # positions in _QUEUES

    def prefix(self, count: int, committed: int) -> "FollowedLog":
        """Return a log that has the first `count` records of this one, and the blank after them if it is committed."""
        end = self.ends[count - 1] if count else 0
        closed = end + -end % self._segment
        if committed > end and len(self.data) >= closed and not any(end < at <= closed for at in self.ends):
            end = closed
        return FollowedLog(self._segment, self.data[:end], tuple(self.ends[:count]), tuple(self.queues[:count]))

    def common_end(self, other: "FollowedLog") -> int:
        """Return the end of the common prefix: that of a record, or of a segment that both have closed."""
        common = 0
        for ours, theirs in zip(self.ends, other.ends, strict=False):
            if ours != theirs or self.data[:ours] != other.data[:ours]:
                break
            common = ours
        closed = common + -common % self._segment
        is_closed = len(self.data) >= closed and not any(common < end <= closed for end in self.ends)
        return closed if is_closed and self.data[:closed] == other.data[:closed] else common

    def extend(self, rng: Random, count: int) -> None:
        """Append random records."""
        for _ in range(count):
            queue = rng.randrange(len(_QUEUES))
            topic, queue_id = _QUEUES[queue]
            body, properties = rng.randbytes(rng.choice((0, 60, 300, 700))), b"KEYS\x01k\x02" * rng.choice((0, 1, 60))
            room = self._segment - len(self.data) % self._segment
            if 91 + len(topic) + len(body) + len(properties) + BLANK_SIZE > room:
                self.data += BLANK.pack(room, MAGIC_BLANK).ljust(room, b"\0")
            self.data += encode(
                topic=topic,
                body=body,
                properties=properties,
                queue_id=queue_id,
                queue_offset=self.queues.count(queue),
                physical_offset=len(self.data),
                born_timestamp=1_700_000_000_000,
                born_host=BORN_HOST,
                store_timestamp=1_700_000_000_000 + 300 * len(self.ends),
                store_host=BORN_HOST,
            )
            self.ends.append(len(self.data))
            self.queues.append(queue)

    def counts(self, end: int) -> Counter[tuple[str, int]]:
        """Return the number of records of each queue that end at or below byte `end`."""
        return Counter(_QUEUES[queue] for at, queue in zip(self.ends, self.queues, strict=True) if at <= end)


class Run:
    """One run; the seed decides everything. `log_step` gets a line per step."""

    def __init__(self, seed: int, scratch: Path, helpers: SteppedHelpers, log_step: LogStep) -> None:
        self.rng = rng = Random(seed)
        self.helpers = helpers
        self.log_step = log_step
        self.clock = Clock()
        self.disk = SimulatedDisk(scratch)
        self.disk.tears_sectors = False
        self.is_classic = rng.random() < 0.3
        segment = rng.choice((2_048, 4_096))
        self.sizes: dict[str, Any] = {
            "mapped_file_size_commit_log": segment,
            "mapped_file_size_consume_queue": rng.choice((100, 200, 2_000)),
            "max_hash_slot_num": 10,
            "max_index_num": rng.choice((8, 30)),
            "queue_units_in_memory": rng.choice((0, 3, 1 << 19)),
        }
        self.config = config_of(scratch / "store", sync=rng.random() < 0.7, is_follower=True, **self.sizes)
        self.leader = FollowedLog(segment)
        self.leader.extend(rng, rng.randint(1, 12))
        self.followed = self.leader  # the log of which the bytes on the disk are a prefix
        self.floor = 0  # everything below is synced
        self.committed = 0  # everything below is committed, and may have been visible
        self.mark = 0  # the part of it that haState has
        log_step(f"seed={seed} classic={self.is_classic} segment={segment}")

    def run(self) -> None:
        """Run all sessions. Raises AssertionError, or an error of the store, if a check fails."""
        for _ in range(self.rng.randint(1, 4)):
            self._session(self.rng.randint(3, 25))
        self.disk.cut_at = -1
        self._open()
        self._join()
        while self.replica.end < len(self.leader.data):
            self._append()
        self.replica.show(self.replica.end)
        self.store.close()
        self.helpers.forget(self.store)
        self._check_as_master()

    @property
    def replica(self) -> ReplicaLog:
        assert self.store.replica is not None
        return self.store.replica

    def _session(self, steps: int) -> None:
        rng = self.rng
        actions = [self._append] * 8 + [self._flush] * 6 + [self._show] * 4 + [self._pass_time] * 3
        actions += [self._change] * (not self.is_classic)  # a classic slave never goes back
        try:
            self.disk.cut_at = self.disk.calls + rng.randint(1, 14 * steps)
            self._open()
            self._join()
            for _ in range(steps):
                rng.choice(actions)()
            if rng.random() < 0.3:
                self.store.close()
                self.floor = self.replica.end
                self.log_step("stopped")
                self.helpers.forget(self.store)
                self.disk.revive()
                return
        except PowerCut:
            self.log_step(f"ended at call {self.disk.calls}")
        self.helpers.forget(self.store)
        if rng.random() < 0.8:
            self.log_step("cut")
            self.disk.cut(rng)
        else:
            self.disk.revive()

    def _open(self) -> None:
        """Open the store, and check it."""
        self.store = MessageStore(self.config, self.clock, disk=self.disk)
        found = self.store.load(show_to=None if self.is_classic else self.mark)
        self.log_step(f"recovered {found}")
        end, replica = found.end, self.replica
        assert self.floor <= end <= len(self.followed.data), f"ends at {end}, synced {self.floor}"
        files = self.store._log.files.segments
        data = b"".join(bytes(segment.view) for segment in files)
        assert data[:end] == self.followed.data[:end], "the log differs"
        assert not any(data[end:]), "there is data after the end"
        if not self.is_classic:
            owed = max((at for at in self.followed.ends if at <= self.mark), default=0)
            assert replica.shown >= owed, f"{replica.shown} is shown, below {owed}"
        self._check_queues(replica.shown)
        self.floor = end
        self.store.start()

    def _check_queues(self, shown: int) -> None:
        expected = self.followed.counts(shown)
        for key in _QUEUES:
            queue = self.store.queues.get(*key)
            count = queue.end if queue is not None else 0
            assert count == expected[key], f"{key} has {count} units, not {expected[key]}"

    def _join(self) -> None:
        """Go back to the prefix that the followed log has in common with the leader's."""
        common = self.followed.common_end(self.leader)
        if self.followed is not self.leader:
            if self.replica.end > common:
                self.log_step(f"truncate {self.replica.end} to {common}")
                self.floor = min(self.floor, common)
                self.replica.truncate(common)
            self.followed = self.leader
            self.floor = self.replica.synced

    def _append(self) -> None:
        """Append some whole records, with the blanks between them."""
        begin = self.replica.end
        ends = [end for end in self.leader.ends if end > begin]
        if ends:
            end = ends[min(self.rng.randint(0, 3), len(ends) - 1)]
            self.replica.append(begin, self.leader.data[begin:end])
        elif self.rng.random() < 0.5:
            self.leader.extend(self.rng, self.rng.randint(1, 6))

    def _flush(self) -> None:
        flushers = (self.store.flush._flusher, self.store._durability._queue_flusher)
        flusher = self.rng.choice(flushers)
        assert flusher is not None
        self.helpers.sync(flusher)
        self.store.step(self.clock.now_ms)
        self.floor = max(self.floor, self.replica.synced)

    def _show(self) -> None:
        if self.is_classic:
            self.replica.show(self.replica.end)
            return
        acknowledged = [end for end in self.leader.ends if end <= self.floor]  # frames end where records do
        committed = self.rng.choice(acknowledged) if acknowledged else 0
        if committed > self.mark:
            self.committed = max(self.committed, committed)
            self.replica.show(committed)
            if self.rng.random() < 0.5:
                self.mark = committed  # haState is written now and then
        self._check_queues(self.replica.shown)

    def _pass_time(self) -> None:
        self.clock.now_ms += self.rng.choice((1, 200, 1_100, 61_000))
        if self.rng.random() < 0.5:
            self.helpers.make_segments()
        self.store.step(self.clock.now_ms)

    def _change(self) -> None:
        """Another node leads: its log has the visible records, and then others."""
        committed = self.committed
        kept = sum(end <= committed for end in self.leader.ends)
        changed = self.leader.prefix(self.rng.randint(kept, len(self.leader.ends)), committed)
        changed.extend(self.rng, self.rng.randint(1, 8))
        self.log_step(f"another leader from record {len(changed.ends)} on")
        self.leader = changed
        self._join()

    def _check_as_master(self) -> None:
        config = config_of(self.config.store_path_root_dir, **self.sizes)
        store = MessageStore(config, self.clock, disk=self.disk)
        assert store.load().end == len(self.leader.data)
        store.start()
        for key in _QUEUES:
            new = message(b"new", *key)
            store.put(new)
            assert new.queue_offset == self.leader.counts(len(self.leader.data))[key]
        store.close()
        self.helpers.forget(store)
        assert_consistent(Path(self.config.store_path_root_dir), config)


TRIAL: Final = Trial("follower_cut", Run, 3_000, __doc__)

if __name__ == "__main__":
    sys.exit(TRIAL.main())
