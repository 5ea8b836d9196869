"""Throughput of `scan_store` on one core, compared with the offline Spark source on all cores, alternately in one run.

    python -m tests.bench.bench_arrow                      # 1 M messages of 1 KiB, 5 rounds
    python -m tests.bench.bench_arrow --rows 200000 --rounds 2

A separate process writes the store in advance, so it is in memory. Spark runs on two cores (local[2]) and discards the
rows. The scan runs in this process, which is bound to one core for that time, and drops each batch. Figures are rows
per second; the result is the ratio to Spark's rate within a round.

Budget: the default columns at least twice the rate of Spark.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from skylarkmq.arrow import RECORD_COLUMNS, scan_store
from skylarkmq.broker.store.config import StoreConfig
from tests.bench.bench_spark import RECORD_BYTES, session, spread, timed
from tests.bench.filled_store import write_store

BUDGET: Final = 2.0
SCANS: Final[dict[str, dict[str, Any]]] = {
    "default columns": {},
    "all fields, as stored": {"columns": RECORD_COLUMNS, "decode": False},
    "without body": {"columns": ["topic", "queueId", "queueOffset", "storeTimestamp", "tags", "keys"]},
    "body and properties": {"columns": ["body", "properties"]},
    "keys only": {"columns": ["keys"]},
    "filter, 1 of 8 rows": {"filter": pc.field("queueId") == 3},
}


@contextmanager
def one_core() -> Iterator[None]:
    """Bind this process to one of its cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def scanned(root: Path, arguments: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds and the seconds of CPU of one scan."""
    with one_core():
        begin, cpu = time.perf_counter(), time.process_time()
        with scan_store(root, **arguments) as reader:
            for _ in reader:
                pass
        return time.perf_counter() - begin, time.process_time() - cpu


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="directory of the temporary store")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-arrow-", dir=options.directory) as directory:
        root = Path(directory) / "store"
        write_store(StoreConfig(store_path_root_dir=root), options.rows * RECORD_BYTES, 8, kill=False)
        spark = session(directory)
        frame = spark.read.format("rocketmq-store").load(str(root))
        run(frame.count(), lambda: timed(frame), root, options.rounds)
        spark.stop()


def run(rows: int, spark_s: Callable[[], float], root: Path, rounds: int) -> None:
    """Measure everything once per round, then print the table."""
    spark: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in SCANS}
    costs: dict[str, list[float]] = {name: [] for name in SCANS}
    for _ in range(rounds):
        spark.append(rows / spark_s())
        for name, arguments in SCANS.items():
            taken, cpu = scanned(root, arguments)
            rates[name].append(rows / taken)
            costs[name].append(cpu / rows * 1e6)
    print(f"{rows} rows; minimum / median / maximum of {rounds} rounds")
    print("| reader | rows/s | relative to Spark | CPU per row, µs |")
    print("|---|---|---|---|")
    print(f"| Spark, rocketmq-store, 2 cores | {spread(spark, ',.0f')} | 1 | |")
    for name, found in rates.items():
        shares = [one / other for one, other in zip(found, spark, strict=True)]
        budget = f" (budget {BUDGET})" if name == "default columns" else ""
        cells = f"{spread(found, ',.0f')} | {spread(shares, '.2f')}{budget} | {spread(costs[name], '.2f')}"
        print(f"| scan_store, 1 core, {name} | {cells} |")


if __name__ == "__main__":
    main()
