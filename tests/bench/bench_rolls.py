"""Effect of segment rolls on sends: latencies with many rolls and with none, side by side.

    python -m tests.bench.bench_rolls                       # 50 rolls of 16 MiB against one segment, 3 rounds
    python -m tests.bench.bench_rolls --rolls 10 --rounds 1 --directory /data

Two stores in one process take the same batches alternately: `mappedFileSizeCommitLog` of one is 16 MiB; the other one
has a single segment. The figure is the time that the producers of a batch wait: put, commit, dispatch. Batches arrive
at a steady rate, so that allocator and flusher work at the same time, as they do in a broker.

Budget: the 99.9th percentile with rolls is no worse than without (median of the rounds; 10 % is noise).
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.message_store import MessageStore
from tests.bench.filled_store import append, now_ms

SEGMENT_BYTES = 16 << 20
BUDGET = 1.10


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rolls", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16, help="messages of 1 KiB per commit")
    parser.add_argument(
        "--mib-per-second", type=int, default=100, help="for both stores together; 0: as fast as it goes"
    )
    parser.add_argument("--directory", type=Path, help="directory of the temporary stores")
    options = parser.parse_args()
    ratios = []
    for number in range(options.rounds):
        with_rolls, without, rolling = measure(options)
        ratios.append(percentile(with_rolls, 99.9) / percentile(without, 99.9))
        print(f"round {number + 1}: {len(without)} batches each")
        report("  with rolls", with_rolls)
        report("  without", without)
        report("  the rolls", rolling)
    print(f"p99.9 with rolls / without: {statistics.median(ratios):.2f} (budget {BUDGET:.2f}), rounds {sorted(ratios)}")


def measure(options: argparse.Namespace) -> tuple[list[int], list[int], list[int]]:
    """Return the nanoseconds of each batch with rolls, and without; then those of the batches with a roll."""
    root = Path(tempfile.mkdtemp(prefix="bench-rolls-", dir=options.directory))
    sizes = SEGMENT_BYTES, SEGMENT_BYTES * (options.rolls + 2)
    try:
        stores = [opened(root / str(size), size) for size in sizes]
        spent: list[list[int]] = [[], []]
        rolling: list[int] = []
        pause_s = 2 * options.batch * 1024 / (options.mib_per_second << 20) if options.mib_per_second else 0.0
        due = time.monotonic()
        number = 0
        while stores[0].max_physical_offset < options.rolls * SEGMENT_BYTES + SEGMENT_BYTES // 2:
            segment = stores[0].max_physical_offset // SEGMENT_BYTES
            for which in ((0, 1), (1, 0))[number % 2]:
                spent[which].append(send(stores[which], options.batch))
            if stores[0].max_physical_offset // SEGMENT_BYTES != segment:
                rolling.append(spent[0][-1])
            number += 1
            due = max(due + pause_s, time.monotonic())
            if number % 64 == 0:
                for store in stores:
                    store.step(now_ms())
            time.sleep(max(0.0, due - time.monotonic()))
        for store in stores:
            store.close()
    finally:
        shutil.rmtree(root)
    return spent[0], spent[1], rolling


def opened(root: Path, segment_size: int) -> MessageStore:
    """Return a fresh store."""
    store = MessageStore(StoreConfig(store_path_root_dir=root, mapped_file_size_commit_log=segment_size), now_ms)
    store.load()
    store.start()
    return store


BODY = memoryview(bytes(range(256)) * 4)


def send(store: MessageStore, count: int) -> int:
    """Return the nanoseconds of one batch."""
    appends = [append(number, 4, BODY) for number in range(count)]
    begin = time.perf_counter_ns()
    for one in appends:
        store.put(one)
    store.commit()
    return time.perf_counter_ns() - begin


def percentile(values: list[int], percent: float) -> int:
    """Return the value that `percent` % of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def report(what: str, values: list[int]) -> None:
    """Print a row of percentiles."""
    figures = "  ".join(f"p{percent:g} {percentile(values, percent) / 1000:.0f}" for percent in (50, 99, 99.9, 100))
    print(f"{what:14} us: {figures}")


if __name__ == "__main__":
    main()
