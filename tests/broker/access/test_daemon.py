"""Quotas and the audit log in a running broker."""

import asyncio
import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.harness.daemon import MQNAMESRV, Daemon, running
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import Credentials, RawClient
from tests.harness.scraped import scrape

pytestmark = pytest.mark.daemon

SEND = {
    "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "TAGS\x01t\x02", "m": False,
}  # fmt: skip
PULL = {
    "consumerGroup": "CG", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "commitOffset": 0,
    "suspendTimeoutMillis": 0, "subVersion": 1, "subscription": "*", "sysFlag": 4,
}  # fmt: skip
TOPIC = {
    "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
}  # fmt: skip


def client(daemon: Daemon) -> RawClient:
    return RawClient(LOOPBACK, daemon.broker_port)


def configure(one: RawClient, **settings: object) -> None:
    text = "\n".join(f"{key}={value}" for key, value in settings.items())
    assert one.call(RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode()).code == ResponseCode.SUCCESS


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_client_above_its_quota_is_slowed_down_and_loses_nothing(tmp_path: Path) -> None:
    """Sends and pulls on the fast path and pipelined in one read; the quota changes at run time, and back to none."""
    with running(directory=tmp_path, settings={"quotaBurstMills": 100}) as daemon, client(daemon) as one:
        bodies = [b"%d" % number for number in range(150)]
        assert one.call(RequestCode.SEND_MESSAGE_V2, SEND, b"first").code == 0
        configure(one, quotaClientRequestsPerSecond=500)
        began_s = time.monotonic()
        responses = list(one.pipeline(RequestCode.SEND_MESSAGE_V2, ((SEND, body) for body in bodies)))
        took_s = time.monotonic() - began_s
        assert [number for number, _ in responses] == list(range(150))
        assert {response.code for _, response in responses} == {ResponseCode.SUCCESS}
        assert [int(response.ext["queueOffset"]) for _, response in responses] == list(range(1, 151))
        assert took_s >= (150 - 50) / 500 - 0.01
        configure(one, quotaClientRequestsPerSecond=0)
        pulls = [response for _, response in one.pipeline(RequestCode.PULL_MESSAGE, [(PULL, b"")] * 300)]
        assert {response.code for response in pulls} == {ResponseCode.SUCCESS}


async def test_a_client_that_sends_without_a_limit_is_refused_after_a_second(tmp_path: Path) -> None:
    """Each request gets a response; the refused ones are not stored, and are in the metrics."""
    settings = {"quotaClientRequestsPerSecond": 100, "quotaMaxWaitMills": 300}
    with running(directory=tmp_path, settings=settings) as daemon, client(daemon) as one:
        responses = list(one.pipeline(RequestCode.SEND_MESSAGE_V2, ((SEND, b"x") for _ in range(1_000))))
        codes = [response.code for _, response in responses]
        stored = codes.count(ResponseCode.SUCCESS)
        assert len(codes) == stored + codes.count(ResponseCode.SYSTEM_BUSY) == 1_000
        assert 20 < stored < 1_000  # a burst of 200 ms, then 300 ms of waiting: about 50, more on a slow machine
        await asyncio.sleep(0.3)
        assert int(one.call(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}).ext["offset"]) == stored
        page = await scrape(daemon.health_port)
        assert page.value("skylark_quota_refused_total", scope="client", kind="requests") == 1_000 - stored
        assert page.value("skylark_quota_delayed_total", scope="client", kind="requests") > 0


def test_an_address_has_its_number_of_connections(tmp_path: Path) -> None:
    """One more is closed; another address is not affected."""
    settings = {"quotaClientConnections": 1}
    with (
        running(directory=tmp_path, settings=settings) as daemon,
        RawClient(LOOPBACK, daemon.broker_port, source="127.0.0.3") as one,
    ):
        assert one.call(RequestCode.SEND_MESSAGE_V2, SEND, b"x").code == 0
        with RawClient(LOOPBACK, daemon.broker_port, source="127.0.0.3") as more, pytest.raises(ConnectionError):
            more.call(RequestCode.SEND_MESSAGE_V2, SEND, b"x")
        with RawClient(LOOPBACK, daemon.broker_port, source="127.0.0.4") as other:
            assert other.call(RequestCode.SEND_MESSAGE_V2, SEND, b"x").code == 0


