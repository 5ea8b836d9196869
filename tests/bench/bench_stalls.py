"""Stalls of the event loop while the log is appended, flushed and read cold: the store against a mapped log.

    python -m tests.bench.bench_stalls                              # 2 GiB each, alternating every 256 MiB
    python -m tests.bench.bench_stalls --gib 0.5 --cold-mib 128 --directory /data

Two loops do the same work alternately, in one run on one disk. In each step, 256 KiB of messages are appended, as from
one read; a thread syncs dirty pages; and a consumer far behind pulls 32 messages that are not in memory, at random
offsets, 100 times per second.

    store    MessageStore as in the broker: pwrite, its own flushers and flushLagLimit, cold reads by threads
    mapped   a file of the same size, written through a mapping, synced by a thread twice per second; cold messages are
             read through the mapping of the same old log

A stall is a step of the loop that takes more than 10 ms. Time in which the thread was runnable but other processes had
the CPU (`schedstat`) does not count, so that a busy machine does not determine the result.

Budget: the store's stalls are at most a fifth of the mapped log's.
"""

import argparse
import asyncio
import mmap
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.message_store import MessageStore
from tests.bench.filled_store import TOPIC, append, now_ms, write_store

STALL_S = 0.010
READ_BYTES = 256 << 10
PULL_BYTES = 32 << 10
PULL_EVERY_S = 0.010
FLUSH_LAG_LIMIT = 256 << 20
PART_BYTES = 256 << 20
BODY = memoryview(os.urandom(1024))


class Loop:
    """Steps of one side, and their durations."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.pulled = 0
        self.appended = 0

    async def run(self, size: int, step: Callable[[], int], pull: Callable[[], None]) -> None:
        """Append `size` bytes; each step is one callback of the loop, timed from the previous callback."""
        end = self.appended + size
        next_pull = last = time.monotonic()
        last_delay = run_delay_s()
        while self.appended < end:
            self.appended += step()
            if time.monotonic() >= next_pull:
                next_pull += PULL_EVERY_S
                self.pulled += 1
                pull()
            await asyncio.sleep(0)
            now, delay = time.monotonic(), run_delay_s()
            self.steps.append(now - last - (delay - last_delay))
            last, last_delay = now, delay

    def report(self, what: str) -> None:
        """Print the figures."""
        stalls = [step for step in self.steps if step > STALL_S]
        worst, total = max(self.steps) * 1000, sum(stalls) * 1000
        figures = f"{len(stalls):5} stalls  worst {worst:6.1f} ms  together {total:8.1f} ms"
        print(f"{what:8} {figures}  cold pulls {self.pulled}")

    @property
    def stalls(self) -> int:
        """The number of steps that took too long."""
        return sum(step > STALL_S for step in self.steps)


def run_delay_s() -> float:
    """Return how long this thread has waited for a CPU since its start."""
    with open("/proc/thread-self/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9


class StoreSide:
    """The store as in the broker."""

    def __init__(self, store: MessageStore, choose: random.Random) -> None:
        self._store = store
        self._choose = choose
        self._old = store.max_offset(TOPIC, 0) or 0
        self._number = 0
        self._last_step_ms = 0

    def step(self) -> int:
        """Append the messages of one read."""
        if now_ms() - self._last_step_ms >= 100:
            self._last_step_ms = now_ms()
            self._store.step(self._last_step_ms)
        statistics = self._store.statistics()
        if statistics.flush_lag > FLUSH_LAG_LIMIT:  # the broker would pause reads of producers
            return 0
        begin = self._store.max_physical_offset
        for _ in range(READ_BYTES // 1024):
            self._store.put(append(self._number, 8, BODY))
            self._number += 1
        self._store.commit()
        return self._store.max_physical_offset - begin

    def pull(self) -> None:
        """Pull at a random offset of the old log."""
        self._pull(self._choose.randrange(self._old - 32))

    def _pull(self, offset: int) -> None:
        try:
            b"".join(region.view for region in self._store.get(TOPIC, 0, offset, 32).regions)
        except ColdRead as cold:
            self._store.reader.fetch(cold).add_done_callback(lambda _: self._pull(offset))


class MappedSide:
    """A mapped log without anything else."""

    def __init__(self, path: Path, size: int, old: Path, old_bytes: int, choose: random.Random) -> None:
        self._choose = choose
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._fd, 0, size)
        self._map = mmap.mmap(self._fd, size)
        fd = os.open(old, os.O_RDONLY)
        self._old = mmap.mmap(fd, old_bytes, access=mmap.ACCESS_READ)
        os.close(fd)
        self._at = 0
        self._data = os.urandom(READ_BYTES)
        self._stop = threading.Event()
        self._flusher = threading.Thread(target=self._flush)
        self._flusher.start()

    def _flush(self) -> None:
        while not self._stop.wait(0.5):
            os.fdatasync(self._fd)

    def step(self) -> int:
        """Append the messages of one read."""
        self._map[self._at : self._at + READ_BYTES] = self._data
        self._at += READ_BYTES
        return READ_BYTES

    def pull(self) -> None:
        """Read messages at a random offset of the old log."""
        at = self._choose.randrange(len(self._old) - PULL_BYTES)
        bytes(self._old[at : at + PULL_BYTES])

    def forget(self) -> None:
        """Unmap the old log, so that its pages can be evicted."""
        self._old.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._flusher.join()
        self._map.close()
        self._old.close()
        os.close(self._fd)


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2, help="bytes that each side appends, in GiB")
    parser.add_argument("--cold-mib", type=int, default=768, help="bytes of old log to pull from, in MiB, below 1 GiB")
    parser.add_argument("--directory", type=Path, help="directory of the temporary store")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-stalls-", dir=options.directory))
    try:
        size = max(round(options.gib * (1 << 30)) // READ_BYTES, 1) * READ_BYTES  # whole reads
        uvloop.run(measure(root, size, max(options.cold_mib, 1) << 20))
    finally:
        shutil.rmtree(root)


async def measure(root: Path, size: int, cold_bytes: int) -> None:
    """Measure both sides alternately."""
    config = StoreConfig(store_path_root_dir=root / "store")
    write_store(config, cold_bytes, 1, kill=False)
    old = root / "store" / "commitlog" / f"{0:020d}"
    store = MessageStore(config, now_ms)
    store.load()
    store.start(asyncio.get_running_loop())
    choose = random.Random(4)
    store_side, mapped_side = StoreSide(store, choose), MappedSide(root / "mapped", size, old, cold_bytes, choose)
    ours, mapped = Loop(), Loop()
    for begin in range(0, size, PART_BYTES):
        for loop, side in ((ours, store_side), (mapped, mapped_side)):
            mapped_side.forget()
            forget(old, cold_bytes)
            await loop.run(min(PART_BYTES, size - begin), side.step, side.pull)
            os.sync()  # each part begins with a clean page cache
    mapped_side.close()
    cold = store.statistics().reader.cold
    store.close()
    ours.report("store")
    mapped.report("mapped")
    print(f"the store's cold reads {cold.fetched}, of them waited for in the loop {cold.waited}")
    print(f"stalls store / mapped: {ours.stalls} / {mapped.stalls} (budget 1/5)")


def forget(path: Path, size: int) -> None:
    """Evict the old part of the log from memory."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, size, os.POSIX_FADV_DONTNEED)
    os.close(fd)


if __name__ == "__main__":
    main()
