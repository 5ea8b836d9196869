"""Settings that an operator changes in a running daemon: they take effect with the response, and after a restart."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.harness.daemon import MQBROKER, MQNAMESRV, Daemon, running
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse

pytestmark = pytest.mark.daemon

SEND = {
    "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "TAGS\x01t\x02", "m": False,
}  # fmt: skip
PULL = {
    "consumerGroup": "CG", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "commitOffset": 0,
    "suspendTimeoutMillis": 60_000, "subVersion": 1, "subscription": "*", "sysFlag": 6,
}  # fmt: skip
OPERATOR = "# by hand\nbrokerPermission=6\n"


@contextmanager
def started(directory: Path) -> Iterator[tuple[Daemon, RawClient]]:
    """Yield a daemon with its own configuration file, and an operator's connection."""
    path = directory / "broker.conf"
    if not path.exists():
        path.write_text(OPERATOR)
    with running((*MQBROKER, "-c", path), directory) as daemon, RawClient(LOOPBACK, daemon.broker_port) as operator:
        yield daemon, operator


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[Daemon, RawClient]]:
    with started(tmp_path) as daemon_and_operator:
        yield daemon_and_operator


def change(operator: RawClient, text: str, code: int = RequestCode.UPDATE_BROKER_CONFIG) -> None:
    response = operator.call(code, body=text.encode())
    assert response.code == ResponseCode.SUCCESS, response


def shown(client: RawClient, code: int = RequestCode.GET_BROKER_CONFIG) -> dict[str, str]:
    return dict(line.split("=", 1) for line in client.call(code).body.decode().splitlines())


def send(client: RawClient, body: bytes = b"x", **fields: Any) -> RawResponse:
    return client.call(RequestCode.SEND_MESSAGE_V2, SEND | fields, body)


def permission(daemon: Daemon, topic: str) -> int:
    with RawClient(LOOPBACK, daemon.namesrv_port) as client:
        route = json.loads(
            client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body.replace(b"{0:", b'{"0":')
        )
    return int(route["queueDatas"][0]["perm"])


def test_a_changed_broker_permission_takes_effect_at_once(broker: tuple[Daemon, RawClient]) -> None:
    """After the response to request 25 routes have the permission, and ordered topics refuse messages; a second change
    undoes it."""
    daemon, operator = broker
    ordered = {"topic": "O", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    rest = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": True}
    operator.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ordered | rest)
    assert (send(operator, b="O").code, permission(daemon, "O")) == (ResponseCode.SUCCESS, 6)
    change(operator, "brokerPermission=4")
    assert (send(operator, b="O").code, permission(daemon, "O")) == (ResponseCode.NO_PERMISSION, 4)
    change(operator, "brokerPermission=6")
    assert (send(operator, b="O").code, permission(daemon, "O")) == (ResponseCode.SUCCESS, 6)


def test_changed_settings_apply_to_sends(broker: tuple[Daemon, RawClient]) -> None:
    """Auto-creation, size, start time, and region and trace in responses; also for fast-path sends."""
    _, operator = broker
    unique: dict[str, Any] = {"i": "UNIQ_KEY\x017F0000010001000000000001\x02"}
    assert send(operator, **unique).ext["MSG_REGION"] == "DefaultRegion"
    change(operator, "autoCreateTopicEnable=false\nregionId=hier\ntraceOn=false")
    response = send(operator, **unique)
    assert (response.ext["MSG_REGION"], response.ext["TRACE_ON"]) == ("hier", "false")
    assert send(operator, b="Unknown").code == ResponseCode.TOPIC_NOT_EXIST
    change(operator, "autoCreateTopicEnable=true\nmaxMessageSize=10")
    assert send(operator, b="Unknown").code == ResponseCode.SUCCESS
    assert send(operator, b"x" * 11, **unique).code == ResponseCode.MESSAGE_ILLEGAL
    change(operator, "maxMessageSize=11")
    assert send(operator, b"x" * 11, **unique).code == ResponseCode.SUCCESS
    change(operator, "startAcceptSendRequestTimeStamp=9000000000000")
    refused = send(operator, **unique)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "unable to service" in (refused.remark or "")


def test_changed_settings_apply_to_pulls(broker: tuple[Daemon, RawClient]) -> None:
    """Long polling, creation of groups, lite pulls, and the number of messages in a response."""
    _, operator = broker
    for _ in range(4):
        send(operator)
    change(operator, "longPollingEnable=false\nshortPollingTimeMills=1\nautoCreateSubscriptionGroup=false")
    assert operator.call(RequestCode.PULL_MESSAGE, PULL).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    change(operator, "autoCreateSubscriptionGroup=true\nmaxTransferCountOnMessageInMemory=3")
    assert operator.call(RequestCode.PULL_MESSAGE, PULL).ext["nextBeginOffset"] == "3"
    assert operator.call(RequestCode.PULL_MESSAGE, PULL | {"queueOffset": 4}).code == ResponseCode.PULL_NOT_FOUND
    change(operator, "litePullMessageEnable=false")
    assert operator.call(RequestCode.LITE_PULL_MESSAGE, PULL).code == ResponseCode.NO_PERMISSION


