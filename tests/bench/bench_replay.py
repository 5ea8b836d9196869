"""Rate of a replay: messages of 1 KiB from an archive into topics of a broker on the same machine.

    python -m tests.bench.bench_replay                      # 1,000,000 messages, 8 queues, 3 rounds
    python -m tests.bench.bench_replay --messages 200000 --rounds 1 --rate 20000

The messages have keys, tags and unique ids, as in `filled_store.py`. Each round is a replay of its own, into another
topic of one broker with the default flush mode, which shares the cores. The rate covers the whole run: opening the
archive, the sends, and the map of offsets. CPU is that of the replay and of the broker.
"""

import argparse
import asyncio
import multiprocessing
import os
import resource
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from skylarkmq import Admin
from skylarkmq.arrow import scan_store
from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA, SORT_COLUMNS
from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.spark.replay.replay import Replay, run
from skylarkmq.clients.spark.replay.selection import Selection
from skylarkmq.clients.spark.replay.sources import Archive
from skylarkmq.clients.spark.replay.targets import Targets
from tests.bench.bench_spark_sink import broker_cpu_s, empty_broker
from tests.bench.filled_store import TOPIC, write_store
from tests.harness.daemon import Daemon
from tests.harness.stores import config_of

QUEUES: Final = 8
RECORD_BYTES: Final = 1280
FILE_ROWS: Final = 200_000


class Round(NamedTuple):
    """One replay: its messages a second, and the CPU per message in µs."""

    rate: float
    replay_us: float
    broker_us: float


def make_archive(directory: Path, messages: int) -> None:
    """Write at least `messages` messages to a store, and those to Parquet files as `mqspark-archive` does."""
    store, archive = directory / "store", directory / "archive"
    write_store(config_of(store, mapped_file_size_commit_log=1 << 30), messages * RECORD_BYTES, QUEUES, kill=False)
    columns = [name for name in ARCHIVE_SCHEMA.names if name != "readable"]
    (archive / "messages" / "bench").mkdir(parents=True)
    left, waiting, count = messages, [], 0
    with scan_store(store, topics=TOPIC, columns=columns, decode=False, broker_name="bench") as reader:
        for batch in reader:
            batch = batch.slice(0, left)
            left -= batch.num_rows
            waiting.append(batch)
            if sum(part.num_rows for part in waiting) >= FILE_ROWS or not left:
                table = pa.Table.from_batches(waiting).sort_by([(name, "ascending") for name in SORT_COLUMNS])
                pq.write_table(table, archive / "messages" / "bench" / f"{count:020}.parquet", compression="zstd",
                               row_group_size=16_384)  # fmt: skip
                waiting, count = [], count + 1
            if not left:
                break


def replay_once(directory: Path, archive: Path, broker: Daemon, number: int, rate: float | None) -> Round:
    """Replay the archive into a new topic."""
    topic = f"Again{number}"

    async def create() -> None:
        async with Admin(namesrv=broker.namesrv) as admin:
            await admin.create_topic(topic, QUEUES)

    asyncio.run(create())
    replay = Replay(
        source=Archive(str(archive)),
        selection=Selection(topics=(TOPIC,)),
        targets=Targets(to_topic=topic),
        cluster=ClusterOptions(name_server=broker.namesrv),
        directory=str(directory / f"replay-{number}"),
        rate=rate,
    )
    began, own, brokers = perf_counter(), cpu_s(), broker_cpu_s(broker)
    summary = run(replay)
    seconds = perf_counter() - began
    per_message = 1e6 / summary.sent
    return Round(summary.sent / seconds, (cpu_s() - own) * per_message, (broker_cpu_s(broker) - brokers) * per_message)


def cpu_s() -> float:
    """Return the user and system time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, help="limit of the rate")
    parser.add_argument("--directory", type=Path, help="directory of the temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-replay-", dir=options.directory) as name:
        directory = Path(name)
        making = multiprocessing.get_context("spawn").Process(target=make_archive, args=(directory, options.messages))
        making.start()
        making.join()
        archive = directory / "archive"
        (directory / "broker").mkdir()
        with empty_broker(directory / "broker") as broker:
            rounds = [replay_once(directory, archive, broker, number, options.rate) for number in range(options.rounds)]
    most_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print("| messages/s (min / median / max) | CPU per message, µs: replay | broker | memory, MiB | cores |")
    print("|---|---|---|---|---|")
    rates = [one.rate for one in rounds]
    spread = f"{min(rates):,.0f} / {median(rates):,.0f} / {max(rates):,.0f}"
    replay_us, broker_us = (median(column) for column in ([r.replay_us for r in rounds], [r.broker_us for r in rounds]))
    print(f"| {spread} | {replay_us:.1f} | {broker_us:.1f} | {most_mib} | {os.cpu_count()} |")


if __name__ == "__main__":
    main()
