"""CPU of the store alone: put + commit + dispatch of messages that are already in memory, stage by stage.

    python -m tests.bench.bench_store [--batch 128] [--body 1024] [--messages 100000] [--rounds 5] [--queues 8]
        [--topics 1] [--sync] [--no-index] [--batch-sends] [--variant both|compiled|interpreted]

Prints ns per message, the minimum and the median over all batches of all rounds; a batch is `--batch` messages and one
commit. On a shared machine use the minimum. Stages whose work differs between batches are an exception (the index puts
its keys once there are 512): there the mean over a round counts, and the best round is printed.

    make      creating the Append objects, which the processor does in a broker; not part of the sum
    put       MessageStore.put: offsets, CRC, record
    write     commit without the following stages: join, statuses, and the pwrite
    pwrite    part of `write`: the system calls that write the log
    dispatch  units into their queues, without the index
    index     gathering, hashing and putting keys
    sum       put + write + dispatch + index

With `--growth`, also the mean of the sum over a round, in tenths: `--messages 1000000 --rounds 1 --segment-mib 64
--growth` grows the log to 20 segments and the index to two million entries.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skylarkmq.broker.store.files.config import FlushDiskType, StoreConfig
from skylarkmq.broker.store.files.disk import Data, Disk
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol import compiled
from skylarkmq.protocol.record import Buffer
from tests.harness.stores import abandon

BORN_HOST = bytes((127, 0, 0, 1)) + (40000).to_bytes(4, "big")
PROPERTIES = b"KEYS\x01%b\x02UNIQ_KEY\x01%b\x02TAGS\x01TagA\x02CLUSTER\x01Default\x02"
STAGES = ("make", "put", "write", "pwrite", "dispatch", "index", "sum")
clock = time.thread_time_ns


def make_appends(
    count: int, body: Buffer, queues: int, now_ms: int, first: int = 0, topics: int = 1, *, keyed: bool = True
) -> list[Append]:
    """Return messages from `first` on, each with its own keys."""
    appends = []
    for number in range(first, first + count):
        queue = number % queues
        keys = [b"7F00000105030000486C%012X" % number, b"key-%d" % number]
        properties = PROPERTIES % (keys[1], keys[0])
        topic = TOPICS[queue % topics]
        append = Append(topic, queue // topics, body, properties, 2598919, 0, 0, now_ms, BORN_HOST)
        if keyed:
            append.keys = keys
        appends.append(append)
    return appends


TOPICS = ["BenchmarkTopic", *(f"BenchmarkTopic{number}" for number in range(1, 1000))]


class Watch:
    """Durations of the wrapped calls since the last `take`, ns by stage."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = defaultdict(int)

    def of(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begin = clock()
            result = call(*arguments)
            self.spent[stage] += clock() - begin
            return result

        return timed

    def take(self) -> dict[str, int]:
        spent, self.spent = self.spent, defaultdict(int)
        return spent


class WatchedDisk(Disk):
    """Times writes to the log: the queues' writes are shorter than any record of these benchmarks."""

    def __init__(self, watch: Watch) -> None:
        self._log_write = watch.of("pwrite", super().write_some)

    def write_some(self, fd: int, data: Data, at: int) -> int:
        if len(data) > 1000:
            written: int = self._log_write(fd, data, at)
            return written
        return super().write_some(fd, data, at)


def run_round(store: MessageStore, watch: Watch, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return ns per message of each batch, by stage."""
    body = memoryview(os.urandom(options.body))
    figures = defaultdict(list)
    now_ms = 1_700_000_000_000
    for first in range(0, options.messages, options.batch):
        begin = clock()
        appends = make_appends(
            options.batch, body[:], options.queues, now_ms, first, options.topics, keyed=not options.unknown_keys
        )
        after_make = clock()
        if options.batch_sends:
            store.put_batch(appends)
        else:
            store_put = store.put
            for append in appends:
                store_put(append)
        after_put = clock()
        store.commit()
        committed = clock() - after_put
        inner = watch.take()
        whole_dispatch, index = inner["dispatch"], inner["index"]
        batch_spent = {
            "make": after_make - begin,
            "put": after_put - after_make,
            "write": committed - whole_dispatch,
            "pwrite": inner["pwrite"],
            "dispatch": whole_dispatch - index,
            "index": index,
            "sum": committed + after_put - after_make,
        }
        for stage, spent in batch_spent.items():
            figures[stage].append(spent / options.batch)
    return figures


def one_store(directory: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Run a round over a fresh store."""
    flush = FlushDiskType.SYNC_FLUSH if options.sync else FlushDiskType.ASYNC_FLUSH
    config = StoreConfig(
        store_path_root_dir=directory,
        flush_disk_type=flush,
        message_index_enable=not options.no_index,
        mapped_file_size_commit_log=options.segment_mib << 20,
    )
    watch = Watch()
    store = MessageStore(config, lambda: time.time_ns() // 1_000_000, disk=WatchedDisk(watch))
    store.load()
    store.start()
    dispatch = store._dispatch
    if dispatch.index is not None:
        dispatch.index.add = watch.of("index", dispatch.index.add)  # type: ignore[method-assign]  # timed
    dispatch.dispatch = watch.of("dispatch", dispatch.dispatch)  # type: ignore[method-assign]  # timed
    figures = run_round(store, watch, options)
    abandon(store)  # a clean stop would sync every queue
    shutil.rmtree(directory)
    return figures


def measure(options: argparse.Namespace) -> None:
    """Run all rounds in this process, and print the figures."""
    root = Path(tempfile.mkdtemp(prefix="bench-store-", dir=options.directory))
    batches: dict[str, list[float]] = defaultdict(list)
    rounds: dict[str, list[float]] = defaultdict(list)
    try:
        for number in range(options.rounds):
            for stage, values in one_store(root / str(number), options).items():
                batches[stage] += values
                rounds[stage].append(statistics.fmean(values))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{compiled.variant()}; load average {os.getloadavg()[0]:.1f}; ns per message")
    if options.growth:
        sums = batches["sum"]
        tenth = len(sums) // 10
        print("  tenths  ", *(f"{statistics.fmean(sums[n * tenth : (n + 1) * tenth]):.0f}" for n in range(10)))
    for stage in STAGES:
        print(
            f"  {stage:8} min {min(batches[stage]):6.0f}  median {statistics.median(batches[stage]):6.0f}"
            f"  best round {min(rounds[stage]):6.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128, help="messages per commit")
    parser.add_argument("--body", type=int, default=1024, help="bytes per body")
    parser.add_argument("--messages", type=int, default=100_000, help="messages per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queues", type=int, default=8, help="number of queues, used round-robin")
    parser.add_argument("--topics", type=int, default=1, help="number of topics of the queues, up to 1,000")
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH (dispatch then happens as flushes arrive)")
    parser.add_argument("--no-index", action="store_true", help="queues only")
    parser.add_argument("--unknown-keys", action="store_true", help="keys are parsed from the properties")
    parser.add_argument("--batch-sends", action="store_true", help="each batch is one put_batch")
    parser.add_argument("--segment-mib", type=int, default=1024, help="size of a log segment")
    parser.add_argument("--growth", action="store_true", help="print the sum over a round in tenths")
    parser.add_argument("--variant", choices=("both", "compiled", "interpreted"), default="both")
    parser.add_argument("--directory", type=Path, default=None, help="directory of the store (default: TMPDIR)")
    options = parser.parse_args()
    if options.variant != "both":
        measure(options)
        return
    print(f"batch {options.batch}, body {options.body}, {options.queues} queues over {options.topics} topics")
    for variant in ("interpreted", "compiled"):
        switch = {compiled.SWITCH: "0"} if variant == "interpreted" else {}
        command = [sys.executable, "-m", "tests.bench.bench_store", *sys.argv[1:], "--variant", variant]
        subprocess.run(command, env=os.environ | switch, check=True)


if __name__ == "__main__":
    main()
