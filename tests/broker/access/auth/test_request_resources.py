"""The resources of every request, from the table of RocketMQ 5.3.3's `DefaultAuthorizationContextBuilder` and its
annotations. Requests for which it finds none are marked."""

import json
from typing import Any

import pytest

from skylarkmq.broker.access.auth.request_resources import uses_of
from skylarkmq.broker.access.requests.table import BROKER_REQUIREMENTS
from skylarkmq.broker.access.requests.uses import UNREADABLE
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError

C = RequestCode
RETRY = "%RETRY%G"
HEARTBEAT = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "P"}],
    "consumerDataSet": [
        {"groupName": "G", "subscriptionDataSet": [{"topic": "T"}, {"topic": RETRY}]},
        {"groupName": "H", "subscriptionDataSet": []},
    ],
}
OTHER_HEARTBEAT = {
    "clientID": "c",
    "consumerDataSet": [{"groupName": "H", "subscriptionDataSet": [{"topic": RETRY}, {"topic": "%RETRY%H"}]}],
}
LOCKED = (("T", 0), ("T", 1), (RETRY, 0))
LOCK = {
    "consumerGroup": "G",
    "mqSet": [{"topic": topic, "brokerName": "b", "queueId": queue} for topic, queue in LOCKED],
}
OTHER_LOCK = LOCK | {"consumerGroup": "H"}


def found(code: RequestCode, ext: dict[str, str] | None = None, body: Any = None) -> list[str]:
    """Return the uses as texts, `<resource> <action> or <action>`."""
    command = RemotingCommand.request(code, body=b"" if body is None else json.dumps(body).encode())
    command.ext = ext or {}
    uses = uses_of(command, BROKER_REQUIREMENTS[code], "DefaultCluster")
    return [f"{use.resource.key} {' or '.join(action.value for action in use.actions)}" for use in uses]


