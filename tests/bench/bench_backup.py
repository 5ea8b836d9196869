"""Rate of a backup, compared with `cp` and `sync` of the same files on the same disk.

    python -m tests.bench.bench_backup                                # 2 GiB, three rounds
    python -m tests.bench.bench_backup --gib 8 --directory /data

Another process writes a store with records of 1 KiB. Each round then runs, one after the other, each with the store and
the copies evicted from memory:

    cp               cp of the log's files, and sync of the copies
    copy             a backup without a limit and without verification
    verified         a backup without a limit, read back and checked record by record
    unchanged        the same command again: checksums of the backup, and no new byte
    restore          a restore, with queues and index

The figures are medians of the rounds, in MB (10^6 bytes) per second of wall-clock time, and CPU seconds of this process
per GB. A file system that shares blocks copies nothing: the benchmark prints `shared` then.

Budget: a copy at 200 MB/s or more, or at the rate of `cp`.
"""

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from skylarkmq.broker.store.backup import BackupOptions, RestoreOptions, backup, restore
from skylarkmq.broker.store.backup.source import find_end, open_log
from skylarkmq.broker.store.files.config import DEFAULT_DELAY_LEVELS, StoreConfig, parse_delay_levels
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.fsck import Sizes
from tests.bench.filled_store import evict, write_store

GIB = 1 << 30
MB = 1e6
BUDGET_MB_S = 200.0
Figures = dict[str, list[tuple[float, float]]]


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2, help="bytes of log in GiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="directory of the temporary files")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="bench-backup-", dir=options.directory))
    try:
        write_store(StoreConfig(store_path_root_dir=base / "store"), int(options.gib * GIB), 8, kill=False)
        figures: Figures = {}
        shared = 0
        for _ in range(options.rounds):
            shared = run_round(base, figures)
        report(figures, shared)
    finally:
        shutil.rmtree(base)


def run_round(base: Path, figures: Figures) -> int:
    """Run each step once, and add (MB/s, CPU seconds per GB). Return the bytes that were shared."""
    store, sizes = base / "store", Sizes.of(base / "store")
    with open_log(store) as log:
        size = find_end(log, 0, Disk()).offset
    unlimited = BackupOptions(bytes_per_s=0, is_verified=False)
    levels = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    shared = 0

    def copy() -> None:
        nonlocal shared
        shared = backup(store, base / "copied", sizes, unlimited).shared_bytes

    def verified() -> None:
        backup(store, base / "backup", sizes, BackupOptions(bytes_per_s=0))

    steps: dict[str, Callable[[], object]] = {
        "cp": lambda: cp(store / "commitlog", base / "cp"),
        "copy": copy,
        "verified": verified,
        "unchanged": verified,
        "restore": lambda: restore(
            base / "backup", base / "restored", RestoreOptions(sizes=sizes, delay_levels=levels)
        ),
    }
    for name, step in steps.items():
        evict(base)
        wall, cpu = time.monotonic(), time.process_time()
        step()
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        figures.setdefault(name, []).append((size / MB / wall, cpu / size * 1e9))
    for name in ("cp", "copied", "backup", "restored"):
        shutil.rmtree(base / name)
    return shared


def cp(source: Path, target: Path) -> None:
    """Copy a directory as an operator would, and make the copy durable."""
    subprocess.run(["cp", "-r", source, target], check=True)
    subprocess.run(["sync", "-f", target], check=True)


def report(figures: Figures, shared: int) -> None:
    """Print the medians."""
    for name, rounds in figures.items():
        rate, cpu = median(rate for rate, _ in rounds), median(cpu for _, cpu in rounds)
        print(f"{name:10} {rate:7.0f} MB/s   {cpu:6.2f} s CPU per GB")
    copied = median(rate for rate, _ in figures["copy"])
    plain = median(rate for rate, _ in figures["cp"])
    print(f"copy: {copied / plain:.2f} of cp, budget {min(BUDGET_MB_S, plain):.0f} MB/s{'; shared' if shared else ''}")


if __name__ == "__main__":
    main()
