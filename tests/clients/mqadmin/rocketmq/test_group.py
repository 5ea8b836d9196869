"""Commands about the configuration of groups."""

import json
from pathlib import Path

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.peer import Peer

C = ("-c", "DefaultCluster")
LINE = (
    "SubscriptionGroupConfig{groupName=NAME, consumeEnable=true, consumeFromMinEnable=false, "
    "consumeBroadcastEnable=false, consumeMessageOrderly=false, retryQueueNums=1, retryMaxTimes=16, "
    "groupRetryPolicy=GroupRetryPolicy{type=CUSTOMIZED, exponentialRetryPolicy=null, customizedRetryPolicy=null}, "
    "brokerId=0, whichBrokerWhenConsumeSlowly=1, notifyConsumerIdsChangedEnable=true, groupSysFlag=0, "
    "consumeTimeoutMinute=15, subscriptionDataSet=null, attributes={}}"
)


def fields(text: str) -> dict[str, str]:
    """Return the fields that getConsumerConfig printed, by name."""
    pairs = (line.split("=  ") for line in text.splitlines()[1:])
    return {name.strip(): value for name, value in pairs}


def test_a_group_is_created_with_the_tools_defaults(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """It may not broadcast, and does not start at the first offset."""
    result = mqadmin("updateSubGroup", *C, "-g", "made")
    created = f"create subscription group to {broker.address} success.\n"
    assert result == (0, f"{created}{LINE.replace('NAME', 'made')}\n", "")
    result = mqadmin("getConsumerConfig", "-g", "made")
    assert (result.code, result.err) == (0, "")
    bar = "=" * 29
    assert result.out.startswith(
        f"{bar}DefaultCluster:broker-a{bar}\ngroupName                               =  made\n"
    )
    assert fields(result.out)["consumeBroadcastEnable"] == "false"
    assert fields(result.out)["subscriptionDataSet"] == ""


def test_a_group_is_created_with_every_option(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """The broker has the values of all of them."""
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "multiplier": 3}}
    options = ("-s", "false", "-m", "true", "-d", "true", "-o", "true", "-q", "2", "-r", "5", "-i", "1", "-w", "2")
    more = ("-a", "false", "-p", json.dumps(policy))
    assert mqadmin("updateSubGroup", "-b", broker.address, "-g", "full", *options, *more).code == 0
    got = fields(mqadmin("getConsumerConfig", "-g", "full").out)
    assert got == {
        "groupName": "full",
        "consumeEnable": "false",
        "consumeFromMinEnable": "true",
        "consumeBroadcastEnable": "true",
        "consumeMessageOrderly": "true",
        "retryQueueNums": "2",
        "retryMaxTimes": "5",
        "groupRetryPolicy": "GroupRetryPolicy{type=EXPONENTIAL, exponentialRetryPolicy=ExponentialRetryPolicy"
        "{initial=1000, max=7200000, multiplier=3}, customizedRetryPolicy=null}",
        "brokerId": "1",
        "whichBrokerWhenConsumeSlowly": "2",
        "notifyConsumerIdsChangedEnable": "false",
        "groupSysFlag": "0",
        "consumeTimeoutMinute": "15",
        "subscriptionDataSet": "",
        "attributes": "{}",
    }


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("-g", "x"), "give the address of a broker (-b) or the name of a cluster (-c)"),
        ((*C, "-g", "x", "-p", "{"), "groupRetryPolicy"),
        ((*C, "-g", "x", "-p", '{"type":"NEVER"}'), "groupRetryPolicy"),
        ((*C, "-g", "x", "--attributes", "plain"), "an attribute must be +name=value"),
        ((*C, "-g", "x", "-q", "many"), "'-q'"),
    ],
)
def test_a_wrong_option_creates_no_group(mqadmin: RunCommand, arguments: tuple[str, ...], cause: str) -> None:
    """The exit code is 1."""
    result = mqadmin("updateSubGroup", *arguments)
    assert (result.code, result.out) == (1, "")
    assert cause in result.err


def test_an_attribute_that_the_broker_does_not_know_is_refused(mqadmin: RunCommand) -> None:
    """With the broker's remark, and exit code 5."""
    result = mqadmin("updateSubGroup", *C, "-g", "x", "--attributes", "+a=b")
    assert (result.code, result.out, result.err.count("\n")) == (5, "", 1)
    assert "unsupported key: a" in result.err


