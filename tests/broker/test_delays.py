"""Delayed messages through the daemon: never early, none lost by a restart, a kill, or a changed level table."""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.protocol.bodies.cluster import KVTable
from skylarkmq.protocol.bodies.offsets import DelayOffsets
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.record import decode
from tests.harness.daemon import Daemon, running
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient

pytestmark = pytest.mark.daemon

SEND = {"a": "PG", "b": "T", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "m": False}
PULL = {
    "consumerGroup": "CG", "queueId": 0, "maxMsgNums": 32, "commitOffset": 0, "subVersion": 1, "subscription": "*",
}  # fmt: skip
SUSPEND_WITH_SUBSCRIPTION, WITH_SUBSCRIPTION = 6, 4
SEGMENTS = {"mappedFileSizeCommitLog": 65_536}


class Client(RawClient):
    """A client with the requests of these tests."""

    def send(self, body: bytes, level: int, topic: str = "T") -> None:
        response = self.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": topic, "i": f"DELAY\x01{level}\x02"}, body)
        assert response.code == 0, response

    def received(self, count: int, topic: str = "T") -> list[MessageExt]:
        """Wait for `count` messages of the topic, and return them."""
        found: list[MessageExt] = []
        deadline = time.monotonic() + WAIT_LIMIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            where = {"topic": topic, "queueOffset": len(found), "suspendTimeoutMillis": 1_000}
            response = self.call(RequestCode.PULL_MESSAGE, PULL | where | {"sysFlag": SUSPEND_WITH_SUBSCRIPTION})
            found += decode(response.body)
        return found

    def waiting(self, level: int) -> list[MessageExt]:
        """Return all messages of a level's queue."""
        found: list[MessageExt] = []
        while True:
            where = {"topic": SystemTopic.SCHEDULE, "queueId": level - 1, "queueOffset": len(found)}
            response = self.call(
                RequestCode.PULL_MESSAGE, PULL | where | {"sysFlag": WITH_SUBSCRIPTION, "suspendTimeoutMillis": 0}
            )
            if response.code:
                return found
            found += decode(response.body)

    def end_of(self, topic: str) -> int:
        return int(self.call(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}).ext["offset"])

    def offsets(self) -> dict[int, int]:
        return DelayOffsets.decode(self.call(RequestCode.GET_ALL_DELAY_OFFSET).body).offset_table

    def runtime(self) -> Mapping[str, str]:
        return KVTable.decode(self.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table


@contextmanager
def started(directory: Path, **settings: Any) -> Iterator[tuple[Daemon, Client]]:
    with (
        running(directory=directory, settings=SEGMENTS | settings) as daemon,
        Client(LOOPBACK, daemon.broker_port) as client,
    ):
        yield daemon, client


def test_delivery_is_never_early_and_progress_is_reported(tmp_path: Path) -> None:
    """A second after it was stored, to a waiting consumer; requests 45 and 28 return the progress of each level."""
    with started(tmp_path) as (_, client):
        client.send(b"later", 2)
        client.send(b"one", 1)
        (message,) = client.received(1)
        (waited,) = client.waiting(1)
        assert (message.body, waited.body) == (b"one", b"one")
        assert message.store_timestamp >= waited.store_timestamp + 1_000
        assert message.properties == waited.properties
        assert client.offsets() == {1: 1}
        told = {key: text for key, text in client.runtime().items() if key.startswith("scheduleMessageOffset")}
        assert told == {"scheduleMessageOffset_1": "1,1", "scheduleMessageOffset_2": "0,1"}


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_during_delivery_loses_nothing(tmp_path: Path, end: signal.Signals) -> None:
    """However the process ends during delivery: all messages are delivered; after a clean stop, each of them once."""
    bodies = [b"%d" % n + b"x" * 500 for n in range(300)]
    with started(tmp_path, messageDelayLevel="1s") as (daemon, client):
        for body in bodies:
            client.send(body, 1)
        client.received(1)
        assert daemon.stop(end) == (0 if end is signal.SIGTERM else -signal.SIGKILL)
    with started(tmp_path, messageDelayLevel="1s") as (_, client):
        messages = client.received(len(bodies))
        dues = {message.body: message.store_timestamp + 1_000 for message in client.waiting(1)}
        deadline = time.monotonic() + WAIT_LIMIT_S
        while client.offsets() != {1: len(bodies)}:
            assert time.monotonic() < deadline
        messages = client.received(client.end_of("T"))
    assert {message.body for message in messages} == set(bodies)
    assert all(message.store_timestamp >= dues[message.body] for message in messages)
    assert end is signal.SIGKILL or len(messages) == len(bodies)


def test_a_level_table_changed_between_starts(tmp_path: Path) -> None:
    """A shorter delay applies to waiting messages, and removed levels are emptied: no message waits for ever."""
    with started(tmp_path, messageDelayLevel="1h 2s") as (daemon, client):
        client.send(b"an hour", 1)
        client.send(b"two seconds", 2)
        assert daemon.stop() == 0
    with started(tmp_path, messageDelayLevel="1s") as (daemon, client):
        begun_ms = time.time() * 1000
        messages = {message.body: message for message in client.received(2)}
        assert set(messages) == {b"an hour", b"two seconds"}
        assert messages[b"an hour"].store_timestamp >= begun_ms
        assert "level not in messageDelayLevel" in daemon.output
        assert "delayed messages are due later than their level permits" in daemon.output


def test_delayed_messages_are_deleted_with_their_topic(tmp_path: Path) -> None:
    """Deleted while they wait, they are not delivered, even if the topic had no message yet and is created again."""
    with started(tmp_path, messageDelayLevel="1s 3s") as (_, client):
        client.send(b"before", 1, "Gone")
        assert client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == 0
        client.send(b"behind", 1, "Gone")
        (message,) = client.received(1, "Gone")
        assert message.body == b"behind"
        assert client.offsets() == {1: 2}


def test_more_levels_than_queues_of_the_schedule_topic(tmp_path: Path) -> None:
    """The schedule topic has 18 queues, as in RocketMQ, however long the level table: the 20th level delivers, also if
    the table became longer after the first start."""
    with started(tmp_path) as (daemon, client):
        client.send(b"first", 1)
        client.received(1)
        assert daemon.stop(signal.SIGTERM) == 0
    with started(tmp_path, messageDelayLevel=" ".join(["1s"] * 20)) as (_, client):
        client.send(b"last", 20)
        assert [message.body for message in client.received(2)] == [b"first", b"last"]
        assert client.offsets() == {1: 1, 20: 1}
        config = client.call(RequestCode.GET_TOPIC_CONFIG, {"topic": SystemTopic.SCHEDULE})
        assert b'"readQueueNums":18' in config.body
