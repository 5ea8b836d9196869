"""CPU of the store alone: put + commit + dispatch of messages that are already in memory.

    python -m tests.bench.bench_store [--batch 128] [--body 1024] [--messages 200000] [--sync] [--no-index] ...

Prints, per message, user + system CPU of this process (helper threads included) as the minimum and the median over
the rounds, and where it goes: put, commit (join, pwrite, dispatch, statuses), and the pwrite alone measured on the
same bytes. Making the Append objects is timed apart: the processor does that. On a shared machine trust the minimum.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from broker.store.append import Append
from broker.store.config import FlushDiskType, StoreConfig
from broker.store.message_store import MessageStore
from protocol.record import Buffer

BORN_HOST = bytes((127, 0, 0, 1)) + (40000).to_bytes(4, "big")
PROPERTIES = b"KEYS\x01%b\x02UNIQ_KEY\x01%b\x02TAGS\x01TagA\x02CLUSTER\x01Default\x02"


def make_appends(count: int, body: Buffer, queues: int, now_ms: int, first: int = 0) -> list[Append]:
    """Messages `first` and on, each with keys of its own."""
    appends = []
    for number in range(first, first + count):
        keys = [b"7F00000105030000486C%012X" % number, b"key-%d" % number]
        append = Append(
            "BenchmarkTopic", number % queues, body, PROPERTIES % (keys[1], keys[0]), 2598919, 0, 0, now_ms, BORN_HOST
        )
        append.keys = keys
        appends.append(append)
    return appends


def run_round(store: MessageStore, options: argparse.Namespace) -> dict[str, float]:
    """CPU ns per message of each stage."""
    body = memoryview(os.urandom(options.body))
    batches = options.messages // options.batch
    cpu = time.process_time_ns
    made = put = committed = 0
    for turn in range(batches):
        begin = cpu()
        appends = make_appends(options.batch, body[:], options.queues, 1700000000000, turn * options.batch)
        after_make = cpu()
        store_put = store.put
        for append in appends:
            store_put(append)
        after_put = cpu()
        store.commit()
        after_commit = cpu()
        made += after_make - begin
        put += after_put - after_make
        committed += after_commit - after_put
    count = batches * options.batch
    return {"make": made / count, "put": put / count, "commit": committed / count, "total": (put + committed) / count}


def pwrite_floor(directory: Path, options: argparse.Namespace) -> float:
    """CPU ns per message of the bare pwrite of one batch's bytes into a fallocated file."""
    chunk = os.urandom((options.body + 91 + 14 + len(PROPERTIES)) * options.batch)
    batches: int = options.messages // options.batch
    path = directory / "floor"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, len(chunk) * batches)
    begin = time.process_time_ns()
    for i in range(batches):
        os.pwrite(fd, chunk, i * len(chunk))
    spent = time.process_time_ns() - begin
    os.close(fd)
    path.unlink()
    count: int = batches * options.batch
    return spent / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128, help="messages per commit")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--messages", type=int, default=200_000, help="messages per round")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--queues", type=int, default=8, help="queues that the messages go to in turn")
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH (dispatch then happens as flushes arrive)")
    parser.add_argument("--no-index", action="store_true", help="queues only")
    parser.add_argument("--directory", type=Path, default=None, help="where to make the store (default: TMPDIR)")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-store-", dir=options.directory))
    flush = FlushDiskType.SYNC_FLUSH if options.sync else FlushDiskType.ASYNC_FLUSH
    floors = []
    rounds = []
    try:
        for number in range(options.rounds):
            directory = root / str(number)
            config = StoreConfig(
                store_path_root_dir=directory, flush_disk_type=flush, message_index_enable=not options.no_index
            )
            store = MessageStore(config, lambda: time.time_ns() // 1_000_000)
            store.load()
            store.start()
            rounds.append(run_round(store, options))
            store.close()
            floors.append(pwrite_floor(directory, options))
            shutil.rmtree(directory)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(
        f"batch {options.batch}, body {options.body}, {options.queues} queues, {options.rounds} rounds; CPU us/message"
    )
    for stage in ("make", "put", "commit", "total"):
        values = [one[stage] / 1000 for one in rounds]
        print(f"  {stage:8} min {min(values):6.3f}  median {statistics.median(values):6.3f}")
    floor, middle = min(floors) / 1000, statistics.median(floors) / 1000
    print(f"  {'pwrite':8} min {floor:6.3f}  median {middle:6.3f}  (part of commit)")


if __name__ == "__main__":
    main()