SWITCH = [
    (C.SEND_MESSAGE, {"topic": "T"}, None, ["Topic:T Pub"]),
    (C.SEND_MESSAGE, {"topic": RETRY}, None, ["Group:G Sub"]),
    (C.SEND_MESSAGE, {"topic": RETRY, "group": "H"}, None, ["Group:H Sub", "Group:G Sub"]),
    (C.SEND_MESSAGE, {"topic": RETRY, "group": " "}, None, ["Group:G Sub"]),
    (C.SEND_MESSAGE, {"b": "T"}, None, ["Topic:null Pub"]),
    (C.SEND_MESSAGE_V2, {"b": "T", "a": "P"}, None, ["Topic:T Pub"]),
    (C.SEND_MESSAGE_V2, {"b": RETRY, "a": "H"}, None, ["Group:H Sub", "Group:G Sub"]),
    (C.SEND_MESSAGE_V2, {"b": RETRY, "a": ""}, None, ["Group:G Sub"]),
    (C.SEND_MESSAGE_V2, {"topic": "T"}, None, ["Topic:null Pub"]),
    (C.SEND_BATCH_MESSAGE, {"b": "T", "a": "P"}, None, ["Topic:T Pub"]),
    (C.SEND_MESSAGE_V2, {"b": "%DLQ%G"}, None, ["Topic:%DLQ%G Pub"]),
    (C.RECALL_MESSAGE, {"topic": "T"}, None, ["Topic:T Pub"]),
    (C.RECALL_MESSAGE, {}, None, ["Topic:null Pub"]),
    (C.END_TRANSACTION, {"topic": "T"}, None, ["Topic:T Pub"]),
    (C.END_TRANSACTION, {"topic": ""}, None, []),
    (C.END_TRANSACTION, {}, None, []),
    (C.CONSUMER_SEND_MSG_BACK, {"group": "G", "originTopic": "T"}, None, ["Group:G Sub"]),
    (C.CONSUMER_SEND_MSG_BACK, {}, None, ["Group:null Sub"]),
    (C.PULL_MESSAGE, {"topic": "T", "consumerGroup": "G"}, None, ["Topic:T Sub", "Group:G Sub"]),
    (C.PULL_MESSAGE, {"topic": RETRY, "consumerGroup": "H"}, None, ["Group:G Sub", "Group:H Sub"]),
    (C.PULL_MESSAGE, {}, None, ["Topic:null Sub", "Group:null Sub"]),
    (C.QUERY_MESSAGE, {"topic": "T"}, None, ["Topic:T Sub or Get"]),
    (C.QUERY_MESSAGE, {"topic": RETRY}, None, [f"Topic:{RETRY} Sub or Get"]),
    (C.HEART_BEAT, {}, HEARTBEAT, ["Group:G Sub", "Topic:T Sub", "Group:H Sub"]),
    (C.HEART_BEAT, {}, OTHER_HEARTBEAT, ["Group:H Sub", "Group:G Sub"]),
    (C.HEART_BEAT, {}, {"clientID": "c", "producerDataSet": [{"groupName": "P"}]}, []),
    (C.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "P", "consumerGroup": "G"}, None, ["Group:G Sub"]),
    (C.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "P"}, None, []),
    (C.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}, None, ["Group:G Sub or Get"]),
    (
        C.QUERY_CONSUMER_OFFSET,
        {"topic": "T", "consumerGroup": "G"},
        None,
        ["Topic:T Sub or Get", "Group:G Sub or Get"],
    ),
    (C.QUERY_CONSUMER_OFFSET, {"topic": RETRY, "consumerGroup": "G"}, None, ["Group:G Sub or Get"]),
    (
        C.UPDATE_CONSUMER_OFFSET,
        {"topic": "T", "consumerGroup": "G"},
        None,
        ["Topic:T Sub or Update", "Group:G Sub or Update"],
    ),
    (C.UPDATE_CONSUMER_OFFSET, {"topic": RETRY, "consumerGroup": "G"}, None, ["Group:G Sub or Update"]),
    (C.LOCK_BATCH_MQ, {}, LOCK, ["Group:G Sub", "Topic:T Sub"]),
    (C.UNLOCK_BATCH_MQ, {}, LOCK, ["Group:G Sub", "Topic:T Sub"]),
    (C.LOCK_BATCH_MQ, {}, OTHER_LOCK, ["Group:H Sub", "Topic:T Sub", "Group:G Sub"]),
    (C.UNLOCK_BATCH_MQ, {}, OTHER_LOCK, ["Group:H Sub", "Topic:T Sub", "Group:G Sub"]),
]
ANNOTATIONS = [
    (C.UPDATE_AND_CREATE_TOPIC, {"topic": "T"}, None, ["Topic:T Create"]),
    (C.UPDATE_AND_CREATE_TOPIC, {"topic": RETRY}, None, ["Group:G Create"]),
    (C.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "T"}, None, ["Topic:T Get"]),
    (C.GET_MAX_OFFSET, {"topic": "T"}, None, ["Topic:T Get"]),
    (C.GET_MIN_OFFSET, {"topic": RETRY}, None, ["Group:G Get"]),
    (C.GET_EARLIEST_MSG_STORETIME, {"topic": "T"}, None, ["Topic:T Get"]),
    (C.VIEW_MESSAGE_BY_ID, {"topic": "T", "offset": "0"}, None, ["Topic:T Get"]),
    (C.GET_TOPIC_STATS_INFO, {"topic": "T"}, None, ["Topic:T Get"]),
    (C.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"}, None, ["Group:G Get"]),
    (C.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"}, None, ["Cluster:DefaultCluster Get"]),
    (C.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"}, None, ["Group:G Delete"]),
    (C.GET_CONSUME_STATS, {"consumerGroup": "G"}, None, ["Group:G Get"]),
    (
        C.GET_CONSUME_STATS,
        {"consumerGroup": "G", "topic": "T", "topicList": "A;;B"},
        None,
        ["Group:G Get", "Topic:T Get", "Topic:A Get", "Topic:B Get"],
    ),
    (C.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, None, ["Topic:T Delete"]),
    (C.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": "T", "group": "G"}, None, ["Group:G Update", "Topic:T Update"]),
    (C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "G"}, None, ["Topic:T Get", "Group:G Get"]),
    (C.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"}, None, ["Topic:T Get"]),
    (C.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "G"}, None, ["Topic:T Get", "Group:G Get"]),
    (C.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G", "clientId": "c"}, None, ["Group:G Get"]),
    (C.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "G"}, None, ["Group:G Sub"]),
    (C.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "G", "topic": "T"}, None, ["Group:G Sub", "Topic:T Sub"]),
    (C.VIEW_BROKER_STATS_DATA, {"statsName": "n", "statsKey": "k"}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}, None, ["Cluster:DefaultCluster Get"]),
    (C.QUERY_CONSUME_QUEUE, {"topic": "T", "consumerGroup": "G"}, None, ["Topic:T Get", "Group:G Get"]),
    (C.RESUME_CHECK_HALF_MESSAGE, {"topic": "T"}, None, ["Topic:T Update"]),
    (C.GET_ALL_PRODUCER_INFO, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_TOPIC_CONFIG, {"topic": "T"}, None, ["Topic:T Get"]),
    (C.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"}, None, ["Group:G Get"]),
    *((code, {"username": "u"}, None, ["Cluster:DefaultCluster Update"]) for code in (3001, 3002, 3003)),
    *((code, {"username": "u"}, None, ["Cluster:DefaultCluster Get"]) for code in (3004, 3005)),
    *((code, {"subject": "User:u"}, None, ["Cluster:DefaultCluster Update"]) for code in (3006, 3007, 3008)),
    *((code, {"subject": "User:u"}, None, ["Cluster:DefaultCluster Get"]) for code in (3009, 3010)),
]
NONE_IN_ROCKETMQ = [
    (C.UPDATE_AND_CREATE_TOPIC_LIST, {}, {"topicConfigList": []}, ["Topic:* Create"]),
    (C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, {"groupConfigList": []}, ["Group:* Create"]),
    (C.UPDATE_AND_CREATE_TOPIC_LIST, {}, {"topicConfigList": [{"topicName": "T"}, {"topicName": RETRY}]},
     ["Topic:T Create", "Group:G Create"]),
    (C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "G"}, ["Group:G Create"]),
    (C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, {"groupConfigList": [{"groupName": "G"}, {"groupName": "H"}]},
     ["Group:G Create", "Group:H Create"]),
    (C.GET_ALL_TOPIC_CONFIG, {}, None, ["Topic:* List"]),
    (C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, None, ["Group:* List"]),
    (C.UPDATE_BROKER_CONFIG, {}, None, ["Cluster:DefaultCluster Update"]),
    (C.GET_BROKER_CONFIG, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_BROKER_RUNTIME_INFO, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_BROKER_HA_STATUS, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_ALL_CONSUMER_OFFSET, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_ALL_DELAY_OFFSET, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_TIMER_CHECK_POINT, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_TIMER_METRICS, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_ALL_MESSAGE_REQUEST_MODE, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.CLEAN_EXPIRED_CONSUMEQUEUE, {}, None, ["Cluster:DefaultCluster Update"]),
    (C.CLEAN_UNUSED_TOPIC, {}, None, ["Cluster:DefaultCluster Update"]),
    (C.DELETE_EXPIRED_COMMITLOG, {}, None, ["Cluster:DefaultCluster Update"]),
    (C.LITE_PULL_MESSAGE, {"topic": "T", "consumerGroup": "G"}, None, ["Topic:T Sub", "Group:G Sub"]),
    (C.CHECK_CLIENT_CONFIG, {}, {"clientId": "c", "group": "G"}, ["Group:G Sub"]),
    (C.VIEW_MESSAGE_BY_ID, {"offset": "0"}, None, []),
    (C.RESUME_CHECK_HALF_MESSAGE, {"msgId": "1"}, None, ["Topic:* Update"]),
    *((code, {}, None, ["Cluster:DefaultCluster Update"]) for code in (50, 51, 53)),
    (C.GET_BROKER_CLUSTER_ACL_INFO, {}, None, ["Cluster:DefaultCluster Get"]),
    (C.SEND_REPLY_MESSAGE, {"topic": "DefaultCluster_REPLY_TOPIC"}, None, []),
    (C.SEND_REPLY_MESSAGE_V2, {"b": "DefaultCluster_REPLY_TOPIC"}, None, []),
    (C.SEND_REPLY_MESSAGE, {"topic": "T"}, None, ["Topic:T Pub"]),
    (C.SEND_REPLY_MESSAGE_V2, {"b": "T"}, None, ["Topic:T Pub"]),
]  # fmt: skip
TABLE = SWITCH + ANNOTATIONS + NONE_IN_ROCKETMQ


