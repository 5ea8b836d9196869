"""Throughput of our Spark sources, compared with a source without work: the same Spark and columns, alternately.

    python -m tests.bench.bench_spark                      # 1 M messages of 1 KiB, local[2], 5 rounds
    python -m tests.bench.bench_spark --rows 200000 --rounds 2
    python -m tests.bench.bench_spark --only constant store

The constant source returns one prepared Arrow batch repeatedly: the time of Spark itself to move rows from Python
workers into its noop sink. A separate process writes the store in advance, so it is in memory. Each figure is rows per
second of a whole query; the result is the ratio to the constant source within a round. CPU is the total of Spark, its
Python workers and the broker: on a shared machine it is more reliable than the time.

The online source reads the same store from a broker on the same cores. Its streams run with AvailableNow, and their
time is that of their batches (Spark's addBatch), without the start of a query.

Budget: the store at least 0.55 of the constant source, the broker 0.35.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from skylarkmq import Admin
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.clients.spark import register
from tests.bench.filled_store import TOPIC, write_store
from tests.bench.peers.constant_source import ConstantSource
from tests.harness.daemon import running

BUDGETS: Final = {"store": 0.55, "broker": 0.35, "broker, stream": 0.35}
RECORD_BYTES: Final = 1234  # approximately; the store is slightly too large, and its actual row count is used


def session(directory: str) -> SparkSession:
    """Return a session on two cores, without the web UI."""
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in (settings | {"spark.local.dir": directory}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    spark.dataSource.register(ConstantSource)
    return spark


def timed(frame: DataFrame) -> float:
    """Return the seconds of a query that reads all rows and discards them."""
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


class Measured(NamedTuple):
    """The measurement, and its number of rows."""

    seconds: Callable[[], float]
    rows: int


def streamed(frame: DataFrame, directory: Path) -> float:
    """Return the seconds of the batches of a stream that reads the existing messages."""
    checkpoint = tempfile.mkdtemp(dir=directory)
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress.durationMs.get("addBatch", 0) for progress in query.recentProgress) / 1000


@contextmanager
def broker_of(root: Path) -> Iterator[str]:
    """Run a broker that serves the store; yield its name server."""
    settings = {"storePathRootDir": root, "mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 6_000_000}
    with running(directory=root.parent, settings=settings, must_be_consistent=False) as daemon:

        async def create() -> None:
            async with Admin(namesrv=daemon.namesrv) as admin:
                await admin.create_topic(TOPIC, 8)

        asyncio.run(create())
        yield daemon.namesrv


def cpu_s() -> float:
    """Return the user and system time of all descendant processes: Spark, its workers, the broker."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended in the meantime
            continue
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    return sum(spent for pid, spent in ticks.items() if is_below(pid, parents)) / os.sysconf("SC_CLK_TCK")


def is_below(pid: int, parents: dict[int, int]) -> bool:
    """Return whether a process is a descendant of this one."""
    while pid > 1:
        pid = parents.get(pid, 0)
        if pid == os.getpid():
            return True
    return False


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="some of the rows")
    parser.add_argument("--directory", type=Path, help="directory of the temporary store")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=options.directory) as directory:
        root = Path(directory) / "store"
        write_store(StoreConfig(store_path_root_dir=root), options.rows * RECORD_BYTES, 8, kill=False)
        spark = session(directory)
        asks = not options.only or any(name.startswith("broker") for name in options.only)
        with broker_of(root) if asks else nullcontext("") as namesrv:
            run(frames(spark, root, namesrv, options), options.rounds)
        spark.stop()


def frames(spark: SparkSession, root: Path, namesrv: str, options: argparse.Namespace) -> dict[str, Measured]:
    """Return the measurements by name, with their row counts."""

    def constant(**more: str) -> DataFrame:
        return spark.read.format("constant").options(rows=str(options.rows), **more).load()

    def store(**more: str) -> DataFrame:
        return spark.read.format("rocketmq-store").options(**more).load(str(root))

    def broker(**more: str) -> DataFrame:
        return spark.read.format("rocketmq").options(nameServer=namesrv, subscribe=TOPIC, **more).load()

    def stream(**more: str) -> DataFrame:
        reader = spark.readStream.format("rocketmq").options(nameServer=namesrv, subscribe=TOPIC, **more)
        return reader.option("startingOffsets", "earliest").load()

    made: dict[str, Callable[[], DataFrame]] = {
        "constant": constant,
        "store": store,
        "store, by queue": lambda: store(partitionBy="queue"),
        "store, by topic": lambda: store(subscribe=TOPIC),
        "store, checkCrc": lambda: store(checkCrc="true"),
        "constant, properties": lambda: constant(includeProperties="true"),
        "store, properties": lambda: store(includeProperties="true"),
        "broker": broker,
        "broker, stream": stream,
        "broker, properties": lambda: broker(includeProperties="true"),
    }
    chosen = {name: make() for name, make in made.items() if not options.only or name in options.only}
    return {name: measure(frame, broker, root.parent) for name, frame in chosen.items()}


def measure(frame: DataFrame, broker: Callable[[], DataFrame], directory: Path) -> Measured:
    """Return a measurement; counting its rows also warms up the workers."""
    if frame.isStreaming:
        return Measured(lambda: streamed(frame, directory), broker().count())
    return Measured(lambda: timed(frame), frame.count())


def run(measured: dict[str, Measured], rounds: int) -> None:
    """Run every measurement once per round; then print the table."""
    rates: dict[str, list[float]] = {name: [] for name in measured}
    costs: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, one in measured.items():
            before = cpu_s()
            rates[name].append(one.rows / one.seconds())
            costs[name].append((cpu_s() - before) / one.rows * 1e6)
    print("| source | rows/s (min / median / max) | relative to constant | CPU per row, µs | relative to constant |")
    print("|---|---|---|---|---|")
    for name, taken in rates.items():
        base = "constant, properties" if "properties" in name else "constant"
        budget = f" (budget {BUDGETS[name]})" if name in BUDGETS else ""
        shares = [one / other for one, other in zip(taken, rates[base], strict=True)]
        spent = [one / other for one, other in zip(costs[name], costs[base], strict=True)]
        cells = (
            spread(taken, ",.0f"),
            spread(shares, ".2f") + budget,
            spread(costs[name], ".2f"),
            spread(spent, ".2f"),
        )
        print(f"| {name} | {' | '.join(cells)} |")


def spread(values: list[float], form: str) -> str:
    """Return minimum, median and maximum."""
    return " / ".join(format(value, form) for value in (min(values), median(values), max(values)))


if __name__ == "__main__":
    main()