def test_groups_of_a_file_are_created(mqadmin: RunCommand, broker: InProcessBroker, tmp_path: Path) -> None:
    """With RocketMQ's defaults for absent fields."""
    file = tmp_path / "groups.json"
    file.write_text('[{"groupName":"lg1"},{"groupName":"lg2",retryMaxTimes:3}]')
    for where, kind in ((C, "subscription group"), (("-b", broker.address), "group")):
        result = mqadmin("updateSubGroupList", *where, "-f", str(file))
        line = f"submit batch of {kind} config to {broker.address} success, please check the result later.\n"
        assert result == (0, line, "")
    assert fields(mqadmin("getConsumerConfig", "-g", "lg1").out)["consumeBroadcastEnable"] == "true"
    assert fields(mqadmin("getConsumerConfig", "-g", "lg2").out)["retryMaxTimes"] == "3"
    file.write_text("[]")
    result = mqadmin("updateSubGroupList", *C, "-f", str(file))
    assert (result.code, result.out) == (1, "")
    assert "lists no groups" in result.err


def test_a_group_is_deleted(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """From a broker; from a cluster with the topics of its retries and dead letters."""
    mqadmin("updateSubGroup", *C, "-g", "gone")
    deleted = "delete subscription group [gone] from broker "
    result = mqadmin("deleteSubGroup", "-b", broker.address, "-g", "gone", "-r", "true")
    assert result == (0, f"{deleted}[{broker.address}] success.\n", "")
    result = mqadmin("getConsumerConfig", "-g", "gone")
    assert (result.code, result.out) == (2, "")
    assert "no broker has a group gone" in result.err
    for topic in ("%RETRY%gone", "%DLQ%gone"):
        mqadmin("updateTopic", *C, "-t", topic)
    result = mqadmin("deleteSubGroup", *C, "-g", "gone")
    assert result == (0, f"{deleted}[{broker.address}] in cluster [DefaultCluster] success.\n", "")
    assert "gone" not in mqadmin("topicList").out
    assert mqadmin("deleteSubGroup", "-g", "gone").code == 1
    assert mqadmin("deleteSubGroup", "-c", "Nowhere", "-g", "gone").code == 2


def test_a_4_9_broker_gets_the_groups_one_by_one(run_mqadmin: RunCommand, scripted: Peer, tmp_path: Path) -> None:
    """Because it responds that it does not support UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""
    made: list[str] = []

    def create(_: object, request: RemotingCommand) -> RemotingCommand:
        made.append(SubscriptionGroupConfig.decode(request.body).group_name)
        return RemotingCommand.response()

    scripted.on(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, create)
    file = tmp_path / "groups.json"
    file.write_text('[{"groupName":"lg1"},{"groupName":"lg2"}]')
    result = run_mqadmin("updateSubGroupList", "-c", "c", "-f", str(file))
    assert (result.code, result.err) == (0, "")
    assert made == ["lg1", "lg2"]


def test_fixed_subscriptions_are_printed(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """As RocketMQ's proxy stores them; a retry policy that is no policy is one line."""
    group = (
        '{"groupName":"g","subscriptionDataSet":[{"topic":"T","expressionType":"TAG","expression":"*","version":7}],'
        '"groupRetryPolicy":{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1,2]}}}'
    )
    body = SubscriptionGroupWrapper.decode(b'{"subscriptionGroupTable":{"g":%b}}' % group.encode()).encode()
    scripted.on(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, lambda *_: RemotingCommand.response(body=body))
    got = fields(run_mqadmin("getConsumerConfig", "-g", "g").out)
    data = "[SimpleSubscriptionData{topic=T, expressionType=TAG, expression=*, version=7}]"
    assert got["subscriptionDataSet"] == data
    assert got["groupRetryPolicy"].endswith("customizedRetryPolicy=CustomizedRetryPolicy{next=[1, 2]}}")
    odd = body.replace(b"CUSTOMIZED", b"NEVER")
    scripted.on(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, lambda *_: RemotingCommand.response(body=odd))
    result = run_mqadmin("getConsumerConfig", "-g", "g")
    assert (result.code, result.err.count("\n")) == (5, 1)


def test_a_refusal_is_one_line(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """With the exit code of its class."""
    refusal = RemotingCommand.response(ResponseCode.NO_PERMISSION, "not you")
    scripted.on(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, lambda *_: refusal)
    result = run_mqadmin("updateSubGroup", "-c", "c", "-g", "x")
    assert (result.code, result.out, result.err.count("\n")) == (4, "", 1)


def test_a_number_that_java_cannot_hold_is_refused(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """By the broker, with the name of the member in one line; the group is not created."""
    refused = mqadmin("updateSubGroup", "-b", broker.address, "-g", "large", "-q", "1" * 400)
    assert (refused.code, refused.out, refused.err.count("\n")) == (5, "", 1)
    assert "retryQueueNums" in refused.err
    assert mqadmin("getConsumerConfig", "-g", "large").code == 2
