"""The whole daemon over its ports: acknowledged messages survive any end, and bad clients affect no other client."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.record import decode
from tests.harness.daemon import Daemon, running
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse, frame, texts

pytestmark = pytest.mark.daemon

SEND = {
    "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "TAGS\x01t\x02", "m": False,
}  # fmt: skip
PULL = {
    "consumerGroup": "CG", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "commitOffset": 0,
    "suspendTimeoutMillis": 0, "subVersion": 1, "subscription": "*",
}  # fmt: skip
SUSPEND_WITH_SUBSCRIPTION = 6
SUBSCRIPTION = 4


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running(directory=tmp_path) as daemon:
        yield daemon


def client(daemon: Daemon) -> RawClient:
    return RawClient(LOOPBACK, daemon.broker_port)


def send(client: RawClient, body: bytes) -> RawResponse:
    return client.call(RequestCode.SEND_MESSAGE_V2, SEND, body)


def pull_all(client: RawClient) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        response = client.call(RequestCode.PULL_MESSAGE, PULL | {"queueOffset": len(bodies), "sysFlag": SUBSCRIPTION})
        if response.code != ResponseCode.SUCCESS:
            assert response.code == ResponseCode.PULL_NOT_FOUND, response
            return bodies
        bodies += [message.body for message in decode(response.body)]


def parked(daemon: Daemon, offset: int, wait_ms: int) -> socket.socket:
    """Return a connection with a parked pull."""
    connection = socket.create_connection((LOOPBACK, daemon.broker_port), 10)
    ext = texts(PULL | {"queueOffset": offset, "sysFlag": SUSPEND_WITH_SUBSCRIPTION, "suspendTimeoutMillis": wait_ms})
    # the response to a second request shows that the first one is handled
    connection.sendall(frame({"code": 11, "opaque": 1, "extFields": ext}) + frame({"code": 99_999, "opaque": 2}))
    assert response_on(connection)["opaque"] == 2
    return connection


def response_on(connection: socket.socket) -> dict[str, object]:
    stream = connection.makefile("rb")
    payload = stream.read(int.from_bytes(stream.read(4), "big"))
    header: dict[str, object] = json.loads(payload[4 : 4 + int.from_bytes(payload[1:4], "big")])
    return header


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_acknowledged_messages_survive_the_end_of_the_process(tmp_path: Path, end: signal.Signals) -> None:
    """However the process ends, the next one has every message and continues at the same offset."""
    bodies = [b"%d" % n + os.urandom(n * 7) for n in range(300)]  # over several segments
    with running(directory=tmp_path, settings={"mappedFileSizeCommitLog": 65_536}) as daemon, client(daemon) as one:
        assert {send(one, body).code for body in bodies} == {0}
        code = daemon.stop(end)
    assert code == (-signal.SIGKILL if end is signal.SIGKILL else 0)
    with running(directory=tmp_path, settings={"mappedFileSizeCommitLog": 65_536}) as daemon, client(daemon) as one:
        assert pull_all(one) == bodies
        assert send(one, b"next").ext["queueOffset"] == str(len(bodies))


@pytest.mark.parametrize("attempt", range(4))
def test_a_topic_created_by_a_send_survives_a_kill(tmp_path: Path, attempt: int) -> None:
    """A kill after the first acknowledgment comes before the topic is saved; its message can be pulled."""
    with running(directory=tmp_path) as daemon, client(daemon) as one:
        assert send(one, b"first").code == 0
        daemon.stop(signal.SIGKILL)
    with running(directory=tmp_path) as daemon, client(daemon) as one:
        assert pull_all(one) == [b"first"]
        assert send(one, b"second").code == 0


def test_a_new_topic_has_a_route_when_its_creation_succeeds(daemon: Daemon) -> None:
    """UPDATE_AND_CREATE_TOPIC (17) registers with the name server before its response; the broker's own topics exist
    from the start."""
    with client(daemon) as one, RawClient(LOOPBACK, daemon.namesrv_port) as names:
        queues = {"readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        flags = {"defaultTopic": "TBW102", "topicSysFlag": 0, "order": False}
        assert one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "New", **queues, **flags}).code == 0
        for topic in ("New", "TBW102", "DefaultCluster", socket.gethostname()):
            assert names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0, topic


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    """After request 215 and a kill its queues, offsets and messages are gone; created again, it begins at 0; retries
    stay."""
    retry = "%RETRY%CG"
    with running(directory=tmp_path) as daemon, client(daemon) as one:
        assert send(one, b"old 1").code == 0
        pull_all(one)  # creates the group and its retry topic
        assert send(one, b"old 2").code == 0
        for body in (b"again 1", b"again 2"):
            assert one.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": retry}, body).code == 0
        offset = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 2}
        assert one.call(RequestCode.UPDATE_CONSUMER_OFFSET, offset).code == 0
        assert one.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
        daemon.stop(signal.SIGKILL)
    with running(directory=tmp_path) as daemon, client(daemon) as one:
        queue = {"topic": "T", "queueId": 0}
        assert one.call(RequestCode.GET_MAX_OFFSET, queue).ext["offset"] == "0"
        assert one.call(RequestCode.GET_MAX_OFFSET, {"topic": retry, "queueId": 0}).ext["offset"] == "2"
        assert send(one, b"new").ext["queueOffset"] == "0"
        assert pull_all(one) == [b"new"]


def test_a_parked_pull_is_woken_by_the_next_message(daemon: Daemon) -> None:
    """The response of a waiting pull contains the message."""
    with client(daemon) as one:
        send(one, b"first")
        with parked(daemon, 1, wait_ms=60_000) as waiting:
            send(one, b"second")
            assert response_on(waiting)["code"] == ResponseCode.SUCCESS


def test_a_parked_pull_gets_a_response_when_the_daemon_stops(daemon: Daemon) -> None:
    """No client is left waiting, and the exit code is 0."""
    with client(daemon) as one:
        send(one, b"first")
        with parked(daemon, 1, wait_ms=60_000) as waiting:
            assert daemon.stop() == 0
            assert response_on(waiting)["code"] == ResponseCode.PULL_NOT_FOUND


def test_bad_clients_affect_no_other_client(daemon: Daemon) -> None:
    """Invalid bytes, a peer that never reads, and one that sends byte by byte: a normal client is served meanwhile."""
    with ExitStack() as stack:
        normal = stack.enter_context(client(daemon))
        for body in (os.urandom(60_000) for _ in range(64)):
            assert send(normal, body).code == 0
        deaf = socket.create_connection((LOOPBACK, daemon.broker_port), 10)
        stack.enter_context(deaf)
        deaf.setblocking(False)
        slow = stack.enter_context(socket.create_connection((LOOPBACK, daemon.broker_port), 10))
        whole = frame({"code": 28, "opaque": 9})
        pull = frame({"code": 11, "opaque": 1, "extFields": texts(PULL | {"sysFlag": SUBSCRIPTION})})
        for turn in range(len(whole)):
            slow.sendall(whole[turn : turn + 1])
            send_without_reading(deaf, pull * 50)
            with socket.create_connection((LOOPBACK, daemon.broker_port), 10) as garbage:
                garbage.sendall(os.urandom(64) if turn % 2 else b"GET / HTTP/1.1\r\n\r\n")
                if turn % 2 == 0:
                    assert garbage.recv(1) == b""
            assert send(normal, b"%d" % turn).code == 0
        assert response_on(slow)["opaque"] == 9
        assert rss_anon_mb(daemon) < 100
        assert daemon.page("/readyz")[0] == 200


def send_without_reading(deaf: socket.socket, data: bytes) -> None:
    """Send as much as the kernel takes, and never read."""
    try:
        deaf.send(data)
    except BlockingIOError:
        pass  # its own buffers are full, as intended


def rss_anon_mb(daemon: Daemon) -> float:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def test_many_clients_at_once_get_their_own_responses(daemon: Daemon) -> None:
    """Twenty connections in parallel: every message is stored once, every response belongs to its request."""
    offsets: list[int] = []

    def work(number: int) -> None:
        with client(daemon) as one:
            offsets.extend(int(send(one, b"%d" % number).ext["queueOffset"]) for _ in range(50))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == list(range(1000))