def test_changed_settings_apply_to_resets_and_replies(broker: tuple[Daemon, RawClient]) -> None:
    """Whether the broker or the group's members reset offsets, and whether replies are stored."""
    _, operator = broker
    send(operator)
    operator.call(RequestCode.PULL_MESSAGE, PULL | {"sysFlag": 4})
    reset = {"group": "CG", "topic": "T", "timestamp": -1, "isForce": True}
    assert operator.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == ResponseCode.SUCCESS
    reply = SEND | {"b": "DefaultCluster_REPLY_TOPIC", "d": 1}
    assert operator.call(RequestCode.SEND_REPLY_MESSAGE_V2, reply).ext["msgId"] != "0"
    change(operator, "useServerSideResetOffset=false\nstoreReplyMessageEnable=false")
    assert operator.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == ResponseCode.CONSUMER_NOT_ONLINE
    assert operator.call(RequestCode.SEND_REPLY_MESSAGE_V2, reply).ext["msgId"] == "0"


def test_changed_settings_apply_to_locks_and_send_backs(broker: tuple[Daemon, RawClient], tmp_path: Path) -> None:
    """The lifetime of locks, and whether messages can be sent back to this broker; a group is saved at once."""
    _, operator = broker
    queues = [{"brokerName": "b", "queueId": 0, "topic": "T"}]

    def has_lock(client_id: str) -> bool:
        body = json.dumps({"clientId": client_id, "consumerGroup": "CG", "mqSet": queues}).encode()
        return bool(json.loads(operator.call(RequestCode.LOCK_BATCH_MQ, body=body).body)["lockOKMQSet"] == queues)

    send(operator)  # creates the topic: queues that do not exist cannot be locked
    assert has_lock("one")
    assert not has_lock("two")
    change(operator, "rebalanceLockMaxLiveTime=1")
    assert any(has_lock("two") for _ in range(100))
    place = int(send(operator).ext["msgId"][16:], 16)
    back = {"offset": place, "group": "CG", "delayLevel": 18}
    assert operator.call(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SUCCESS
    change(operator, "brokerPermission=4")
    assert operator.call(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.NO_PERMISSION
    group = json.dumps({"groupName": "CG", "retryMaxTimes": 3}).encode()
    assert operator.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group).code == ResponseCode.SUCCESS
    file = next(tmp_path.rglob("subscriptionGroup.json"))
    assert json.loads(file.read_bytes())["subscriptionGroupTable"]["CG"]["retryMaxTimes"] == 3


def test_settings_survive_a_restart(tmp_path: Path) -> None:
    """Request 26 returns the new value at once; the file contains it, with its comments; the next start uses it."""
    with started(tmp_path) as (_, operator):
        version = json.loads(operator.call(RequestCode.GET_BROKER_CONFIG).ext["version"])
        change(operator, "fileReservedTime=48\nnoSuchKey=1\ndeleteWhen=whenever\nsendMessageThreadPoolNums=8")
        after = operator.call(RequestCode.GET_BROKER_CONFIG)
        assert json.loads(after.ext["version"])["counter"] == version["counter"] + 1
        assert shown(operator)["fileReservedTime"] == "48"
        assert (
            operator.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"rocketmqHome=/").code == ResponseCode.NO_PERMISSION
        )
        assert operator.call(RequestCode.UPDATE_BROKER_CONFIG).code == ResponseCode.SUCCESS
    text = (tmp_path / "broker.conf").read_text()
    assert text == OPERATOR + "fileReservedTime=48\nsendMessageThreadPoolNums=8\n"
    with started(tmp_path) as (_, operator):
        settings = shown(operator)
    assert (settings["fileReservedTime"], settings["sendMessageThreadPoolNums"]) == ("48", "8")


def test_an_embedded_name_server_has_its_own_settings_requests(broker: tuple[Daemon, RawClient]) -> None:
    """Request 319 returns its keys; after request 318 routes include the ordering configuration."""
    daemon, _ = broker
    with RawClient(LOOPBACK, daemon.namesrv_port) as operator:
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TBW102", "value": "b:4"}
        operator.call(RequestCode.PUT_KV_CONFIG, order)
        route = {"topic": "TBW102"}
        assert b"orderTopicConf" not in operator.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).body
        assert shown(operator, RequestCode.GET_NAMESRV_CONFIG)["orderMessageEnable"] == "false"
        change(operator, "orderMessageEnable=true", RequestCode.UPDATE_NAMESRV_CONFIG)
        assert b'"orderTopicConf":"b:4"' in operator.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).body
        refused = operator.call(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"kvConfigPath=/tmp/x")
        assert refused.code == ResponseCode.NO_PERMISSION


def test_changed_settings_apply_to_a_stand_alone_name_server(tmp_path: Path) -> None:
    """Request 206 is refused once it is turned off, and the file contains the setting."""
    path = tmp_path / "namesrv.conf"
    path.write_text("enableTopicList=true\n")
    command = (*MQNAMESRV, "-c", path)
    with running(command, tmp_path) as daemon, RawClient(LOOPBACK, daemon.broker_port) as operator:
        list_all = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        assert operator.call(list_all).code == ResponseCode.SUCCESS
        change(operator, "enableAllTopicList=false", RequestCode.UPDATE_NAMESRV_CONFIG)
        assert operator.call(list_all).code == ResponseCode.SYSTEM_ERROR
    assert path.read_text() == "enableTopicList=true\nenableAllTopicList=false\n"
