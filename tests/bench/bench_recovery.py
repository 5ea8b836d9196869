"""Cost of opening a store: after kill -9, when its log is scanned, and after a clean stop, when it is not.

    python -m tests.bench.bench_recovery                          # 1 GiB after kill -9, then 10 GiB after a clean stop
    python -m tests.bench.bench_recovery --only crash --gib 0.25
    python -m tests.bench.bench_recovery --only clean --gib 1 --cold --directory /data

Another process writes records of 1 KiB with keys and tags into 8 queues, and is killed or stops. The killed store has
no checkpoint, so its whole log is scanned, with its pages still in memory; queues and index (`messageIndexSafe`) are
brought up to date. CPU is user + system time of this process with its threads. `--cold` evicts the clean store from
memory first.

Budget: 15 s of CPU for 1 GiB after kill -9; less than 1 s for the clean restart, whatever the size of the log.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.message_store import MessageStore
from tests.bench.filled_store import evict, now_ms, write_store

GIB = 1 << 30
CRASH_BUDGET_CPU_S = 15.0
CLEAN_BUDGET_S = 1.0


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("crash", "clean"))
    parser.add_argument("--gib", type=float, help="bytes of log in GiB (default: 1 after kill -9, 10 after a stop)")
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--cold", action="store_true", help="evict the stopped store from memory before it is opened")
    parser.add_argument("--directory", type=Path, help="directory of the temporary store")
    options = parser.parse_args()
    if options.only != "clean":
        crash(options, options.gib or 1)
    if options.only != "crash":
        clean(options, options.gib or 10)


def crash(options: argparse.Namespace, gib: float) -> None:
    """Open a store whose writer was killed."""
    with tempfile.TemporaryDirectory(prefix="bench-recovery-", dir=options.directory) as directory:
        config = StoreConfig(store_path_root_dir=Path(directory), message_index_safe=True)
        write_store(config, int(gib * GIB), options.queues, kill=True)
        (Path(directory) / "checkpoint").unlink(missing_ok=True)
        wall, cpu, records = opened(config)
    budget = CRASH_BUDGET_CPU_S * gib
    print(f"after kill -9, {gib:g} GiB: {records} records, {cpu:.2f} s CPU (budget {budget:g}), {wall:.2f} s")


def clean(options: argparse.Namespace, gib: float) -> None:
    """Open a store whose writer stopped."""
    directory = Path(tempfile.mkdtemp(prefix="bench-recovery-", dir=options.directory))
    try:
        config = StoreConfig(store_path_root_dir=directory)
        write_store(config, int(gib * GIB), options.queues, kill=False)
        if options.cold:
            evict(directory)
        wall, cpu, records = opened(config)
    finally:
        shutil.rmtree(directory)
    print(
        f"after a stop, {gib:g} GiB: {records} records read, {wall:.3f} s (budget {CLEAN_BUDGET_S:g}), {cpu:.3f} s CPU"
    )


def opened(config: StoreConfig) -> tuple[float, float, int]:
    """Return wall-clock and CPU seconds of opening a store, and the number of records read."""
    store = MessageStore(config, now_ms)
    wall, cpu = time.monotonic(), time.process_time()
    recovered = store.load()
    store.start()
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    store.close()
    return wall, cpu, recovered.records


if __name__ == "__main__":
    main()
