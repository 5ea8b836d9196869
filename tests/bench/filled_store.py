"""Stores of a given size for benchmarks, written by a separate process that stops or is killed.

Records of 1 KiB with the properties of an ordinary message, in batches like those of a busy broker, over several
queues.
"""

import multiprocessing
import os
import signal
import time
from pathlib import Path

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore

BORN_HOST = bytes((127, 0, 0, 1)) + (40000).to_bytes(4, "big")
TOPIC = "BenchmarkTopic"
BATCH = 256
STEP_EVERY = 40  # batches, about 10 ms


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def append(number: int, queues: int, body: bytes | memoryview) -> Append:
    """Return one message with its own key."""
    properties = b"KEYS\x01k%d\x02UNIQ_KEY\x017F000001%024X\x02TAGS\x01TagA\x02CLUSTER\x01Default\x02" % (
        number,
        number,
    )
    return Append(TOPIC, number % queues, body, properties, 2598919, 0, 0, 1_700_000_000_000, BORN_HOST)


def fill(store: MessageStore, size: int, queues: int, body_size: int = 1024) -> int:
    """Append until the log has grown by `size` bytes. Return the number of messages."""
    body = memoryview(os.urandom(body_size))
    end = store.max_physical_offset + size
    number = 0
    while store.max_physical_offset < end:
        for _ in range(BATCH):
            store.put(append(number, queues, body))
            number += 1
        store.commit()
        if number // BATCH % STEP_EVERY == 0:
            store.step(now_ms())
    return number


def write_store(config: StoreConfig, size: int, queues: int, *, kill: bool) -> None:
    """Fill a store in another process, which then stops cleanly or is killed."""
    process = multiprocessing.get_context("spawn").Process(target=_write, args=(config, size, queues, kill))
    process.start()
    process.join()
    if process.exitcode != (-signal.SIGKILL if kill else 0):
        raise SystemExit(f"the writer ended with {process.exitcode}")


def _write(config: StoreConfig, size: int, queues: int, kill: bool) -> None:
    store = MessageStore(config, now_ms)
    store.load()
    store.start()
    fill(store, size, queues)
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


def evict(root: Path) -> None:
    """Evict a store's files from the page cache."""
    for path in root.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
