"""The wall clock is set while a broker runs: by an hour and by ten years, forward and back. Its services continue."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import skylarkmq.broker.base.clocks
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.record import decode
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.raw import RawClient
from tests.harness.stores import Clock, TestDisk, config_of, message

pytestmark = pytest.mark.daemon

HOUR_MS: Final = 3_600_000
JUMPS: Final = [HOUR_MS, -HOUR_MS, 87_660 * HOUR_MS, -87_660 * HOUR_MS]
SEND: Final = {"a": "G", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0}
PULL: Final = {
    "consumerGroup": "CG",
    "topic": "T",
    "queueId": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
}


class SetClock:
    """The module `time` for the broker, with a wall clock that can be set."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def time_ns(self) -> int:
        """Return Unix time, as set."""
        return time.time_ns() + self.ahead_ms * 1_000_000

    def monotonic_ns(self) -> int:
        """Return the steady clock."""
        return time.monotonic_ns()


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true."""
    end_s = time.monotonic() + WAIT_LIMIT_S
    while not condition():
        assert time.monotonic() < end_s


@contextmanager
def serving(directory: Path) -> Iterator[tuple[InProcessBroker, RawClient]]:
    """Yield a broker that saves offsets often, and a client."""
    settings = {"flushConsumerOffsetInterval": 50, "transactionCheckInterval": 1_000}
    with running(directory, settings) as it, RawClient("127.0.0.1", int(it.address.rpartition(":")[2]), 10.0) as client:
        yield it, client


def bodies(client: RawClient) -> list[bytes]:
    response = client.call(RequestCode.PULL_MESSAGE, PULL | {"queueOffset": 0})
    return [message.body for message in decode(response.body)] if response.code == ResponseCode.SUCCESS else []


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_services_continue_when_the_clock_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_ms: int) -> None:
    """Sends, pulls, delays of later messages, and the saving of offsets; also after the clock is corrected."""
    clock = SetClock()
    monkeypatch.setattr(skylarkmq.broker.base.clocks, "time", clock)
    with serving(tmp_path) as (it, client):
        sent = []

        def exchange(number: int) -> None:
            for body, properties in ((b"plain %d", ""), (b"delayed %d", "DELAY\x011\x02")):
                response = client.call(RequestCode.SEND_MESSAGE_V2, SEND | {"i": properties}, body % number)
                assert response.code == ResponseCode.SUCCESS
                sent.append(body % number)
            until(lambda: sorted(bodies(client)) == sorted(sent))
            header = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": len(sent)}
            assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == ResponseCode.SUCCESS
            until(lambda: saved(it.store) == len(sent))

        exchange(0)
        clock.ahead_ms = jump_ms
        exchange(1)
        clock.ahead_ms = 0
        exchange(2)


def saved(store: Path) -> int | None:
    """Return the offset of CG in queue 0 of T in the file."""
    file = store / "config" / "consumerOffset.json"
    if not file.exists():
        return None
    text = file.read_text().replace("{0:", '{"0":')
    offset: int | None = json.loads(text)["offsetTable"].get("T@CG", {}).get("0")
    return offset


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_the_sync_flush_timeout_uses_the_steady_clock(tmp_path: Path, jump_ms: int) -> None:
    """`syncFlushTimeout` ends after exactly that time."""
    wall, steady, disk = Clock(), Clock(1_000_000), TestDisk()
    config = config_of(tmp_path, sync=True, sync_flush_timeout=5_000)
    store = MessageStore(config, wall, disk=disk, steady_ms=steady)
    store.load()
    store.start()
    disk.syncs.clear()
    append = message()
    store.put(append)
    store.commit()
    wall.now_ms += jump_ms
    statuses = []
    for elapsed_ms in (4_999, 1):
        steady.now_ms += elapsed_ms
        store.step(steady.now_ms)
        statuses.append(append.status)
    assert statuses == [PutStatus.PENDING, PutStatus.FLUSH_DISK_TIMEOUT]
    disk.syncs.set()
    store.close()
