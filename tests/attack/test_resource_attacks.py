"""Attacks on the daemon's time, memory, names or settings that once succeeded; `test_store_attacks.py` describes the
checks after each.
"""

import json
import re
import resource
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.protocol import javajson
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.message import BatchRecord, encode_batch
from tests.attack.arena import Arena
from tests.attack.normal_clients import Ledger, pull_header, send_header
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse, frame, texts

pytestmark = pytest.mark.crash

ELSEWHERE: Final = "127.0.0.2"
CPU_LIMIT_S: Final = 0.5
"""The CPU time of the daemon during one request of a normal client. The command checks its time: 200 ms."""
SINGLE: Final = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}


@pytest.mark.parametrize("count", [(1 << 31) - 1, 1 << 20])
def test_a_topic_with_too_many_queues_is_refused(arena: Arena, count: int) -> None:
    """A topic with more queues than the limit is refused; the remark names the setting."""
    client = arena.client()
    header: dict[str, object] = {"topic": "Wide", "defaultTopic": "TBW102", "perm": 6, **SINGLE}
    header |= {"readQueueNums": count, "writeQueueNums": count}
    response = client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert_at_limit(response, "maxQueuesPerTopic")
    assert client.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Wide"}).code == ResponseCode.TOPIC_NOT_EXIST
    arena.finish()


def assert_at_limit(response: RawResponse, setting: str) -> None:
    """Check the refusal; the remark names the setting."""
    assert response.code == ResponseCode.SYSTEM_BUSY
    assert response.remark is not None
    assert setting in response.remark


def longest_cpu_s(arena: Arena, attack: Callable[..., object], topic: str = "Normal", body: bytes = b"normal") -> float:
    """Return the most CPU time of the daemon, in seconds, during one request of a normal client, which sends to `topic`
    during `attack()`. It shows how long the loop works on one request, also on a busy machine."""
    normal, longest, over = arena.client(), 0.0, threading.Event()

    def send_request() -> None:
        nonlocal longest
        while not over.is_set():
            begun_s = arena.cpu_s()
            normal.call(RequestCode.SEND_MESSAGE_V2, send_header(topic), body)
            longest = max(longest, arena.cpu_s() - begun_s)
            arena.rss_bytes()

    thread = threading.Thread(target=send_request)
    thread.start()
    try:
        attack()
    finally:
        over.set()
        thread.join()
    return longest


def test_a_heartbeat_with_too_many_groups_is_refused(arena: Arena) -> None:
    """Many groups in a heartbeat are refused at the limit; the loop is not blocked, and nothing of them is retained.

    130,000 groups make a body that is too large for any heartbeat.
    """
    client = arena.client()
    subscribed = [{"topic": "Orders", "subString": "*", "subVersion": 1}]
    responses: list[RawResponse] = []
    before = arena.rss_bytes()
    for count in (130_000, 20_000):
        consumers = [{"groupName": f"g{n}", "subscriptionDataSet": subscribed if n < 10 else []} for n in range(count)]
        body = json.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": consumers}).encode()
        longest_s = longest_cpu_s(
            arena, lambda body=body: responses.append(client.call(RequestCode.HEART_BEAT, body=body))
        )
        assert longest_s < CPU_LIMIT_S
    assert responses[0].code != ResponseCode.SUCCESS
    assert_at_limit(responses[1], "maxGroupsPerClient")
    assert arena.rss_bytes() - before < 100 << 20
    new = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} | SINGLE
    longest_s = longest_cpu_s(arena, lambda: client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, new))
    assert longest_s < CPU_LIMIT_S
    arena.finish()


