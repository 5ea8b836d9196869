"""Attacks on internal topics and names through the daemon: no file outside of the store changes, no message is lost.

The directory above the store is watched: its files and their content stay unchanged, through forged messages, kills,
stops, restarts and deletions by request.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.message import MessageExt, encode_properties
from skylarkmq.protocol.record import decode
from tests.harness.daemon import Daemon, running
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse
from tests.harness.stores import BORN_HOST

pytestmark = pytest.mark.daemon

TIMER: Final = "rmq_sys_wheel_timer"
SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
SETTINGS: Final = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeTimerLog": 4_096,
    "flushDiskType": "SYNC_FLUSH",
    "recallMessageEnable": "true",
}
SEND: Final = {"a": "PG", "b": "Orders", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "m": False}
PULL: Final = {
    "consumerGroup": "CG", "queueId": 0, "maxMsgNums": 32, "commitOffset": 0, "subVersion": 1, "subscription": "*",
    "sysFlag": 6, "suspendTimeoutMillis": 1_000,
}  # fmt: skip
BAD_TOPICS: Final = ["../../victim/2024", "a/b", ".", "a\0b", "../consumequeue/Orders", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]


class Client(RawClient):
    """A client that sends any message."""

    def send(self, body: bytes, topic: str = "Orders", **properties: str) -> RawResponse:
        return self.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": topic, "i": encode_properties(properties)}, body)

    def received(self, count: int, topic: str = "Orders") -> list[MessageExt]:
        """Wait for `count` messages of the topic, and return them."""
        found: list[MessageExt] = []
        deadline = time.monotonic() + WAIT_LIMIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            response = self.call(RequestCode.PULL_MESSAGE, PULL | {"topic": topic, "queueOffset": len(found)})
            found += decode(response.body)
        return found


class Watched:
    """A directory with a store, and with other files that must not change."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self.broker = parent / "broker"
        self.store = self.broker / "store"
        self.broker.mkdir()
        victim = parent / "victim" / "2024"
        (victim / "0").mkdir(parents=True)
        (victim / "backup.tar").write_bytes(b"years of work")
        (victim / "0" / f"{0:020}").write_bytes(b"a file with the name of a segment")
        self._before = self._outside()

    def _outside(self) -> dict[str, bytes | None]:
        paths = [path for path in self.parent.rglob("*") if self.broker not in (path, *path.parents)]
        return {str(path): path.read_bytes() if path.is_file() else None for path in paths}

    def check(self) -> None:
        assert self._outside() == self._before
        assert {path.name for path in self.broker.iterdir() if path.is_dir()} == {"store"}
        assert {path.name for path in (self.store / "consumequeue").glob("*")} <= {"Orders", TIMER, SCHEDULE}

    @contextmanager
    def started(self) -> Iterator[tuple[Daemon, Client]]:
        with (
            running(directory=self.broker, settings=SETTINGS) as daemon,
            Client(LOOPBACK, daemon.broker_port) as client,
        ):
            yield daemon, client


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def attack(client: Client) -> None:
    """Send the messages of rows 2 to 8 of the attack table, and similar ones; each is refused."""
    now_ms = int(time.time() * 1000)
    for topic in BAD_TOPICS:
        forged = {"TIMER_OUT_MS": str(now_ms), "REAL_TOPIC": topic, "REAL_QID": "0"}
        response = client.send(b"forged", TIMER, **forged)
        assert (response.code, response.remark) == (16, f"Sending message to topic[{TIMER}] is forbidden.")
        assert client.send(b"forged", SCHEDULE, **forged).code == 16
        group = {"groupName": f"g/{topic}"}
        assert client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(group).encode()).code == 29
        back = {"offset": 0, "group": f"g/{topic}", "delayLevel": 0}
        assert client.call(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == 26
        assert client.send(b"forged", topic).code in {16, 29}
    for number in ("9" * 5_000, str(2**31), str(2**63)):
        for forged in ({"REAL_QID": number}, {"TIMER_OUT_MS": number}):
            known = {"TIMER_OUT_MS": "1", "REAL_TOPIC": "Orders", "REAL_QID": "0"}
            assert client.send(b"forged", TIMER, **known | forged).code == 16


def deletions(client: Client) -> None:
    """Send the deletions of row 4."""
    assert client.call(RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    for topic in ("../../victim/2024", "../../victim", "..", ".", "a\0b"):
        client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_attacks_change_no_other_file_and_lose_no_message(watched: Watched, end: signal.Signals) -> None:
    """However the process ends; timers are delivered, and a live queue keeps its units."""
    with watched.started() as (daemon, client):
        assert client.send(b"before").code == 0
        assert client.send(b"timer", TIMER_DELAY_MS="1500").code == 0
        attack(client)
        assert client.send(b"behind").code == 0
        deletions(client)
        assert daemon.stop(end) == (0 if end is signal.SIGTERM else -signal.SIGKILL)
        watched.check()
    with watched.started() as (daemon, client):
        assert sorted(message.body for message in client.received(3)) == [b"before", b"behind", b"timer"]
        deletions(client)
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.output
    watched.check()


def put(store: Path, *appends: Append) -> None:
    """Write records that an older version accepted."""
    sizes: Any = {"mapped_file_size_commit_log": 65_536, "mapped_file_size_consume_queue": 20_480}
    config = StoreConfig(store_path_root_dir=store, message_index_enable=False, **sizes)
    opened = MessageStore(config, lambda: int(time.time() * 1000))
    opened.load()
    opened.start()
    for append in appends:
        opened.put(append)
    opened.commit()
    opened.close()


def entry(body: bytes, topic: str, **properties: str) -> Append:
    return Append(topic, 0, body, encode_properties(properties).encode(), 0, 0, 0, 1, BORN_HOST)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_forged_records_of_an_older_version_are_skipped(watched: Watched, end: signal.Signals) -> None:
    """The valid entries before and after the forged ones are delivered once, before and after a restart."""
    now_ms = int(time.time() * 1000)

    def timer(body: bytes, **forged: str) -> Append:
        known = {"TIMER_OUT_MS": str(now_ms), "REAL_TOPIC": "Orders", "REAL_QID": "0", "UNIQ_KEY": body.hex()}
        return entry(body, TIMER, **known | forged)

    def level(body: bytes, **forged: str) -> Append:
        return entry(body, SCHEDULE, **{"DELAY": "1", "REAL_TOPIC": "Orders", "REAL_QID": "0"} | forged)

    makers: tuple[Callable[..., Append], ...] = (timer, level)
    put(watched.store, *(make(b"first") for make in makers))
    for make in makers:
        put(watched.store, *(make(b"bad", REAL_TOPIC=topic) for topic in BAD_TOPICS))
        put(watched.store, *(make(b"bad", REAL_QID=number) for number in ("9" * 5_000, str(2**31))))
    put(watched.store, timer(b"bad", TIMER_OUT_MS="9" * 5_000), timer(b"bad", TIMER_OUT_MS=str(2**63)))
    put(watched.store, *(make(b"last") for make in makers))
    expected = sorted([b"first", b"last"] * 2)
    with watched.started() as (daemon, client):
        assert client.send(b"sent").code == 0
        assert sorted(message.body for message in client.received(5)) == sorted([*expected, b"sent"])
        deletions(client)
        assert daemon.stop(end) == (0 if end is signal.SIGTERM else -signal.SIGKILL)
        watched.check()
    with watched.started() as (daemon, client):
        assert client.send(b"more", TIMER_DELAY_MS="1000").code == 0
        count = 6
        while (bodies := [message.body for message in client.received(count)])[-1] != b"more":
            count = len(bodies) + 1  # a kill repeats messages
        assert set(bodies) == {b"first", b"last", b"sent", b"more"}
        assert end is signal.SIGKILL or len(bodies) == 6
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.output
    watched.check()


def test_an_invalid_group_of_an_older_version_is_harmless(watched: Watched) -> None:
    """It stays in the table, and its name becomes neither a topic nor a path."""
    config = watched.store / "config"
    config.mkdir(parents=True)
    name = "CG/../../../victim/2024"
    groups: dict[str, Any] = {"subscriptionGroupTable": {name: {"groupName": name}}, "dataVersion": {"counter": 1}}
    (config / "subscriptionGroup.json").write_text(json.dumps(groups))
    with watched.started() as (daemon, client):
        client.send(b"one")
        member = {"groupName": name, "subscriptionDataSet": [], "consumeType": "CONSUME_PASSIVELY"}
        beat = {"clientID": "c", "consumerDataSet": [member], "producerDataSet": []}
        assert client.call(RequestCode.HEART_BEAT, body=json.dumps(beat).encode()).code == 0
        response = client.call(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": name, "delayLevel": -1})
        assert (response.code, response.remark) == (1, f"topic[%RETRY%{name}] not exist")
        topics = json.loads(client.call(RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
        assert not [topic for topic in topics if "/" in topic]
        assert daemon.stop() == 0
    watched.check()
    with watched.started() as (daemon, client):
        assert [message.body for message in client.received(1)] == [b"one"]
        deletions(client)
    watched.check()


def test_clients_cannot_forge_log_lines(watched: Watched) -> None:
    """By names, keys, tags or client ids: every line begins with its own time, or belongs to a traceback."""
    forged = "x\n2026-01-01 00:00:00.000 INFO broker forged\x1b[2J"
    with watched.started() as (daemon, client):
        client.send(b"x", forged)
        client.send(b"x", "Orders", KEYS=forged, TAGS=forged)
        client.call(RequestCode.GET_TOPIC_CONFIG, {"topic": forged})
        client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": forged})
        client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": forged, "cleanOffset": "true"})
        client.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": "unknown", "c": forged}, b"x")
        for client_id in (forged, "other"):
            member = {"groupName": "CG", "subscriptionDataSet": [], "consumeType": "CONSUME_PASSIVELY"}
            beat = {"clientID": client_id, "consumerDataSet": [member], "producerDataSet": []}
            client.call(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())
        assert daemon.stop() == 0
        lines = daemon.output.splitlines()
    assert any("x\\n2026-01-01" in line for line in lines)
    assert not [line for line in lines if line.startswith("2026-01-01") or not line.isprintable()]
