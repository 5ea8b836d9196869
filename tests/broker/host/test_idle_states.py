"""Processors are kept awake while bytes come, where that can be had."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from skylarkmq.broker import in_process
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.daemon import STEP_S, Broker
from skylarkmq.broker.host import idle_states
from skylarkmq.broker.host.idle_states import BUSY_BYTES, MOST_CPUS, IdleStateInhibitor, open_request
from skylarkmq.broker.startup import keep_cpus_awake
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.harness.raw import RawClient

AWAKE, ASLEEP = 0, 2_000_000_000
SEND = {
    "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": False,
}  # fmt: skip


class ReceivedBytes:
    received_bytes = 0


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A guest of four processors that halt; a file takes what is asked of the kernel."""
    device, driver = tmp_path / "cpu_dma_latency", tmp_path / "current_driver"
    device.touch()
    driver.write_text("haltpoll\n")
    monkeypatch.setattr(idle_states, "_DEVICE", device)
    monkeypatch.setattr(idle_states, "_DRIVER", driver)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    return device


def asked(device: Path) -> list[int]:
    """The wakes that were asked for, in µs, in their order."""
    data = device.read_bytes()
    return [int.from_bytes(data[at : at + 4], sys.byteorder, signed=True) for at in range(0, len(data), 4)]


@contextmanager
def opened(reads: ReceivedBytes) -> Iterator[IdleStateInhibitor]:
    cpus = IdleStateInhibitor(open_request(), reads)
    try:
        yield cpus
    finally:
        cpus.close()


def test_they_are_awake_while_enough_comes(device: Path) -> None:
    """Asked once when it begins and once when it ends; a byte less than enough is not enough."""
    reads = ReceivedBytes()
    with opened(reads) as cpus:
        for came in (0, BUSY_BYTES - 1, BUSY_BYTES, 5 * BUSY_BYTES, BUSY_BYTES - 1, 0, BUSY_BYTES):
            reads.received_bytes += came
            cpus.step()
        assert asked(device) == [AWAKE, ASLEEP, AWAKE]
        assert cpus.is_active
    assert not cpus.is_active


def test_what_came_before_the_start_does_not_count(device: Path) -> None:
    """Nor does anything after the end: the descriptor is another file's by then."""
    reads = ReceivedBytes()
    reads.received_bytes = 1 << 30
    with opened(reads) as cpus:
        cpus.step()
    reads.received_bytes += 1 << 30
    cpus.step()
    cpus.close()
    assert asked(device) == []


def test_a_machine_whose_processors_do_not_halt_is_left_alone(device: Path, tmp_path: Path) -> None:
    """Another driver, none, or so many processors that it would be dear."""
    with opened(ReceivedBytes()):
        pass
    assert device.exists()
    for driver in ("intel_idle\n", "none\n", ""):
        (tmp_path / "current_driver").write_text(driver)
        assert open_request() is None
    (tmp_path / "current_driver").unlink()
    assert open_request() is None


@pytest.mark.parametrize(("cpus", "is_asked"), [(1, True), (MOST_CPUS, True), (MOST_CPUS + 1, False)])
def test_only_few_processors_are_kept_awake(
    device: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, is_asked: bool
) -> None:
    """All of them are, or none."""
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    request = open_request()
    assert (request is not None) is is_asked
    if request is not None:
        os.close(request)


def test_who_may_not_ask_goes_on_without(device: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And the log says so."""
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


async def test_it_ends_with_the_broker(device: Path) -> None:
    """The descriptor is closed, and so the kernel forgets what was asked."""
    reads = ReceivedBytes()
    async with AsyncExitStack() as running:
        cpus = keep_cpus_awake(reads, running)
        reads.received_bytes += BUSY_BYTES
        cpus.step()
        (descriptor,) = [name for name in os.listdir("/proc/self/fd") if is_of(name, device)]
        assert asked(device) == [AWAKE]
    assert not is_of(descriptor, device)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_broker_asks_while_it_is_sent_to(
    device: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_wanted: bool
) -> None:
    """`keepCpusAwake=false`: it never does."""

    async def made(config: DaemonConfig) -> Broker:
        return Broker(config)

    monkeypatch.setattr(in_process, "made", made)
    with in_process.running(tmp_path, {"keepCpusAwake": str(is_wanted).lower()}) as broker:
        host, _, port = broker.address.partition(":")
        with RawClient(host, int(port)) as client:
            assert client.call(RequestCode.SEND_MESSAGE_V2, SEND, bytes(2 * BUSY_BYTES)).code == ResponseCode.SUCCESS
        until_s = time.monotonic() + (10.0 if is_wanted else 3 * STEP_S)
        while len(asked(device)) < 2 and time.monotonic() < until_s:
            time.sleep(0.01)
    assert asked(device) == ([AWAKE, ASLEEP] if is_wanted else [])


def is_of(descriptor: str, file: Path) -> bool:
    """Whether a descriptor of this process is open, and of that file."""
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink() == file
    except FileNotFoundError:
        return False
