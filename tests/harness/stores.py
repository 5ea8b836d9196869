"""Stores for tests: small ones, copies of the golden ones, and a disk that fails or waits on demand."""

import asyncio
import json
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from skylarkmq.broker.store.files.config import FlushDiskType, StoreConfig
from skylarkmq.broker.store.files.disk import Data, Disk
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.index.index import Index
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.queue_reads import GetResult
from skylarkmq.broker.store.recovery.recovery import Recovered
from skylarkmq.protocol.message import tags_code
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import SYS_FLAG_AT, Record, iterate
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.store_check import assert_consistent

GOLDEN: Final = Path(__file__).resolve().parent.parent / "golden" / "store"
BORN_HOST: Final = encode_host("192.168.1.10", 34567)
SEGMENT_BYTES: Final = 65_536
QUEUE_SEGMENT_BYTES: Final = 400
INDEX_SLOTS: Final = 100
INDEX_ITEMS: Final = 200


@contextmanager
def older_version(sys_flag: int = 0x80) -> Iterator[None]:
    """Set these bits of sysFlag in every record that is written, as older versions stored what clients sent."""
    write = MappedFile.write

    def write_flagged(segment: MappedFile, data: Data, at: int) -> None:
        changed = bytearray(data)
        for record in iterate(bytes(data)):
            if isinstance(record, Record):
                flags = (record.sys_flag | sys_flag).to_bytes(4, "big")
                changed[record.position + SYS_FLAG_AT : record.position + SYS_FLAG_AT + 4] = flags
        write(segment, bytes(changed), at)

    with patch.object(MappedFile, "write", write_flagged):
        yield


