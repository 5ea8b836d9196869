"""A follower gives every record the unit that a recovery of the same log gives it, whatever queue offsets the log has.

Logs are made of random records: offsets that jump, go back, repeat or begin again, flags and batches of other versions,
names without a queue. A follower gets such a log in random pieces, shows it in steps, and is stopped, killed or
truncated in between. Then it becomes a master. Its queues are those of a store that recovers the same log from its
first byte.

Batches of a batch queue (RocketMQ 5) in an ordinary queue are left out where the follower restarts: neither recovery
from a checkpoint nor a follower remembers such a record, which only widens the offsets that continue its queue.
"""

import os
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from skylarkmq.broker.store.replica import log_dispatch
from skylarkmq.protocol.record import BLANK, BLANK_SIZE, MAGIC_BLANK, encode
from tests.broker.store.replica.test_replica_log import contents, items
from tests.harness.stores import BORN_HOST, Opened, opened

SEEDS = int(os.environ.get("SKYLARK_FOLLOWER_SEEDS", "25"))
SEGMENT = 2_048
SIZES: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 100,
    "max_index_num": 8,
}
QUEUES = [("A", 0), ("A", 1), ("B", 0)]
_COMMIT, _PREPARED, _INNER_BATCH = 8, 4, 0x80


class RandomLog:
    """A log whose queue offsets a writer got wrong at times. `has_batches`: it has batches of a batch queue, too."""

    def __init__(self, rng: Random, *, has_batches: bool) -> None:
        self._rng = rng
        self._kinds = [kind for kind in range(8) if kind != 4 or has_batches]
        self._next = dict.fromkeys(QUEUES, 0)
        self._wrong = rng.choice((0.0, 0.1, 0.4))
        self.data = b""
        self.ends: list[int] = []
        for number in range(rng.randint(1, 60)):
            self._add(number)

    def _add(self, number: int) -> None:
        rng = self._rng
        queue = rng.choice(QUEUES)
        topic, queue_id = queue
        offset, flags, properties = self._next[queue], rng.choice((0, 0, 0, _COMMIT, _PREPARED)), b"KEYS\x01k\x02"
        self._next[queue] += flags != _PREPARED
        if rng.random() < self._wrong:
            kind = rng.choice(self._kinds)
            if kind == 0:  # a jump, which later records may continue
                offset += rng.randint(1, 4)
                self._next[queue] = offset + rng.choice((0, 1, 1))
            elif kind == 1:  # a torn offset
                offset = rng.choice((0, 1, offset + 1, offset + 7, 1 << 40, -1, max(0, offset - 1)))
                self._next[queue] -= rng.choice((0, 1))
            elif kind == 2:  # the topic was deleted and created again
                offset, self._next[queue] = 0, 1
            elif kind == 3:  # a flag of older versions, with or without a unit
                flags |= _INNER_BATCH
                self._next[queue] -= rng.choice((0, 0, 1))
            elif kind == 4:  # a batch of a batch queue
                flags, properties = flags | _INNER_BATCH, b"INNER_NUM\x013\x02"
            elif kind == 5:
                topic = rng.choice(("a/b", "T\x01", "C"))
            elif kind == 6:
                queue_id = rng.choice((-1, 1 << 30))
            else:
                self._next[queue] = max(0, offset - rng.randint(0, 3))
        self._append(topic, queue_id, offset, flags, properties, b"%d:" % number + rng.randbytes(rng.choice((0, 90))))

    def _append(self, topic: str, queue_id: int, offset: int, flags: int, properties: bytes, body: bytes) -> None:
        size = 91 + len(topic) + len(body) + len(properties)
        room = SEGMENT - len(self.data) % SEGMENT
        if size + BLANK_SIZE > room:
            self.data += BLANK.pack(room, MAGIC_BLANK).ljust(room, b"\0")
        self.data += encode(
            topic=topic,
            body=body,
            properties=properties,
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=len(self.data),
            born_timestamp=1_700_000_000_000,
            born_host=BORN_HOST,
            store_timestamp=1_700_000_000_000 + 400 * len(self.ends),
            store_host=BORN_HOST,
            sys_flag=flags,
        )
        self.ends.append(len(self.data))


def follow(root: Path, log: RandomLog, rng: Random, *, restarts: bool) -> None:
    """Let a store follow that log to its end, and stop it."""
    it = Opened(root, is_follower=True, **SIZES)
    while True:
        replica = it.store.replica
        assert replica is not None
        size = rng.choice((rng.randint(1, 120), rng.randint(1, 3_000)))
        replica.append(replica.end, log.data[replica.end : replica.end + size])
        if rng.random() < 0.6:
            replica.show(rng.randint(replica.shown, replica.end))
        if rng.random() < 0.1:
            replica.truncate(rng.randint(replica.shown, replica.end))
        if rng.random() < 0.3:
            it.clock.now_ms += rng.choice((100, 61_000))
            it.store.step(it.clock.now_ms)
        if replica.end == len(log.data):
            replica.show(replica.end)
            it.store.close()
            return
        if restarts and rng.random() < 0.15:
            shown = replica.shown
            it.store.close() if rng.random() < 0.6 else it.crash()
            it = Opened(root, is_follower=True, **SIZES)
            assert it.store.replica is not None
            assert it.store.replica.shown >= shown


def recovered(root: Path) -> tuple[dict[str, bytes], object]:
    """Return the queues and the index after a start as a master."""
    with opened(root, **SIZES) as it:
        it.must_be_consistent = False  # the log has records without a queue
        found = items(it)
        return contents(root), found


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("reads_runs", [False, True])
def test_a_follower_decides_as_a_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_runs: bool, restarts: bool
) -> None:
    """Queues and index are equal, whether records are read one by one or as runs, for many seeds.

    SKYLARK_FOLLOWER_SEEDS: their number.
    """
    if reads_runs:
        monkeypatch.setattr(log_dispatch, "RUN_FROM_BYTES", 1)
    for seed in range(SEEDS):
        rng = Random(f"{seed} {restarts}")
        log = RandomLog(rng, has_batches=not restarts)
        whole = tmp_path / f"{seed}-recovered"
        (whole / "commitlog").mkdir(parents=True)
        for begin in range(0, len(log.data), SEGMENT):
            (whole / "commitlog" / f"{begin:020d}").write_bytes(log.data[begin : begin + SEGMENT].ljust(SEGMENT, b"\0"))
        (whole / "abort").write_bytes(b"")
        root = tmp_path / f"{seed}-follower"
        follow(root, log, rng, restarts=restarts)
        assert recovered(root) == recovered(whole), f"seed {seed}"
