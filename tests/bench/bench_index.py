"""CPU of the index: per key put into a file of full size, and per message through the store.

    python -m tests.bench.bench_index [--batch 512] [--keys 1000000] [--messages 100000] [--rounds 7] [--directory DIR]

Three figures, as minimum and median (user + system CPU of this process; on a shared machine use the minimum):
    put       IndexFile.put of keys that are in memory, ns per key, in batches, by NumPy, hashing included; budget 350
    few       the same for one message (two keys) at a time, without NumPy
    message   put + commit + dispatch of a 1 KiB message with UNIQ_KEY and one of KEYS, in batches of 128: with the
              index minus without it, in the same round; budget 1,000
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.index.entries import Entries
from skylarkmq.broker.store.index.file import IndexFile
from skylarkmq.broker.store.index.hashing import hash_keys, int64_array
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.disk import IndexLayout

LAYOUT = IndexLayout(5_000_000, 20_000_000)
BORN_HOST = bytes((127, 0, 0, 1)) + (40000).to_bytes(4, "big")
NOW_MS = 1_700_000_000_000
BATCH = 128
FEW = 2

cpu = time.process_time_ns


def put_keys(directory: Path, count: int, batch: int) -> float:
    """Return ns per key."""
    keys = [
        key for n in range(count // 2) for key in (f"BenchmarkTopic#{unique(n)}".encode(), b"BenchmarkTopic#k%d" % n)
    ]
    offsets, times = [number * 100 for number in range(count)], [NOW_MS + number for number in range(count)]
    file = IndexFile.create(str(directory / "index"), LAYOUT, None, Disk())
    spent = 0
    for begin in range(0, count, batch):
        some = slice(begin, begin + batch)
        part = keys[some], offsets[some], times[some]
        before = cpu()
        file.put(Entries(hash_keys(part[0]), int64_array(part[1]), int64_array(part[2])))
        spent += cpu() - before
    file.remove()
    return spent / count


def put_messages(directory: Path, count: int, *, is_indexed: bool) -> float:
    """Return ns per message."""
    config = StoreConfig(store_path_root_dir=directory / "store", message_index_enable=is_indexed)
    store = MessageStore(config, lambda: NOW_MS)
    store.load()
    store.start()
    body = bytes(1024)
    spent = 0
    for begin in range(0, count, BATCH):
        appends = [append(number, body) for number in range(begin, begin + BATCH)]
        before = cpu()
        for one in appends:
            store.put(one)
        store.commit()
        spent += cpu() - before
    store.close()
    shutil.rmtree(directory / "store")
    return spent / count


def append(number: int, body: bytes) -> Append:
    properties = (
        f"KEYS\x01k{number}\x02UNIQ_KEY\x01{unique(number)}\x02WAIT\x01true\x02TAGS\x01TagA\x02CLUSTER\x01Default\x02"
    )
    return Append("BenchmarkTopic", number % 8, body, properties.encode(), 2598919, 0, 0, NOW_MS, BORN_HOST)


def unique(number: int) -> str:
    return f"7F00000105030000486C{number:012X}"


def show(name: str, unit: str, figures: list[float]) -> None:
    print(f"  {name:10} min {min(figures):6.0f}  median {statistics.median(figures):6.0f}  ns per {unit}")


def rounds(times: int, measure: Callable[[], float]) -> list[float]:
    return [measure() for _ in range(times)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512, help="keys put at once")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys per round")
    parser.add_argument("--messages", type=int, default=100_000, help="messages per round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=None, help="directory of the files (default: TMPDIR)")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-index-", dir=options.directory))
    try:
        print(f"batches of {options.batch}, {options.keys} keys, {options.messages} messages, {options.rounds} rounds")
        show("put", "key", rounds(options.rounds, lambda: put_keys(root, options.keys, options.batch)))
        show("few", "key", rounds(options.rounds, lambda: put_keys(root, options.keys // 20, FEW)))
        without = rounds(options.rounds, lambda: put_messages(root, options.messages, is_indexed=False))
        with_index = rounds(options.rounds, lambda: put_messages(root, options.messages, is_indexed=True))
        show("without", "message", without)
        show("with", "message", with_index)
        added = min(with_index) - min(without), statistics.median(with_index) - statistics.median(without)
        print(f"  {'added':10} min {added[0]:6.0f}  median {added[1]:6.0f}  ns per message")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
