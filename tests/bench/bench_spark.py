"""What our Spark sources read, beside a source that has nothing to do: the same Spark, the same columns, turn by turn.

    python -m tests.bench.bench_spark                      # 1 M messages of 1 KiB, local[2], 5 rounds
    python -m tests.bench.bench_spark --rows 200000 --rounds 2
    python -m tests.bench.bench_spark --only constant store

The constant source gives one prepared Arrow batch again and again: what Spark takes to move rows from Python workers
into its noop sink. The store is written before by a process of its own, and is in memory. Each figure is rows per
second of a whole query; what counts is the ratio to the constant source within a round. The CPU is that of Spark, its
Python workers and the broker, all together: on a machine that others use, too, it says more than the time.

The online source reads the same store from a broker on the same cores. Its streams run with AvailableNow, and their
time is that of their batches (Spark's addBatch), without the seconds in which a query starts.

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
from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.clients.spark import register
from tests.bench.filled_store import TOPIC, write_store
from tests.bench.peers.constant_source import ConstantSource
from tests.harness.daemon import running

BUDGETS: Final = {"store": 0.55, "broker": 0.35, "broker, stream": 0.35}
RECORD_BYTES: Final = 1234  # about; the store is made a little too large, and has as many rows as it has


def session(directory: str) -> SparkSession:
    """Spark on two cores, without its pages."""
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
    """Seconds of a query that reads all and keeps nothing."""
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


class Measured(NamedTuple):
    """What is timed, and how many rows it has."""

    seconds: Callable[[], float]
    rows: int


def streamed(frame: DataFrame, directory: Path) -> float:
    """Seconds of the batches of a stream that reads what there is."""
    checkpoint = tempfile.mkdtemp(dir=directory)
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress.durationMs.get("addBatch", 0) for progress in query.recentProgress) / 1000


@contextmanager
def broker_of(root: Path) -> Iterator[str]:
    """Name servers of a broker that serves the store."""
    settings = {"storePathRootDir": root, "mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 6_000_000}
    with running(directory=root.parent, settings=settings, must_be_consistent=False) as daemon:

        async def create() -> None:
            async with Admin(namesrv=daemon.namesrv) as admin:
                await admin.create_topic(TOPIC, 8)

        asyncio.run(create())
        yield daemon.namesrv


def cpu_s() -> float:
    """User and system time so far of all processes below this one: Spark, its workers, the broker."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    return sum(spent for pid, spent in ticks.items() if is_below(pid, parents)) / os.sysconf("SC_CLK_TCK")


def is_below(pid: int, parents: dict[int, int]) -> bool:
    """Whether a process was started by this one, or by one that was."""
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
    parser.add_argument("--directory", type=Path, help="where the temporary store is made")
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
    """What is measured, each with the number of its rows."""

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
    """How a frame is timed; its rows are counted, so the workers are warm."""
    if frame.isStreaming:
        return Measured(lambda: streamed(frame, directory), broker().count())
    return Measured(lambda: timed(frame), frame.count())


def run(measured: dict[str, Measured], rounds: int) -> None:
    """Everything once in each round; then the table."""
    rates: dict[str, list[float]] = {name: [] for name in measured}
    costs: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, one in measured.items():
            before = cpu_s()
            rates[name].append(one.rows / one.seconds())
            costs[name].append((cpu_s() - before) / one.rows * 1e6)
    print("| source | rows/s (min / median / max) | of the constant source | CPU a row, µs | of the constant source |")
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
    """Least, median and most."""
    return " / ".join(format(value, form) for value in (min(values), median(values), max(values)))


if __name__ == "__main__":
    main()
