"""The life of a store: lock, abort, checkpoint, statistics, threads and representations."""

import asyncio
import fcntl
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.broker.store import message_store
from skylarkmq.broker.store.files.config import StoreConfig, parse_delay_levels
from skylarkmq.broker.store.files.errors import StoreError, StoreLockedError
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.disk import Checkpoint
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.stores import Clock, Opened, config_of, message, opened


def take_lock(path: str, locked: Any, done: Any) -> None:
    fd = os.open(path, os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    locked.set()
    done.wait(WAIT_LIMIT_S)


def test_lock_and_abort(tmp_path: Path) -> None:
    """While a store runs, `lock` contains `lock` and `abort` the process id; a clean stop removes `abort`."""
    with opened(tmp_path):
        assert (tmp_path / "lock").read_bytes() == b"lock"
        assert (tmp_path / "abort").read_text() == str(os.getpid())
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "lock").exists()


@pytest.mark.daemon
def test_a_locked_store_is_not_opened(tmp_path: Path) -> None:
    """A store in use by another process is refused, and no file is changed."""
    opened_once = Opened(tmp_path)
    opened_once.put(message())
    opened_once.store.close()
    spawn = multiprocessing.get_context("spawn")
    locked, done = spawn.Event(), spawn.Event()
    holder = spawn.Process(target=take_lock, args=(str(tmp_path / "lock"), locked, done))
    holder.start()
    try:
        assert locked.wait(WAIT_LIMIT_S)
        with pytest.raises(StoreLockedError, match="is in use by another broker"):
            MessageStore(config_of(tmp_path), Clock()).load()
    finally:
        done.set()
        holder.join()
    with opened(tmp_path) as it:
        assert it.bodies() == [b"hello"]


COMMITTING: Final[dict[str, Callable[[MessageStore], object]]] = {
    "get": lambda store: store.get("T", 0, 0, 1),
    "max_offset": lambda store: store.max_offset("T", 0),
    "units": lambda store: store.units("T", 0, 0, 1),
    "record_at": lambda store: store.record_at(0),
    "query_by_key": lambda store: asyncio.run(store.query_by_key("T", "k", 1, 0, 1)),
    "offset_by_time": lambda store: store.offset_by_time("T", 0, 0),
    "store_time_at": lambda store: store.store_time_at("T", 0, 0),
    "earliest_store_time": lambda store: store.earliest_store_time("T", 0),
    "when_flushed": lambda store: store.when_flushed(lambda: None),
    "delete_topic": lambda store: asyncio.run(store.delete_topic("U")),
}
LEAVING: Final[dict[str, Callable[[MessageStore], object]]] = {
    "messages_from": lambda store: store.messages_from("T", 0, 0),
    "read_ahead": lambda store: store.read_ahead("T", 0, 0, 1),
    "min_offset": lambda store: store.min_offset("T", 0),
    "record_of_unit": lambda store: store.record_of_unit("T", 0, 1, 0),
    "log_region": lambda store: store.log_region(0, 10),
    "copied_record_at": lambda store: store.reader.copied_record_at(0),
}


@pytest.mark.parametrize("name", COMMITTING)
def test_lookups_that_commit_first(tmp_path: Path, name: str) -> None:
    """Those of the table at the head of the module: an open batch is written and visible afterwards."""
    with opened(tmp_path) as it:
        it.put(message(), message(topic="U"))
        append = message()
        it.store.put(append)
        COMMITTING[name](it.store)
        assert append.status is PutStatus.PUT_OK
        assert it.store.messages_from("T", 0, 0) == 2
    assert f" {name}" in str(message_store.__doc__)


@pytest.mark.parametrize("name", LEAVING)
def test_lookups_that_leave_the_batch_open(tmp_path: Path, name: str) -> None:
    """Examples of all others."""
    with opened(tmp_path) as it:
        it.put(message())
        append = message()
        it.store.put(append)
        LEAVING[name](it.store)
        assert append.status is PutStatus.PENDING
        it.store.commit()


def test_unusable_directory(tmp_path: Path) -> None:
    """A root that cannot be a directory raises a clear error."""
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreError, match="cannot be used"):
        MessageStore(config_of(tmp_path / "file" / "store"), Clock()).load()


