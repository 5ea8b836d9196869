"""Timer messages through the daemon: in time, none lost by a restart or a kill, recalled, refused."""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.protocol.bodies.cluster import KVTable
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.recall_handle import RecallHandle
from skylarkmq.protocol.record import decode
from tests.harness.daemon import Daemon, running
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse

pytestmark = pytest.mark.daemon

SEND = {"a": "PG", "b": "T", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "m": False}
PULL = {
    "consumerGroup": "CG", "queueId": 0, "maxMsgNums": 32, "commitOffset": 0, "subVersion": 1, "subscription": "*",
    "sysFlag": 6, "suspendTimeoutMillis": 1_000,
}  # fmt: skip
SETTINGS = {"mappedFileSizeCommitLog": 65_536, "mappedFileSizeTimerLog": 4_096, "recallMessageEnable": "true"}


class Client(RawClient):
    """A client with the requests of these tests."""

    def send(self, body: bytes, name: str, value: int, key: str = "") -> RawResponse:
        properties = f"{name}\x01{value}\x02" + (f"UNIQ_KEY\x01{key}\x02" if key else "")
        return self.call(RequestCode.SEND_MESSAGE_V2, SEND | {"i": properties}, body)

    def received(self, count: int) -> list[MessageExt]:
        """Wait for `count` messages of the topic, and return them."""
        found: list[MessageExt] = []
        deadline = time.monotonic() + WAIT_LIMIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            response = self.call(RequestCode.PULL_MESSAGE, PULL | {"topic": "T", "queueOffset": len(found)})
            found += decode(response.body)
        return found

    def end(self) -> int:
        return int(self.call(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}).ext["offset"])

    def runtime(self) -> Mapping[str, str]:
        return KVTable.decode(self.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table

    def wait_for_backlog(self, count: int) -> None:
        """Wait until so many messages wait for their time."""
        deadline = time.monotonic() + WAIT_LIMIT_S
        while self.runtime()["timerCongestNum"] != str(count):
            assert time.monotonic() < deadline

    def recall(self, handle: str, topic: str = "T") -> RawResponse:
        fields = {"producerGroup": "PG", "topic": topic, "recallHandle": handle}
        return self.call(RequestCode.RECALL_MESSAGE, fields)


@contextmanager
def started(directory: Path, **settings: Any) -> Iterator[tuple[Daemon, Client]]:
    directory.mkdir(exist_ok=True)
    with (
        running(directory=directory, settings=SETTINGS | settings) as daemon,
        Client(LOOPBACK, daemon.broker_port) as client,
    ):
        yield daemon, client


def test_delivery_is_in_time_and_reported(tmp_path: Path) -> None:
    """All three properties; never early, at most a step late; request 28 returns the backlog; there are no files
    before."""
    with started(tmp_path) as (daemon, client):
        assert not list(tmp_path.rglob("timer*"))
        client.send(b"later", "TIMER_DELAY_SEC", 3_600, "L")
        client.wait_for_backlog(1)
        begin = time.time() * 1000
        responses = [
            client.send(b"sec", "TIMER_DELAY_SEC", 1, "A"),
            client.send(b"ms", "TIMER_DELAY_MS", 1_500, "B"),
            client.send(b"at", "TIMER_DELIVER_MS", int(begin) + 1_200, "C"),
            client.send(b"past", "TIMER_DELIVER_MS", int(begin) - 1, "D"),
        ]
        assert [response.code for response in responses] == [0, 0, 0, 0]
        assert [int(response.ext["queueOffset"]) for response in responses] == [1, 2, 3, 0]
        assert [response.ext.get("recallHandle") is None for response in responses] == [False, False, False, True]
        found = {message.body: message.store_timestamp - begin for message in client.received(4)}
        for body, due_ms in ((b"sec", 1_000), (b"ms", 1_500), (b"at", 1_199)):
            assert due_ms <= found[body]
        told = client.runtime()
        assert (told["timerReadBehind"], told["timerOffsetBehind"], told["timerCongestNum"]) == ("0", "0", "1")
        assert daemon.stop() == 0
    names = {path.name for path in tmp_path.rglob("timer*")}
    assert names >= {"timerwheel", "timerlog", "timercheck", "timermetrics"}


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_during_delivery_loses_nothing(tmp_path: Path, end: signal.Signals) -> None:
    """However the process ends during delivery: all messages are delivered; after a clean stop, each of them once."""
    with started(tmp_path) as (daemon, client):
        begin = int(time.time() * 1000)
        for n in range(300):
            assert client.send(b"%d" % n, "TIMER_DELIVER_MS", begin + 1_000 + n * 10).code == 0
        client.received(1)
        assert daemon.stop(end) == (0 if end is signal.SIGTERM else -signal.SIGKILL)
    with started(tmp_path) as (_, client):
        assert client.send(b"last", "TIMER_DELIVER_MS", begin + 5_000).code == 0
        deadline = time.monotonic() + WAIT_LIMIT_S
        while (messages := client.received(client.end()))[-1].body != b"last":
            assert time.monotonic() < deadline
    assert {message.body for message in messages} == {b"%d" % n for n in range(300)} | {b"last"}
    for message in messages[:-1]:
        assert message.store_timestamp >= begin + 1_000 + int(message.body) * 10
    assert end is signal.SIGKILL or len(messages) == 301


def test_a_message_is_recalled(tmp_path: Path) -> None:
    """By its handle only; invalid recalls are refused as by RocketMQ."""
    with started(tmp_path) as (_, client):
        handle = client.send(b"gone", "TIMER_DELAY_MS", 2_500, "KEY").ext["recallHandle"]
        client.send(b"stays", "TIMER_DELAY_MS", 2_500, "OTHER")
        assert RecallHandle.decode(handle).unique_key == "KEY"
        response = client.recall(handle)
        assert (response.code, response.ext) == (0, {"MSG_REGION": "DefaultRegion", "msgId": "KEY"})
        topic, broker, at, key = RecallHandle.decode(handle)
        refused = [
            client.recall("nonsense"),
            client.recall(RecallHandle("Other", broker, at, key).encode()),
            client.recall(RecallHandle(topic, "another", at, key).encode()),
            client.recall(RecallHandle(topic, broker, "1", key).encode()),
            client.recall(handle, "Unknown"),
        ]
        assert [(response.code, response.remark) for response in refused] == [
            (ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
            (ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match"),
            (ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available"),
            (ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
            (ResponseCode.TOPIC_NOT_EXIST, "recall failed, the topic[Unknown] not exist"),
        ]
        client.send(b"last", "TIMER_DELAY_MS", 3_500)
        assert [message.body for message in client.received(2)] == [b"stays", b"last"]


def test_refused_timers_and_recalls(tmp_path: Path) -> None:
    """Too far ahead, no number, recalls unless they are turned on, and all timers while they are off."""
    with started(tmp_path / "a", recallMessageEnable="false", timerMaxDelaySec=10) as (_, client):
        illegal = [client.send(b"far", "TIMER_DELAY_SEC", 11), client.send(b"x", "TIMER_DELAY_MS\x01x\x02A", 1)]
        assert [response.code for response in illegal] == [13, 13]
        assert (illegal[0].remark or "").startswith("timer message illegal, the delay time should not be bigger than")
        response = client.recall("any")
        assert (response.code, response.remark) == (16, "recall failed, operation is forbidden")
    with started(tmp_path / "b", timerWheelEnable="false") as (_, client):
        response = client.send(b"one", "TIMER_DELAY_SEC", 1)
        assert (response.code, response.remark) == (
            1,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
