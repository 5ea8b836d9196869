"""The checkpoint: written every second, and never covers more than what is on disk."""

from pathlib import Path
from typing import Any

from skylarkmq.protocol.disk import Checkpoint
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.stores import Opened, message, opened


def on_disk(root: Path) -> Checkpoint:
    path = root / "checkpoint"
    return Checkpoint.decode(path.read_bytes()) if path.exists() else Checkpoint()


def a_second_later(it: Opened) -> None:
    """Run one complete flush round over the queues."""
    it.clock.now_ms += 1_000
    it.store.step(it.clock.now_ms)
    flusher = it.store._durability._queue_flusher
    assert flusher is not None
    flusher.wait_idle()


def flushed_log(it: Opened) -> None:
    flusher = it.store._durability.log._flusher
    assert flusher is not None
    flusher.expedite()
    flusher.wait_idle()


def test_the_checkpoint_is_written_every_round(tmp_path: Path) -> None:
    """The next round covers flushed messages, without waiting for the thorough interval."""
    with opened(tmp_path, flush_consume_queue_least_pages=0) as it:
        a_second_later(it)
        for _ in range(3):
            it.put(message())
            stored = it.clock.now_ms
            flushed_log(it)
            a_second_later(it)
            assert (on_disk(tmp_path).physic_timestamp, on_disk(tmp_path).logics_timestamp) == (stored, stored)


def test_the_checkpoint_is_not_newer_than_the_synced_log(tmp_path: Path) -> None:
    """While the log's sync hangs, the log's timestamp does not change."""
    with opened(tmp_path, flush_consume_queue_least_pages=0, flush_lag_limit=1) as it:
        it.put(message())
        stored = it.clock.now_ms
        flushed_log(it)
        it.disk.syncs.clear()
        it.disk.sync_started.clear()
        a_second_later(it)
        it.put(message())
        assert it.disk.sync_started.wait(WAIT_LIMIT_S)
        a_second_later(it)
        assert on_disk(tmp_path).physic_timestamp == stored
        assert on_disk(tmp_path).logics_timestamp > stored


def test_the_checkpoint_is_not_newer_than_the_synced_queues(tmp_path: Path) -> None:
    """While rounds skip a queue with few new units, the queues' timestamp does not change."""
    settings: dict[str, Any] = {
        "flush_consume_queue_least_pages": 1,
        "flush_consume_queue_thorough_interval": 5_000,
        "mapped_file_size_consume_queue": 40_000,
    }
    with opened(tmp_path, **settings) as it:
        a_second_later(it)  # the first round is thorough
        begin = it.clock.now_ms
        it.put(message())
        for second in range(1, 6):
            a_second_later(it)
            assert on_disk(tmp_path).logics_timestamp == (begin if second == 5 else 0), second
        stored = it.clock.now_ms
        it.put(*(message() for _ in range(300)))  # more than a page
        a_second_later(it)
        assert on_disk(tmp_path).logics_timestamp == stored


def test_the_checkpoint_does_not_cover_units_that_were_not_written(tmp_path: Path) -> None:
    """Units that the disk refused are in no file, so the queues' timestamp does not cover them."""
    with opened(tmp_path, flush_consume_queue_least_pages=0) as it:
        it.put(message())
        stored = it.clock.now_ms
        a_second_later(it)

        def refuse(call: str, path: str) -> None:
            if call == "pwrite" and "/consumequeue/" in path:
                raise OSError(28, "injected")

        it.disk.refuse = refuse
        it.put(message())
        a_second_later(it)
        assert on_disk(tmp_path).logics_timestamp == stored
        it.disk.refuse = lambda call, path: None


def test_an_idle_store_does_not_write_its_checkpoint(tmp_path: Path) -> None:
    """Rounds without new messages write nothing."""
    with opened(tmp_path, flush_consume_queue_least_pages=0) as it:
        it.put(message())
        flushed_log(it)
        a_second_later(it)
        a_second_later(it)
        it.disk.writes.clear()
        for _ in range(100):
            a_second_later(it)
        assert it.disk.writes == []
