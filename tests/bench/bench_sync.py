"""SYNC_FLUSH: the rate of acknowledgments, by what was written to a segment in advance.

    reserved     nothing
    stretches    zeros are written ahead of the log, 256 KiB at a time (broker/store/files/zero_fill.py)
    beforehand   zeros for the whole segment, before the round

    python -m tests.bench.bench_sync [--in-flight 64] [--body 1024] [--seconds 3] [--segment-mib 256] [--rounds 3] ...

The producers, each with one message in flight, are simulated in this process: acknowledged messages are put again in
the same event-loop iteration, so that commits and syncs overlap as in a broker, without its sockets. Prints, for each
kind of segment, the best and the median of the rounds: acknowledged k/s, µs from put to acknowledgment (p50, p99),
messages per sync, CPU µs per message. Rounds of all kinds alternate; the segments are created before a round begins.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from skylarkmq.broker.store.files.config import FlushDiskType, StoreConfig
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from tests.bench.bench_store import make_appends


class Round:
    """One store under one load."""

    def __init__(self, store: MessageStore, options: argparse.Namespace) -> None:
        self.store = store
        self.body = memoryview(os.urandom(options.body))
        self.latencies: list[int] = []
        self.end_ns = time.perf_counter_ns() + int(options.seconds * 1e9)
        self.done = asyncio.get_running_loop().create_future()
        self.senders = options.in_flight

    def put(self, count: int) -> None:
        """Put `count` messages with one commit."""
        appends = make_appends(count, self.body, 8, 1_700_000_000_000)
        for append in appends:
            self.store.put(append)
        self.store.commit()
        begin = time.perf_counter_ns()
        self.store.flush.when_settled(lambda: self.settled(count, begin, appends[-1].status))

    def settled(self, count: int, begin: int, status: PutStatus) -> None:
        """Put the acknowledged messages' successors."""
        assert status is PutStatus.PUT_OK, status
        now = time.perf_counter_ns()
        self.latencies += [now - begin] * count
        if now < self.end_ns:
            asyncio.get_running_loop().call_soon(self.put, count)
            return
        self.senders -= count
        if not self.senders:
            self.done.set_result(None)


async def run_round(directory: Path, *, kind: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the figures of one round."""
    config = StoreConfig(
        store_path_root_dir=directory,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        message_index_enable=False,
        mapped_file_size_commit_log=options.segment_mib << 20,
    )
    store = MessageStore(config, lambda: time.time_ns() // 1_000_000)
    if kind != "beforehand":
        store._parts._allocator.piece_bytes = 0
    store._log._zeros._has_stretches = kind == "stretches"
    store.load()
    store.start(asyncio.get_running_loop())
    for future in [request.made for request in store._parts._allocator._requests.values()]:
        await asyncio.wrap_future(future)
    one = Round(store, options)
    cpu, begin = time.process_time_ns(), time.perf_counter()
    for _ in range(options.in_flight):
        one.put(1)
    await one.done
    spent, took = time.process_time_ns() - cpu, time.perf_counter() - begin
    syncs = store.statistics().flusher.syncs
    store.close()
    count = len(one.latencies)
    ordered = sorted(one.latencies)
    return {
        "k/s": count / took / 1000,
        "p50 us": ordered[count // 2] / 1000,
        "p99 us": ordered[count * 99 // 100] / 1000,
        "msg/sync": count / syncs,
        "cpu us": spent / count / 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--body", type=int, default=1024, help="bytes per body")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--segment-mib", type=int, default=256)
    parser.add_argument("--directory", type=Path, default=None, help="directory of the store (default: TMPDIR)")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-sync-", dir=options.directory))
    results: dict[str, list[dict[str, float]]] = {"reserved": [], "stretches": [], "beforehand": []}
    try:
        for number in range(options.rounds):
            for kind, rounds in results.items():
                directory = root / f"{number}-{kind}"
                rounds.append(uvloop.run(run_round(directory, kind=kind, options=options)))
                shutil.rmtree(directory)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{options.in_flight} in flight, body {options.body}, {options.rounds} rounds of {options.seconds:g} s each")
    for kind, rounds in results.items():
        print(kind)
        for name in rounds[0]:
            values = [one[name] for one in rounds]
            best = max(values) if name in {"k/s", "msg/sync"} else min(values)
            print(f"  {name:8} best {best:9.1f}  median {statistics.median(values):9.1f}")


if __name__ == "__main__":
    main()
