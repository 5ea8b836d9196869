"""Rate and memory of the archive job: MB of log per second on one core, for messages of several sizes.

    python -m tests.bench.bench_archive                          # 1 GiB of log for each row
    python -m tests.bench.bench_archive --megabytes 512 --only 1024

A separate process writes the store in advance, so it is in memory. The job is the command itself, without Spark,
restricted to one core. Bodies are `equal` (one random body, as in bench_spark), `random`, or `hex` (random digits,
which zstd halves). The time of zstd depends on them, and counts twice: each file is read back. The rates count the
bytes of the log, from the plan to the mark: per second, and per second of CPU time of the whole process, with its
start. The memory is the peak of the process, of which Python, PyArrow and PySpark take 100 MB.

Budget: 300 MB/s for 1 KiB and equal bodies, and 512 MB of memory for every row.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.message_store import MessageStore
from tests.bench.filled_store import BATCH, STEP_EVERY, append, now_ms

ROWS: Final = ((1024, "equal"), (1024, "random"), (1024, "hex"), (1, "equal"), (100, "hex"), (1 << 20, "hex"))
QUEUES: Final = 8
POOL_BYTES: Final = 32 << 20
RATE_MB_S: Final = 300
MEMORY_MB: Final = 512


def write(root: Path, size: int, body_size: int, kind: str) -> None:
    """Fill a store with `size` bytes of log, in another process."""
    process = multiprocessing.get_context("spawn").Process(target=_fill, args=(root, size, body_size, kind))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"the writer ended with {process.exitcode}")


def _fill(root: Path, size: int, body_size: int, kind: str) -> None:
    pool = memoryview(os.urandom(POOL_BYTES).hex().encode() if kind == "hex" else os.urandom(POOL_BYTES))
    store = MessageStore(StoreConfig(store_path_root_dir=root), now_ms)
    store.load()
    store.start()
    number = 0
    while store.max_physical_offset < size:
        for _ in range(max(min(BATCH, (1 << 20) // body_size), 1)):
            at = 0 if kind == "equal" else number * 4099 % (POOL_BYTES - body_size)
            store.put(append(number, QUEUES, pool[at : at + body_size]))
            number += 1
        store.commit()
        if number // BATCH % STEP_EVERY == 0:
            store.step(now_ms())
    store.close()
    (root / "config").mkdir(exist_ok=True)


def archive(root: Path, target: Path) -> tuple[dict[str, Any], float, float]:
    """Run the command; return its result, its CPU seconds and its peak memory in MB."""
    command = [sys.executable, "-m", "skylarkmq.clients.spark.archive.command", str(root), str(target)]
    options = ["-b", "bench", "--older-than", "0s", "--include-last", "--json"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    return json.loads(out), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024, help="bytes of log for each row")
    parser.add_argument("--only", type=int, help="rows with bodies of this size")
    parser.add_argument("--directory", type=Path, help="directory of the temporary store")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the commands inherit it
    print(f"{'body':>14} {'messages':>9} {'MB/s':>5} {'MB/CPU s':>9} {'of log':>7} {'peak MB':>8}")
    is_met = True
    for body_size, kind in ROWS:
        if options.only not in {None, body_size}:
            continue
        with tempfile.TemporaryDirectory(prefix="bench-archive-", dir=options.directory) as directory:
            root = Path(directory) / "store"
            write(root, options.megabytes << 20, body_size, kind)
            found, cpu_s, peak_mb = archive(root, Path(directory) / "archive")
        log_mb, share = found["logBytes"] / 1e6, found["fileBytes"] / found["logBytes"]
        rate = log_mb / found["seconds"]
        name = f"{body_size} {kind}"
        print(f"{name:>14} {found['messages']:>9} {rate:>5.0f} {log_mb / cpu_s:>9.0f} {share:>7.0%} {peak_mb:>8.0f}")
        is_met = is_met and peak_mb <= MEMORY_MB and ((body_size, kind) != ROWS[0] or rate >= RATE_MB_S)
    print("budget met" if is_met else f"budget missed: {RATE_MB_S} MB/s for {ROWS[0]}, {MEMORY_MB} MB of memory")


if __name__ == "__main__":
    main()