def test_administrative_requests_and_refusals_are_in_the_audit_log(tmp_path: Path) -> None:
    """With the final result and the resource; data requests only as a sample; the log is complete after a stop."""
    path = tmp_path / "audit.log"
    with running(directory=tmp_path, settings={"auditLog": path}) as daemon, client(daemon) as one:
        assert one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC).code == 0
        assert one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC | {"topic": "bad topic"}).code != 0
        assert one.call(RequestCode.SEND_MESSAGE_V2, SEND, b"x").code == 0
        configure(one, auditSampleOneIn=1)
        assert one.call(RequestCode.SEND_MESSAGE_V2, SEND, b"x").code == 0
        assert one.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"auditLog=/tmp/other").code == 16
        configure(one, quotaClientRequestsPerSecond=1, quotaMaxWaitMills=0, auditSampleOneIn=0)
        responses = dict(one.pipeline(RequestCode.SEND_MESSAGE_V2, [(SEND, b"x")] * 2))
        codes = [responses[number].code for number in range(2)]
        assert codes == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY]
        assert daemon.stop() == 0
    written = [entry for entry in entries(path) if not entry["request"].endswith("REGISTER_BROKER")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all(entry["address"].startswith("127.0.0.1:") and entry["time"].endswith("Z") for entry in written)
    assert [
        (entry["event"], entry["request"], entry.get("topic") or entry.get("settings"), entry.get("result"))
        for entry in written
    ] == [
        ("admin", "UPDATE_AND_CREATE_TOPIC", "Orders", "SUCCESS"),
        ("admin", "UPDATE_AND_CREATE_TOPIC", "bad topic", "INVALID_PARAMETER"),
        ("admin", "UPDATE_BROKER_CONFIG", "auditSampleOneIn", "SUCCESS"),
        ("request", "SEND_MESSAGE_V2", "T", None),
        ("admin", "UPDATE_BROKER_CONFIG", "auditLog", "NO_PERMISSION"),
        (
            "admin",
            "UPDATE_BROKER_CONFIG",
            "quotaClientRequestsPerSecond,quotaMaxWaitMills,auditSampleOneIn",
            "SUCCESS",
        ),
        ("refused", "SEND_MESSAGE_V2", "T", "SYSTEM_BUSY"),
    ]


def test_a_broker_starts_and_serves_although_its_audit_log_cannot_be_written(tmp_path: Path) -> None:
    """The failure is logged and counted; the entries are written once the directory exists."""
    path = tmp_path / "missing" / "audit.log"
    with running(directory=tmp_path, settings={"auditLog": path}) as daemon, client(daemon) as one:
        assert one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC).code == 0
        deadline = time.monotonic() + WAIT_LIMIT_S
        while "audit log not written" not in daemon.output:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        path.parent.mkdir()
        while not path.exists() or not entries(path):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert [entry["topic"] for entry in entries(path)] == ["Orders"]


ADMIN = Credentials("an-admin", "the-secret-key")
APP = Credentials("orders-app", "another-secret-key")
DATA = {"defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"}
ACCOUNTS = [
    {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key, "admin": True, **DATA},
    {"accessKey": APP.access_key, "secretKey": APP.secret_key, **DATA},
]


def account(daemon: Daemon, credentials: Credentials) -> RawClient:
    return RawClient(LOOPBACK, daemon.broker_port, credentials=credentials)


