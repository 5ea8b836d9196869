"""Cost of our Spark sink per row of 1 KiB, compared with a sink without work: the same Spark, alternately.

    python -m tests.bench.bench_spark_sink                      # 200,000 rows, local[2], 3 rounds
    python -m tests.bench.bench_spark_sink --only noop sink

The rows are one prepared Arrow batch, repeated (`peers/constant_source.py`). The broker shares the cores and has the
default flush mode. CPU is the total of Spark, its Python workers and the broker; the broker's share is listed
separately. The cost of the sink is the difference to `noop`, round by round.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameWriter

from tests.bench.bench_spark import cpu_s, session, spread
from tests.harness.daemon import Daemon, running

BODY: Final = ("body",)
COLUMNS: Final = ("body", "tags", "keys")
GROUPED: Final = ("body", "concat('g', queueOffset % 1000) AS messageGroup")
WRITES: Final[dict[str, tuple[tuple[str, ...], dict[str, str]]]] = {
    "sink": (BODY, {}),
    "sink, tags and keys": (COLUMNS, {}),
    "sink, without marks": (BODY, {"markRows": "false"}),
    "sink, 1,000 message groups": (GROUPED, {}),
}


class Cost(NamedTuple):
    """The cost of one write: its seconds, and the CPU seconds in total and of the broker."""

    seconds: float
    cpu: float
    broker: float


def measured(save: Callable[[], None], broker: Daemon) -> Cost:
    """Measure a write."""
    begin, all_before, broker_before = perf_counter(), cpu_s(), broker_cpu_s(broker)
    save()
    return Cost(perf_counter() - begin, cpu_s() - all_before, broker_cpu_s(broker) - broker_before)


def broker_cpu_s(broker: Daemon) -> float:
    """Return the user and system time of the broker so far."""
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def writes(constant: DataFrame, broker: Daemon, only: list[str] | None) -> dict[str, Callable[[], None]]:
    """Return the measured writes by name."""

    def to_sink(columns: tuple[str, ...], options: dict[str, str]) -> DataFrameWriter:
        writer = constant.selectExpr(*columns).write.format("rocketmq").mode("append")
        return writer.options(nameServer=broker.namesrv, topic="Bench", **options)

    made: dict[str, Callable[[], None]] = {
        "noop": constant.select("body").write.format("noop").mode("overwrite").save,
        **{name: to_sink(*given).save for name, given in WRITES.items()},
    }
    return {name: save for name, save in made.items() if name == "noop" or not only or name in only}


@contextmanager
def empty_broker(directory: Path) -> Iterator[Daemon]:
    """Run a broker with segments of the default size."""
    with running(
        directory=directory, settings={"mappedFileSizeCommitLog": 1 << 30}, must_be_consistent=False
    ) as daemon:
        yield daemon


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="some of the rows")
    parser.add_argument("--directory", type=Path, help="directory of the temporary store")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-sink-", dir=options.directory) as directory:
        spark = session(directory)
        with empty_broker(Path(directory)) as broker:
            constant = spark.read.format("constant").options(rows=str(options.rows)).load()
            chosen = writes(constant, broker, options.only)
            for save in chosen.values():
                save()
            costs = [{name: measured(save, broker) for name, save in chosen.items()} for _ in range(options.rounds)]
        spark.stop()
    print_table(costs, options.rows)


def print_table(costs: list[dict[str, Cost]], rows: int) -> None:
    """Print the table."""
    print("| sink | rows/s (min / median / max) | CPU per row, µs | CPU minus noop | of which broker |")
    print("|---|---|---|---|---|")
    for name in costs[0]:
        rates = [rows / taken[name].seconds for taken in costs]
        spent = [taken[name].cpu / rows * 1e6 for taken in costs]
        beyond = median((taken[name].cpu - taken["noop"].cpu) / rows * 1e6 for taken in costs)
        broker = median(taken[name].broker / rows * 1e6 for taken in costs)
        print(f"| {name} | {spread(rates, ',.0f')} | {spread(spent, '.2f')} | {beyond:.1f} | {broker:.1f} |")


if __name__ == "__main__":
    main()
