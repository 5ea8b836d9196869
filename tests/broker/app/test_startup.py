"""Loading the store in a thread, and stops that are requested before a daemon is ready."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skylarkmq.broker.app.startup import load_beside, warn_if_unreachable
from skylarkmq.broker.base.errors import StartError, StartStopped
from skylarkmq.broker.config.sections import LOOPBACK, ListenConfig
from skylarkmq.broker.store.files.errors import LoadStopped, StoreError
from skylarkmq.broker.store.message_store import MessageStore
from tests.harness.daemon import STORE, Daemon, running
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.stores import Opened, config_of, message

RECORDS = 100_000


class SlowStore:
    """A store that loads until the test ends the load."""

    def __init__(self) -> None:
        self.ending: BaseException | None = None
        self.may_end = threading.Event()
        self.is_closed = False

    def load(self, should_stop: Callable[[], bool]) -> None:
        while not self.may_end.wait(0.001):
            if should_stop() and not self.may_end.is_set():
                raise LoadStopped
        if self.ending is not None:
            raise self.ending

    def close(self) -> None:
        self.is_closed = True


class CompleteStore(SlowStore):
    """A store whose load is complete when it should stop."""

    def load(self, should_stop: Callable[[], bool]) -> None:
        while not should_stop():
            self.may_end.wait(0.001)


def loading(store: SlowStore, stop: asyncio.Event | None = None) -> asyncio.Task[None]:
    return asyncio.create_task(load_beside(store, stop or asyncio.Event()))


@pytest.mark.parametrize(
    ("bind", "advertised", "is_warned"),
    [("0.0.0.0", "127.0.0.1", True), ("::", "::1", True), ("0.0.0.0", "10.0.0.5", False), (LOOPBACK, LOOPBACK, False)],
)
def test_a_loopback_address_for_other_machines_is_logged(
    bind: str, advertised: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker on all addresses may advertise one only if brokerIP1 sets it; the warning names the setting."""
    warn_if_unreachable(
        ListenConfig(bind_host=bind, advertised_host=advertised, advertised_ip=advertised, port=1, why="")
    )
    assert (f"bound to {bind}, but brokerIP1={advertised}" in caplog.text) is is_warned


async def test_the_loop_is_free_while_a_store_is_loaded() -> None:
    """A callback on the loop ends the load: it would hang if the load blocked the loop."""
    store = SlowStore()
    task = loading(store)
    asyncio.get_running_loop().call_later(0.01, store.may_end.set)
    await task


async def test_a_stop_ends_a_load() -> None:
    """The load is canceled, which is not a failure."""
    stop = asyncio.Event()
    task = loading(SlowStore(), stop)
    asyncio.get_running_loop().call_soon(stop.set)
    with pytest.raises(StartStopped):
        await task


async def test_a_store_error_stops_the_start() -> None:
    """The error's text becomes the operator's line."""
    store = SlowStore()
    store.ending = StoreError("segment 0 has 17 bytes")
    store.may_end.set()
    with pytest.raises(StartError, match="segment 0 has 17 bytes"):
        await loading(store)


async def test_a_cancelled_start_waits_for_its_thread() -> None:
    """No thread continues to load after a canceled start."""
    store = SlowStore()
    task = loading(store)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not store.may_end.is_set()
    assert not store.is_closed  # its load has released its files


async def test_a_store_loaded_by_a_cancelled_start_is_closed() -> None:
    """A load that ends during the cancellation leaves no lock and no open files."""
    store = CompleteStore()
    task = loading(store)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.is_closed


def killed_store(root: Path) -> None:
    """Write a store of many messages whose recovery takes some seconds."""
    it = Opened(root, mapped_file_size_commit_log=8 << 20, mapped_file_size_consume_queue=6_000_000)
    for begin in range(0, RECORDS, 500):
        for number in range(begin, begin + 500):
            it.store.put(message(b"%d" % number, "T", number % 4))
        it.store.commit()
    it.crash()


def recovering(daemon: Daemon) -> str:
    """Return the progress in /readyz while the log is recovered; "" if the broker was ready before."""
    deadline = time.monotonic() + PROCESS_LIMIT_S
    while time.monotonic() < deadline:
        try:
            status, body = daemon.page("/readyz")
        except OSError:
            continue
        if status == 200 or "recovering" in body["checks"]["recovered"]:
            return "" if status == 200 else str(body["checks"]["recovered"])
    raise AssertionError(f"/readyz never reported recovery:\n{daemon.output}")


@pytest.mark.daemon
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_recovery_is_reported_and_can_be_stopped(tmp_path: Path, number: signal.Signals) -> None:
    """While the log is recovered, /healthz responds and /readyz has the progress; a signal ends it, and nothing is
    lost."""
    killed_store(tmp_path / STORE)
    sizes = {"mappedFileSizeCommitLog": 8 << 20, "mappedFileSizeConsumeQueue": 6_000_000}
    with running(directory=tmp_path, settings=sizes, is_awaited=False, must_be_consistent=False) as daemon:
        assert "the store is being opened, recovering" in recovering(daemon)
        assert daemon.page("/healthz") == (200, {"alive": True})
        assert daemon.stop(number) == 0
        assert "stopped before it was ready" in daemon.output
        assert "ready port=" not in daemon.output
    config = config_of(tmp_path / STORE, mapped_file_size_commit_log=8 << 20, mapped_file_size_consume_queue=6_000_000)
    again = MessageStore(config, lambda: 0)
    again.load()
    assert [again.max_offset("T", queue_id) for queue_id in range(4)] == [RECORDS // 4] * 4
    again.close()