class Clock:
    """A clock in milliseconds that the test advances."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class TestDisk(Disk):
    """A disk with real files. `refuse(call, path)` may raise OSError; syncs of the log wait for `syncs`."""

    __test__ = False

    def __init__(self) -> None:
        self.refuse: Callable[[str, str], None] = lambda call, path: None
        self.syncs = threading.Event()
        self.syncs.set()
        self.sync_started = threading.Event()
        self.writes: list[tuple[str, int, int]] = []  # path, at, bytes
        self.used: Callable[[str], int] = lambda path: 50  # percentage of the path's file system

    def used_percent(self, path: str) -> int:
        return self.used(path)

    def unlink(self, path: str) -> None:
        self.refuse("unlink", path)
        super().unlink(path)

    def open(self, path: str) -> int:
        self.refuse("open", path)
        return super().open(path)

    def create(self, path: str, size: int, prepare: Callable[[int], None] | None = None) -> int:
        self.refuse("create", path)
        return super().create(path, size, prepare)

    def create_sparse(self, path: str, size: int) -> int:
        self.refuse("create_sparse", path)
        return super().create_sparse(path, size)

    def create_new(self, path: str, size: int) -> int:
        self.refuse("create_new", path)
        return super().create_new(path, size)

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        self.refuse("pwrite", path)
        self.writes.append((path, at, len(data)))
        super().pwrite(fd, data, at)

    def fdatasync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if "/commitlog/" in path:
            self.sync_started.set()
            assert self.syncs.wait(WAIT_LIMIT_S)
        self.refuse("fdatasync", path)
        super().fdatasync(fd)


def config_of(root: Path, *, sync: bool = False, **overrides: Any) -> StoreConfig:
    """Return a configuration with small segments: 64 KiB of log, 20 units of queue.

    Queue units are written in each iteration, so that tests can inspect the files.
    """
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log": SEGMENT_BYTES,
        "mapped_file_size_consume_queue": QUEUE_SEGMENT_BYTES,
        "max_hash_slot_num": INDEX_SLOTS,
        "max_index_num": INDEX_ITEMS,
        "queue_units_in_memory": 0,
        "flush_disk_type": FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH,
    } | overrides
    return StoreConfig(store_path_root_dir=root, **settings)


class Opened:
    """A loaded and started store with its clock, disk and arrivals."""

    def __init__(
        self,
        root: Path,
        *,
        sync: bool = False,
        disk: TestDisk | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        **overrides: Any,
    ) -> None:
        self.root = root
        self.must_be_consistent = True
        self.may_begin_again = False  # whether the log has messages of another node, which deleted topics
        self.clock = Clock()
        self.disk = disk or TestDisk()
        self.arrivals: list[tuple[str, int, int, tuple[int, ...]]] = []
        self.store = MessageStore(config_of(root, sync=sync, **overrides), self.clock, self._arrived, self.disk)
        self.recovered: Recovered = self.store.load()
        self.store.start(loop)

    def _arrived(self, topic: str, queue_id: int, max_offset: int, tags_codes: Any) -> None:
        self.arrivals.append((topic, queue_id, max_offset, tuple(tags_codes)))

    def put(self, *appends: Append) -> list[Append]:
        """Put the appends in one event-loop iteration."""
        for append in appends:
            self.store.put(append)
        self.store.commit()
        return list(appends)

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """Return every body of a queue from its min offset, with as many gets as needed."""
        found: list[bytes] = []
        offset = self.store.min_offset(topic, queue_id) or 0
        while (result := self.store.get(topic, queue_id, offset, 32)).regions:
            found += [bytes(record.body) for record in records_of(result)]
            offset = result.next_begin_offset
        return found

    def crash(self) -> None:
        """Simulate a crash: nothing is flushed or cleaned up, threads end and descriptors are closed."""
        abandon(self.store)


def abandon(store: MessageStore) -> None:
    """Release the resources of the test process without a clean stop."""
    store._durability.abandon()
    flush = store._durability.log
    for waiting in (flush._waiting._hidden, flush._waiting._unsettled, flush.undispatched):
        waiting.clear()  # the garbage collector does not see these appends: their cycles would keep the store
    requests = store._parts._allocator._requests
    for request in requests.values():
        _close_made(request.made)
    requests.clear()
    if store._parts.index is not None:
        _keep_preallocated(store._parts.index.index)
    store._parts.close()


def _keep_preallocated(index: Index) -> None:
    """Close the descriptor of the next index file, which a clean stop would also remove."""
    preallocation, index._preallocation = index._preallocation, None
    making = None if preallocation is None else preallocation._making
    if making is not None and making.done() and not making.cancelled() and making.exception() is None:
        os.close(making.result().fd)


def _close_made(made: Future[int]) -> None:
    """Close the descriptor of a segment that was never used; a clean stop would also remove it."""
    if made.done() and made.exception() is None:
        os.close(made.result())


@contextmanager
def opened(
    root: Path,
    *,
    sync: bool = False,
    disk: TestDisk | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
    **overrides: Any,
) -> Iterator[Opened]:
    """Open a store; stop it cleanly on exit and verify it, unless the test clears `must_be_consistent`."""
    it = Opened(root, sync=sync, disk=disk, loop=loop, **overrides)
    try:
        yield it
    finally:
        it.disk.syncs.set()
        it.store.close()
    if it.must_be_consistent:
        config = config_of(root, sync=sync, **overrides)
        assert_consistent(root, config, may_begin_again=config.is_follower or it.may_begin_again)


def message(body: bytes = b"hello", topic: str = "T", queue_id: int = 0, tag: str = "", **fields: Any) -> Append:
    """Return an append as a processor makes it."""
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    values: dict[str, Any] = {
        "properties": properties,
        "tags_code": tags_code(tag),
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 1_699_999_999_000,
        "born_host": BORN_HOST,
    } | fields
    return Append(topic=topic, queue_id=queue_id, body=body, **values)


def records_of(result: GetResult) -> list[Record]:
    """Return the records in the regions of a get."""
    return [record for region in result.regions for record in iterate(region.view) if isinstance(record, Record)]


@cache
def golden_manifest(version: str, name: str = "clean") -> dict[str, Any]:
    """Return the manifest of that version's store archive, which describes its content. No test changes it."""
    manifest: dict[str, Any] = json.loads((GOLDEN / version / f"{name}.json").read_bytes())
    return manifest


def unpack_golden(version: str, directory: Path, name: str = "clean") -> Path:
    """Unpack a copy of a golden store, with its file times."""
    members = golden_members(GOLDEN / version / f"{name}.tar.xz")
    for member, content in members:
        path = directory / member.name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.write_bytes(content)
    for member, _ in reversed(members):  # a directory after its files
        os.utime(directory / member.name, (member.mtime, member.mtime))
    return directory


@cache
def golden_members(path: Path) -> list[tuple[tarfile.TarInfo, bytes | None]]:
    """Return the directories and files of an archive, with the content of files. Many tests unpack the same archive."""
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert all(member.isdir() or member.isfile() for member in members)
        return [(member, file.read() if (file := archive.extractfile(member)) else None) for member in members]