def test_an_account_has_its_quotas_and_its_name_in_the_audit_log(tmp_path: Path) -> None:
    """With access control: created topics count over a restart, connections and rates of the account are limited, and
    entries have the account or the one that was claimed."""
    path = tmp_path / "audit.log"
    (tmp_path / "plain_acl.yml").write_text(json.dumps({"accounts": ACCOUNTS}))
    settings = {
        "aclEnable": "true",
        "aclConfigDir": tmp_path,
        "auditLog": path,
        "quotaAccountTopics": 1,
        "quotaAccountConnections": 1,
    }
    busy = "[OVERLOAD]system busy, start flow control for a while, "

    def send_to(client: RawClient, topic: str) -> tuple[int, str | None]:
        return client.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": topic}, b"x")[:2]

    with running(directory=tmp_path, settings=settings) as daemon, account(daemon, APP) as app:
        assert [send_to(app, topic)[0] for topic in ("A", "A")] == [0, 0]
        assert send_to(app, "B") == (ResponseCode.SYSTEM_BUSY, f"{busy}quotaAccountTopics=1 of account orders-app")
        with account(daemon, APP) as more:
            remark = f"{busy}quotaAccountConnections=1 of account orders-app"
            assert send_to(more, "A") == (ResponseCode.SYSTEM_BUSY, remark)
        with account(daemon, APP._replace(secret_key="a-wrong-secret")) as forged:
            assert send_to(forged, "A")[0] == ResponseCode.SYSTEM_ERROR
        assert daemon.stop() == 0
    with running(directory=tmp_path, settings=settings) as daemon, account(daemon, APP) as app:
        assert send_to(app, "B")[0] == ResponseCode.SYSTEM_BUSY
        with account(daemon, ADMIN) as admin:
            assert admin.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "A"}).code == 0
            assert send_to(app, "B")[0] == 0
            configure(admin, quotaAccountRequestsPerSecond=100, quotaMaxWaitMills=0)
        sends = [(SEND | {"b": "B"}, b"x")] * 1_000
        codes = [response.code for _, response in app.pipeline(RequestCode.SEND_MESSAGE_V2, sends)]
        assert 20 <= codes.count(ResponseCode.SUCCESS) < 1_000  # what 200 ms permit, and the time that it took
        assert codes.count(ResponseCode.SYSTEM_BUSY) == 1_000 - codes.count(ResponseCode.SUCCESS)
        assert daemon.stop() == 0
    written = entries(path)
    assert {(entry["event"], entry["account"], entry.get("claimedAccount"), entry["result"]) for entry in written} >= {
        ("refused", "orders-app", None, "SYSTEM_BUSY"),
        ("refused", "", "orders-app", "SYSTEM_ERROR"),
        ("admin", "an-admin", None, "SUCCESS"),
    }
    assert not [secret for secret in (ADMIN.secret_key, APP.secret_key, "Signature") if secret in path.read_text()]


def test_a_stand_alone_name_server_has_an_audit_log(tmp_path: Path) -> None:
    """Changes of its key-values are recorded, and its periodic requests and reads are not."""
    path = tmp_path / "audit.log"
    port, health = free_ports(2)
    settings = {
        "listenPort": port,
        "metricsPromExporterPort": health,
        "bindAddress": LOOPBACK,
        "kvConfigPath": tmp_path / "kv.json",
        "auditLog": path,
    }
    names = {"namespace": "N", "key": "k"}
    with (
        running(MQNAMESRV, tmp_path, settings, must_be_consistent=False) as daemon,
        RawClient(LOOPBACK, port) as one,
    ):
        assert one.call(RequestCode.PUT_KV_CONFIG, names | {"value": "a value"}).code == 0
        assert one.call(RequestCode.GET_KV_CONFIG, names).code == 0
        assert daemon.stop() == 0
    [entry] = entries(path)
    assert {name: entry[name] for name in ("event", "request", "namespace", "key", "result")} == {
        "event": "admin",
        "request": "PUT_KV_CONFIG",
        "namespace": "N",
        "key": "k",
        "result": "SUCCESS",
    }
    assert "a value" not in path.read_text()
