"""Throughput of `scan_store` and `scan_topic` on one core, compared with the offline Spark source, alternately.

    python -m tests.bench.bench_arrow                      # 1 M messages of 1 KiB, 5 rounds
    python -m tests.bench.bench_arrow --rows 200000 --rounds 2

A separate process writes the store in advance, so it is in memory. Spark runs on two cores (local[2]) and discards the
rows. The scan runs in this process, which is bound to one core for that time, and drops each batch. Figures are rows
per second; the result is the ratio to Spark's rate within a round. CPU is that of this process, without the broker's.

The store is read twice. First no broker runs, and the store was closed. Then a broker runs on it, and `scan_topic`
reads the same messages from it, on the other cores. Meanwhile `scan_store` and Spark verify the checksums of the last
segments before they read, because a store in use looks like that of a broker that crashed.

Budget: the default columns at least twice the rate of Spark.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from skylarkmq.arrow import RECORD_COLUMNS, scan_store, scan_topic
from skylarkmq.broker.store.files.config import StoreConfig
from tests.bench.bench_spark import RECORD_BYTES, broker_of, session, spread, timed
from tests.bench.filled_store import TOPIC, write_store

BUDGET: Final = 2.0
WITHOUT_BODY: Final = ("topic", "queueId", "queueOffset", "storeTimestamp", "tags", "keys")
DEFAULT: Final = "default columns"
STORE_SCANS: Final[dict[str, dict[str, Any]]] = {
    DEFAULT: {},
    "all fields, as stored": {"columns": RECORD_COLUMNS, "decode": False},
    "without body": {"columns": WITHOUT_BODY},
    "body and properties": {"columns": ["body", "properties"]},
    "keys only": {"columns": ["keys"]},
    "filter, 1 of 8 rows": {"filter": pc.field("queueId") == 3},
}
TOPIC_SCANS: Final[dict[str, dict[str, Any]]] = {DEFAULT: {}, "without body": {"columns": WITHOUT_BODY}}

Scan = Callable[[], pa.RecordBatchReader]


@contextmanager
def one_core() -> Iterator[None]:
    """Bind this process to one of its cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def scanned(scan: Scan) -> tuple[float, float]:
    """Return the seconds and the seconds of CPU of one scan."""
    with one_core():
        begin, cpu = time.perf_counter(), time.process_time()
        with scan() as reader:
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
        rows = frame.count()
        print(f"{rows} rows; minimum / median / maximum of {options.rounds} rounds")
        run(rows, lambda: timed(frame), store_scans(root, STORE_SCANS), options.rounds)
        with broker_of(root) as namesrv:
            print("while a broker runs on the store")
            scans = store_scans(root, {DEFAULT: {}}) | topic_scans(namesrv)
            run(rows, lambda: timed(frame), scans, options.rounds, budget=None)
        spark.stop()


def store_scans(root: Path, arguments: Mapping[str, Mapping[str, Any]]) -> dict[str, Scan]:
    """Return the scans of the store by name."""
    return {f"scan_store, {name}": partial(scan_store, root, **given) for name, given in arguments.items()}


def topic_scans(namesrv: str) -> dict[str, Scan]:
    """Return the scans of the topic by name."""
    return {f"scan_topic, {name}": partial(scan_topic, namesrv, TOPIC, **given) for name, given in TOPIC_SCANS.items()}


def run(
    rows: int,
    spark_s: Callable[[], float],
    scans: Mapping[str, Scan],
    rounds: int,
    budget: float | None = BUDGET,
) -> None:
    """Measure everything once per round, then print the table."""
    spark: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in scans}
    costs: dict[str, list[float]] = {name: [] for name in scans}
    for _ in range(rounds):
        spark.append(rows / spark_s())
        for name, scan in scans.items():
            taken, cpu = scanned(scan)
            rates[name].append(rows / taken)
            costs[name].append(cpu / rows * 1e6)
    print("| reader | rows/s | relative to Spark | CPU per row, µs |")
    print("|---|---|---|---|")
    print(f"| Spark, rocketmq-store, 2 cores | {spread(spark, ',.0f')} | 1 | |")
    for name, found in rates.items():
        shares = [one / other for one, other in zip(found, spark, strict=True)]
        limit = f" (budget {budget})" if budget and name == f"scan_store, {DEFAULT}" else ""
        cells = f"{spread(found, ',.0f')} | {spread(shares, '.2f')}{limit} | {spread(costs[name], '.2f')}"
        print(f"| {name}, 1 core | {cells} |")


if __name__ == "__main__":
    main()