def test_only_existing_queues_can_be_locked(arena: Arena) -> None:
    """Only existing queues can be locked: 100,000 others keep no group from locking its own."""
    client, ledger = arena.client(), Ledger("Orders")
    ledger.send(client, 1)
    broker = javajson.loads(arena.namesrv_client().call(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    [name] = broker["brokerAddrTable"]
    queues = [{"topic": "Orders", "brokerName": name, "queueId": 1_000 + n} for n in range(100_000)]
    lock_request = {"clientId": "c", "consumerGroup": "greedy", "mqSet": queues}
    response = client.call(RequestCode.LOCK_BATCH_MQ, body=json.dumps(lock_request).encode())
    if response.code == ResponseCode.SUCCESS:
        assert json.loads(response.body)["lockOKMQSet"] == []
    own = {"topic": "Orders", "brokerName": name, "queueId": 0}
    lock_request = {"clientId": "d", "consumerGroup": "modest", "mqSet": [own]}
    response = client.call(RequestCode.LOCK_BATCH_MQ, body=json.dumps(lock_request).encode())
    assert response.code == ResponseCode.SUCCESS
    assert [queue["queueId"] for queue in json.loads(response.body)["lockOKMQSet"]] == [0]
    arena.finish()


def test_slow_frames_do_not_delay_other_connections(arena: Arena) -> None:
    """18 peers that send large frames slowly do not hold up a normal 1 MB send."""
    peers = [socket.create_connection((LOOPBACK, arena.broker_port)) for _ in range(18)]
    over = threading.Event()

    def trickle() -> None:
        alive = list(peers)
        while not over.wait(0.05):
            for peer in list(alive):
                try:
                    peer.send(b"x" * 512, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                except OSError:
                    alive.remove(peer)

    for peer in peers:
        peer.settimeout(1.0)
        peer.sendall(frame({"code": 310, "opaque": 1, "extFields": {}}, b"x" * 15_000_000)[:70_000])
    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        response = arena.client(30.0).call(RequestCode.SEND_MESSAGE_V2, send_header("Orders"), b"y" * 1_000_000)
    finally:
        over.set()
        thread.join()
        for peer in peers:
            peer.close()
    assert response.code == ResponseCode.SUCCESS
    arena.finish()


def test_a_live_broker_cannot_be_registered_from_another_host(arena: Arena) -> None:
    """A registration of a live broker from another host is refused; the route stays, the log names both."""
    Ledger("Orders").send(arena.client(), 1)
    namesrv = arena.namesrv_client()
    cluster = javajson.loads(namesrv.call(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    [[name, broker]] = cluster["brokerAddrTable"].items()
    [address] = broker["brokerAddrs"].values()
    header = {
        "brokerName": name, "brokerAddr": "10.6.6.6:10911", "clusterName": broker["cluster"], "brokerId": 0,
        "haServerAddr": "10.6.6.6:10912",
    }  # fmt: skip
    version = {"stateVersion": 1 << 62, "timestamp": 1 << 62, "counter": 1 << 62}
    topics = {"Orders": {"topicName": "Orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}}
    body = {"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": topics}, "filterServerList": []}
    attacker = arena.namesrv_client(source=ELSEWHERE)
    for addr in ("10.6.6.6:10911", address):
        header["brokerAddr"] = addr
        response = attacker.call(RequestCode.REGISTER_BROKER, header, json.dumps(body).encode())
        assert response.code != ResponseCode.SUCCESS
    after = javajson.loads(namesrv.call(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert after["brokerAddrTable"] == cluster["brokerAddrTable"]
    assert "10.6.6.6:10911" in arena.daemon.output
    assert address in arena.daemon.output
    arena.finish()


@pytest.mark.parametrize(
    "line",
    [
        "bindAddress=0.0.0.0",
        "storePathRootDir=/nonexistent/x",
        "storePathCommitLog=/nonexistent/x",
        "namesrvAddr=10.6.6.6:9876",
        "mappedFileSizeCommitLog=4096",
        "mappedFileSizeConsumeQueue=20",
        "listenPort=1",
    ],
)
def test_settings_of_addresses_and_paths_cannot_be_changed(arena: Arena, line: str) -> None:
    """Keys that change addresses, paths, name servers or file sizes are refused; the next start equals the last."""
    client = arena.client()
    before = client.call(RequestCode.GET_BROKER_CONFIG).body
    response = client.call(RequestCode.UPDATE_BROKER_CONFIG, body=line.encode())
    assert response.code != ResponseCode.SUCCESS
    assert client.call(RequestCode.GET_BROKER_CONFIG).body == before
    arena.restart()
    arena.finish()


def test_half_open_http_requests_do_not_exhaust_descriptors(arena: Arena) -> None:
    """Half-open HTTP requests leave descriptors to the store: sends get responses, also to new topics."""
    process = arena.daemon.process.pid
    in_use = len(list(Path(f"/proc/{process}/fd").iterdir()))
    resource.prlimit(process, resource.RLIMIT_NOFILE, (in_use + 150, in_use + 150))
    peers = []
    for _ in range(300):
        peer = socket.create_connection((LOOPBACK, arena.daemon.health_port), 5.0)
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        peers.append(peer)
    try:
        for number in range(20):
            with RawClient(LOOPBACK, arena.broker_port) as client:
                Ledger(f"Topic{number}").send(client, 2)
    finally:
        for peer in peers:
            peer.close()
    arena.finish()


def test_only_existing_queues_have_committed_offsets(arena: Arena) -> None:
    """Only existing queues have committed offsets."""
    client, ledger = arena.client(), Ledger("Orders")
    ledger.send(client, 1)
    assert ledger.missing(client) == []  # its pulls create the group
    header = {"consumerGroup": "CG", "topic": "Orders", "commitOffset": 1}
    requests = [(header | {"queueId": queue_id}, b"") for queue_id in (0, *range(100, 2_100), -1, (1 << 31) - 1)]
    responses = list(client.pipeline(RequestCode.UPDATE_CONSUMER_OFFSET, requests))
    assert len(responses) == len(requests)
    table = client.call(RequestCode.GET_ALL_CONSUMER_OFFSET).body.decode()
    rows = re.search(r'"Orders@CG"\s*:\s*\{([^}]*)\}', table)
    assert rows is not None, table[:200]
    assert rows[1].replace('"', "").strip() == "0:1"
    arena.finish()


def test_a_decompression_bomb_uses_neither_time_nor_memory(arena: Arena) -> None:
    """A body that decompresses to an excessive size uses neither the loop nor memory."""
    header = {
        "brokerName": "b", "brokerAddr": "10.0.0.9:1", "clusterName": "c", "brokerId": 0, "haServerAddr": "",
        "compressed": "true",
    }  # fmt: skip
    before = arena.rss_bytes()
    body = zlib.compress(bytes(400 << 20), 9)
    longest_s = longest_cpu_s(arena, lambda: _try(arena.namesrv_client(), RequestCode.REGISTER_BROKER, header, body))
    assert longest_s < CPU_LIMIT_S
    assert arena.max_rss_bytes - before < 150 << 20
    arena.finish()


def test_a_malformed_heartbeat_does_not_block_the_loop(arena: Arena) -> None:
    """16 MB that are not a heartbeat do not block the loop."""
    body = b"{'clientID': 'c', 'consumerDataSet': [" + b"{'groupName': 'g'}," * 830_000
    longest_s = longest_cpu_s(arena, lambda: _try(arena.client(), RequestCode.HEART_BEAT, {}, body))
    assert longest_s < CPU_LIMIT_S
    arena.finish()


def _try(client: RawClient, code: int, header: dict[str, Any], body: bytes) -> None:
    """Make a request that may get an error or a closed connection."""
    try:
        client.call(code, header, body)
    except ConnectionError:
        pass  # one of the allowed outcomes


def test_control_characters_in_names_are_refused(arena: Arena) -> None:
    """Control characters in names are refused, forge no log line, and do not reach a terminal by `store dump`."""
    client = arena.client()
    escape, forged = "\x1b[2J", "\n2026-01-01 00:00:00,000 ERROR broker.forged forged"
    for name in (f"T{escape}", f"T{forged}"):
        sent = client.call(RequestCode.SEND_MESSAGE_V2, send_header(name), b"x")
        assert sent.code != ResponseCode.SUCCESS
        new = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} | SINGLE
        assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, new).code != ResponseCode.SUCCESS
        client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
        client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": name})
        client.call(RequestCode.UPDATE_BROKER_CONFIG, body=f"key{escape}{name}=x".encode())
        beat = {"clientID": name, "producerDataSet": [{"groupName": name}], "consumerDataSet": []}
        client.call(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())
        properties = f"KEYS\x01k{name}\x02TAGS\x01t{name}\x02own{name}\x01{name}\x02"
        client.call(RequestCode.SEND_MESSAGE_V2, send_header("Orders", properties), name.encode())
    arena.finish()
    logged = arena.daemon.output
    assert "\x1b" not in logged
    assert "\n2026-01-01 00:00:00,000 ERROR broker.forged" not in logged
    dump = [sys.executable, "-m", "skylarkmq.broker", "store", "dump", str(arena.store)]
    shown = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    assert "Orders" in shown
    assert "\x1b" not in shown


def test_a_pull_inspects_a_limited_number_of_units(arena: Arena) -> None:
    """A pull for 2^31-1 messages inspects a limited number of units."""
    client = arena.client()
    batch = encode_batch([BatchRecord(0, b"x", b"TAGS\x01other\x02") for _ in range(1_000)])
    requests = [(send_header("Orders", m="true"), batch)] * 20
    responses = [response.code for _, response in client.pipeline(RequestCode.SEND_BATCH_MESSAGE, requests)]
    assert responses == [ResponseCode.SUCCESS] * 20
    wanted = pull_header("Orders", 0, maxMsgNums=(1 << 31) - 1, subscription="wanted", subVersion=1)
    response = client.call(RequestCode.PULL_MESSAGE, wanted)
    assert 0 < int(response.ext["nextBeginOffset"]) <= 16_000
    arena.finish()


@pytest.mark.parametrize("member", ["(sent)", "(body)", "dialect", "_x", "raw_ext", "columns"])
def test_unknown_header_fields_are_ignored(arena: Arena, member: str) -> None:
    """A member of the header that RocketMQ does not have is ignored, whatever its name and value."""
    values: tuple[Any, ...] = (1, "x", [], {}, None)
    for value in values:
        header = {"code": 310, "opaque": 1, "extFields": texts(send_header("T")), member: value}
        with socket.create_connection((LOOPBACK, arena.broker_port), 5.0) as peer:
            peer.sendall(frame(header, b"body"))
            peer.recv(1 << 16)  # a response, or the end of this connection
    Ledger("Orders").send(arena.client(), 1)
    arena.finish()
