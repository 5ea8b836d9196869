"""Cost of many queues: time to create and to load them, memory, descriptors, maps.

    python -m tests.bench.bench_queues                      # 100,000 queues: 10,000 topics of 10
    python -m tests.bench.bench_queues --topics 100 --directory /data

Every queue gets a message, then another. The store is stopped and opened again by a separate process, which also pulls
from some queues. Memory is the growth of the process since before it opened the store.

Budget: descriptors and maps do not grow with the queues (openQueueFiles bounds the first); 100,000 queues load in 60 s.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.message_store import MessageStore
from tests.bench.filled_store import append, now_ms

QUEUES_OF_A_TOPIC = 10


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, help="directory of the temporary store")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-queues-", dir=options.directory))
    try:
        for work in (write, read):
            process = multiprocessing.get_context("spawn").Process(target=work, args=(directory, options.topics))
            process.start()
            process.join()
    finally:
        shutil.rmtree(directory)


def write(directory: Path, topics: int) -> None:
    """Create the queues, and put two messages into each."""
    store = opened(directory)
    for which in ("first", "second"):
        begin, cpu = time.monotonic(), time.process_time()
        for topic in range(topics):
            for queue_id in range(QUEUES_OF_A_TOPIC):
                message = append(queue_id, QUEUES_OF_A_TOPIC, b"x")
                message.topic = f"Topic{topic}"
                store.put(message)
            store.commit()
            if topic % 100 == 0:
                store.step(now_ms())
        report(f"{which} message of each queue", topics, begin, cpu)
    print(f"descriptors {len(os.listdir('/proc/self/fd'))}, maps {maps()}")
    begin, cpu = time.monotonic(), time.process_time()
    store.close()
    report("stop", topics, begin, cpu)


def read(directory: Path, topics: int) -> None:
    """Open the queues, and pull from some."""
    before = rss_mib()
    begin, cpu = time.monotonic(), time.process_time()
    store = opened(directory)
    report("load", topics, begin, cpu)
    print(f"memory {rss_mib() - before:.0f} MiB, descriptors {len(os.listdir('/proc/self/fd'))}, maps {maps()}")
    choose = random.Random(4)
    begin, cpu = time.monotonic(), time.process_time()
    pulls = 5_000
    for _ in range(pulls):
        topic, queue_id = f"Topic{choose.randrange(topics)}", choose.randrange(QUEUES_OF_A_TOPIC)
        if store.get(topic, queue_id, 0, 32).message_count != 2:
            raise SystemExit(f"{topic} {queue_id} has lost a message")
    print(f"{'pull of any queue':32} {(time.process_time() - cpu) / pulls * 1e6:8.1f} us CPU each")
    print(f"descriptors {len(os.listdir('/proc/self/fd'))}, maps {maps()}")
    store.close()


def opened(directory: Path) -> MessageStore:
    """Return the started store."""
    store = MessageStore(StoreConfig(store_path_root_dir=directory), now_ms)
    store.load()
    store.start()
    return store


def report(what: str, topics: int, begin: float, cpu: float) -> None:
    """Print a duration."""
    wall, cpu = time.monotonic() - begin, time.process_time() - cpu
    queues = topics * QUEUES_OF_A_TOPIC
    print(f"{what:32} {wall:8.2f} s, {cpu:.2f} s CPU, {cpu / queues * 1e6:.0f} us CPU each of {queues} queues")


def rss_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def maps() -> int:
    """Return the number of memory maps of this process."""
    return len(Path("/proc/self/maps").read_text().splitlines())


if __name__ == "__main__":
    main()