def test_the_checkpoint_covers_synced_data(tmp_path: Path) -> None:
    """The thorough queue flush and a clean stop write the checkpoint; before that it does not exist."""
    it = Opened(tmp_path)
    it.put(message())
    assert not (tmp_path / "checkpoint").exists()
    it.store.step(it.clock.now_ms)
    flusher = it.store._durability._queue_flusher
    assert flusher is not None
    flusher.wait_idle()
    checkpoint = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert (checkpoint.physic_timestamp, checkpoint.logics_timestamp) == (0, it.clock.now_ms)
    it.clock.now_ms += 5
    (last,) = it.put(message())
    it.store.step(it.clock.now_ms + 1000)
    it.store.close()
    checkpoint = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
    assert checkpoint == Checkpoint(it.clock.now_ms, it.clock.now_ms, 0, 0, last.physical_offset)


def test_queues_are_synced_at_their_intervals(tmp_path: Path) -> None:
    """A round each second syncs queues with two dirty pages; every sixtieth round syncs all."""
    with opened(tmp_path, mapped_file_size_consume_queue=20_000) as it:
        flusher = it.store._durability._queue_flusher
        assert flusher is not None
        it.store.step(it.clock.now_ms)
        it.put(message(queue_id=1), *(message(b"") for _ in range(500)))

        def dirty_after(milliseconds: int) -> int:
            it.store.step(it.clock.now_ms + milliseconds)
            flusher.wait_idle()
            return it.store._parts._queue_files.statistics().dirty_files

        assert [dirty_after(after) for after in (500, 1000, 2000, 59_999, 60_000, 60_999)] == [2, 1, 1, 1, 1, 0]


def test_threads_end(tmp_path: Path) -> None:
    """A closed store leaves no threads, descriptors or unused segments behind."""
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    it = Opened(tmp_path)
    it.put(*(message(b"x" * 9000) for _ in range(9)))
    assert threading.active_count() == before[0] + 3
    it.store.close()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
    assert len(list((tmp_path / "commitlog").iterdir())) == 2


def test_statistics(tmp_path: Path) -> None:
    """The statistics contain put, written, dispatched and unflushed messages."""
    with opened(tmp_path, flush_interval_commit_log=60_000) as it:
        appends = it.put(message(), message(queue_id=1))
        statistics = it.store.statistics()
        assert (statistics.log.messages, statistics.log.written_bytes) == (2, sum(append.size for append in appends))
        assert (statistics.queues, statistics.dispatched, statistics.dispatch_lag) == (2, 2, 0)
        assert statistics.flush_lag == statistics.log.max_offset
        assert statistics.is_writable
        assert 0 < it.store.disk_usage().fullest <= 100
        durability = it.store._durability
        parts = (it.store, it.store._log, it.store.queues, it.store._dispatch, durability)
        for part in (
            *parts,
            it.store._parts._queue_files,
            it.store._parts._allocator,
            it.store._log.files,
            it.store._parts.running,
        ):
            assert repr(part).startswith(f"<{type(part).__name__}")
            assert "\n" not in repr(part)


def test_recovery_logs_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The line contains offsets and counts."""
    Opened(tmp_path).crash()
    with caplog.at_level(logging.INFO, "skylarkmq.broker.store"), opened(tmp_path):
        pass
    assert "recovered clean=False from=0 end=0 records=0 cleared_bytes=0 removed_units=0" in caplog.text


def test_invalid_settings_are_refused() -> None:
    """Settings that no store can use raise ValueError."""
    with pytest.raises(ValueError, match="multiple of 20"):
        StoreConfig(store_path_root_dir=Path(), mapped_file_size_consume_queue=401)
    with pytest.raises(ValueError, match="store host"):
        StoreConfig(store_path_root_dir=Path(), store_host=b"1234")
    with pytest.raises(ValueError, match="delay level"):
        StoreConfig(store_path_root_dir=Path(), message_delay_level="1s 5x")
    assert parse_delay_levels("1s 2m 3h 4d") == (1_000, 120_000, 10_800_000, 345_600_000)


def test_units(tmp_path: Path) -> None:
    """Units contain physical offset, size and tags code, within a segment of their queue; there are none outside it."""
    with opened(tmp_path) as it:
        appends = it.put(*(message(tag="a", queue_id=1) for _ in range(25)))
        units = [(append.physical_offset, append.size, append.tags_code) for append in appends]
        assert it.store.units("T", 1, 0, 100) == units[:20]
        assert it.store.units("T", 1, 20, 3) == units[20:23]
        assert it.store.units("T", 1, 25, 3) == it.store.units("T", 1, 99, 3) == it.store.units("T", 0, 0, 3) == []
        assert it.store.units("T", 1, -1, 3) == []
        assert it.store.queues.ids_of("T") == [1]
