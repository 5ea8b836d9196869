"""Processors are kept awake while data arrives, where that is possible."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from skylarkmq.broker.app import in_process
from skylarkmq.broker.app.daemon import STEP_S, Broker
from skylarkmq.broker.app.host import idle_states
from skylarkmq.broker.app.host.idle_states import BUSY_BYTES, MOST_CPUS, IdleStateInhibitor, open_request
from skylarkmq.broker.app.startup import keep_cpus_awake
from skylarkmq.broker.config.sections import DaemonConfig, Loaded
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.raw import RawClient

AWAKE, ASLEEP = 0, 2_000_000_000
SEND = {
    "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": False,
}  # fmt: skip


class ReceivedBytes:
    received_bytes = 0


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A guest with four processors that halt; a file receives the requests to the kernel."""
    device, driver = tmp_path / "cpu_dma_latency", tmp_path / "current_driver"
    device.touch()
    driver.write_text("haltpoll\n")
    monkeypatch.setattr(idle_states, "_DEVICE", device)
    monkeypatch.setattr(idle_states, "_DRIVER", driver)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    return device


def asked(device: Path) -> list[int]:
    """Return the requested wake-up latencies in µs, in order."""
    data = device.read_bytes()
    return [int.from_bytes(data[at : at + 4], sys.byteorder, signed=True) for at in range(0, len(data), 4)]


@contextmanager
def opened(reads: ReceivedBytes) -> Iterator[IdleStateInhibitor]:
    cpus = IdleStateInhibitor(open_request(), reads)
    try:
        yield cpus
    finally:
        cpus.close()


def test_processors_are_kept_awake_while_enough_data_arrives(device: Path) -> None:
    """One request when it begins and one when it ends; one byte below the threshold is not enough."""
    reads = ReceivedBytes()
    with opened(reads) as cpus:
        for came in (0, BUSY_BYTES - 1, BUSY_BYTES, 5 * BUSY_BYTES, BUSY_BYTES - 1, 0, BUSY_BYTES):
            reads.received_bytes += came
            cpus.step()
        assert asked(device) == [AWAKE, ASLEEP, AWAKE]
        assert cpus.is_active
    assert not cpus.is_active


def test_bytes_before_the_start_do_not_count(device: Path) -> None:
    """Nor do bytes after the end: the descriptor may belong to another file by then."""
    reads = ReceivedBytes()
    reads.received_bytes = 1 << 30
    with opened(reads) as cpus:
        cpus.step()
    reads.received_bytes += 1 << 30
    cpus.step()
    cpus.close()
    assert asked(device) == []


def test_other_machines_get_no_request(device: Path, tmp_path: Path) -> None:
    """Another idle driver, or none."""
    with opened(ReceivedBytes()):
        pass
    assert device.exists()
    for driver in ("intel_idle\n", "none\n", ""):
        (tmp_path / "current_driver").write_text(driver)
        assert open_request() is None
    (tmp_path / "current_driver").unlink()
    assert open_request() is None


@pytest.mark.parametrize(("cpus", "is_asked"), [(1, True), (MOST_CPUS, True), (MOST_CPUS + 1, False)])
def test_only_a_few_processors_are_kept_awake(
    device: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, is_asked: bool
) -> None:
    """All processors of a machine, or none."""
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    request = open_request()
    assert (request is not None) is is_asked
    if request is not None:
        os.close(request)


def test_without_permission_the_broker_continues(device: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log states the reason."""
    device.unlink()
    caplog.set_level("INFO")
    reads = ReceivedBytes()
    with opened(reads) as cpus:
        reads.received_bytes += BUSY_BYTES
        cpus.step()
        assert not cpus.is_active
    (said,) = caplog.messages
    assert "No such file" in said
    assert str(device) in said


async def test_the_request_ends_with_the_broker(device: Path) -> None:
    """The descriptor is closed, so the kernel drops the request."""
    reads = ReceivedBytes()
    async with AsyncExitStack() as running:
        cpus = keep_cpus_awake(reads, running)
        reads.received_bytes += BUSY_BYTES
        cpus.step()
        (descriptor,) = [name for name in os.listdir("/proc/self/fd") if is_of(name, device)]
        assert asked(device) == [AWAKE]
    assert not is_of(descriptor, device)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_broker_makes_the_request_while_it_receives_messages(
    device: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_wanted: bool
) -> None:
    """With `keepCpusAwake=false` it never does."""

    async def made(loaded: Loaded[DaemonConfig], _console_factory: object) -> Broker:
        return Broker(loaded.config)

    monkeypatch.setattr(in_process, "made", made)
    with in_process.running(tmp_path, {"keepCpusAwake": str(is_wanted).lower()}) as broker:
        host, _, port = broker.address.partition(":")
        with RawClient(host, int(port)) as client:
            assert client.call(RequestCode.SEND_MESSAGE_V2, SEND, bytes(2 * BUSY_BYTES)).code == ResponseCode.SUCCESS
        until_s = time.monotonic() + (WAIT_LIMIT_S if is_wanted else 3 * STEP_S)
        while len(asked(device)) < 2 and time.monotonic() < until_s:
            time.sleep(0.01)
    assert asked(device) == ([AWAKE, ASLEEP] if is_wanted else [])


def is_of(descriptor: str, file: Path) -> bool:
    """Return whether a descriptor of this process is open, and refers to that file."""
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink() == file
    except FileNotFoundError:
        return False