@pytest.mark.parametrize(("code", "ext", "body", "expected"), TABLE)
def test_the_resources_of_a_request(code: RequestCode, ext: dict[str, str], body: Any, expected: list[str]) -> None:
    """Names come from ext fields or the body; without a name, the row of the code gives the resource."""
    assert found(C(code), ext, body) == expected


def test_the_table_contains_every_code_of_a_broker() -> None:
    """No request is served without an expected resource here."""
    assert {int(code) for code, *_ in TABLE} == set(BROKER_REQUIREMENTS)


@pytest.mark.parametrize(
    ("code", "ext", "body"),
    [
        (C.GET_MAX_OFFSET, {}, None),
        (C.GET_CONSUME_STATS, {"topic": "T"}, None),
        (C.INVOKE_BROKER_TO_RESET_OFFSET, {"group": "G"}, None),
        (C.QUERY_CONSUMER_OFFSET, {"topic": "T"}, None),
        (C.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "G"}, None),
        (C.GET_CONSUMER_LIST_BY_GROUP, {}, None),
        (C.HEART_BEAT, {}, None),
        (C.HEART_BEAT, {}, [1]),
        (C.LOCK_BATCH_MQ, {}, None),
        (C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, None),
    ],
)
def test_unreadable_requests_are_refused(code: RequestCode, ext: dict[str, str], body: Any) -> None:
    """A missing name or an unreadable body is RocketMQ's refusal, NO_PERMISSION (16)."""
    with pytest.raises(RequestError) as raised:
        found(code, ext, body)
    assert (raised.value.code, raised.value.remark) == (ResponseCode.NO_PERMISSION, UNREADABLE)
