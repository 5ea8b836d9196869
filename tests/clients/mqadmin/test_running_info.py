"""The state that a consumer reports, as text, and the checks on it."""

import time

import pytest

from skylarkmq.clients.mqadmin.running_info import have_same_subscriptions, problems, running_info_text
from skylarkmq.protocol.bodies.client_state import (
    ConsumerRunningInfo,
    ConsumeStatus,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 3)
NAME = "MessageQueue [topic=T, brokerName=broker-a, queueId=3]"
NOW_MS = 1_000_000


def member(*topics: str, started_ms: int = 0, kind: str = "CONSUME_PASSIVELY") -> ConsumerRunningInfo:
    """Return the state of a member that subscribes to these topics."""
    properties = {"PROP_CONSUME_TYPE": kind, "PROP_CONSUMER_START_TIMESTAMP": str(started_ms)}
    return ConsumerRunningInfo(properties, [SubscriptionData(topic) for topic in topics])


def test_the_text_has_all_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """As RocketMQ's tool prints them; times are local times."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    state = ProcessQueueInfo(7, 1, 2, 3, 4, locked=True, last_pull_timestamp=1_700_000_000_123)
    info = ConsumerRunningInfo(
        {"PROP_CLIENT_VERSION": "V5_3_3", "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        [SubscriptionData("T", "a || b"), SubscriptionData("A")],
        {QUEUE: state},
        {QUEUE: PopProcessQueueInfo(5, True, 6)},
        {"T": ConsumeStatus(1.5, 2, 0.125, 4, 5, 6)},
        {"own": "value"},
        jstack="main: waits\n",
    )
    none = "19700101000000000"
    assert running_info_text(ConsumerRunningInfo.decode(info.encode())) == (
        f"#Consumer Properties#\n{'PROP_CONSUME_TYPE':40}: CONSUME_PASSIVELY\n{'PROP_CLIENT_VERSION':40}: V5_3_3\n"
        "\n\n#Consumer Subscription#\n"
        f"001 Topic: {'A':40} ClassFilter: false    SubExpression: *\n"
        f"002 Topic: {'T':40} ClassFilter: false    SubExpression: a || b\n"
        f"\n\n#Consumer Offset#\n{'#Topic':64}  {'#Broker Name':32}  #QID  {'#Consumer Offset':20}\n"
        f"{'T':32}  {'broker-a':32}  3     {'7':20}\n"
        f"\n\n#Consumer MQ Detail#\n{'#Topic':64}  {'#Broker Name':32}  #QID  {'#ProcessQueueInfo':20}\n"
        f"{'T':64}  {'broker-a':32}  3     ProcessQueueInfo [commitOffset=7, cachedMsgMinOffset=1, "
        "cachedMsgMaxOffset=2, cachedMsgCount=3, cachedMsgSizeInMiB=4, transactionMsgMinOffset=0, "
        f"transactionMsgMaxOffset=0, transactionMsgCount=0, locked=true, tryUnlockTimes=0, "
        f"lastLockTimestamp={none}, droped=false, lastPullTimestamp=20231114221320123, lastConsumeTimestamp={none}]\n"
        f"\n\n#Consumer Pop Detail#\n{'#Topic':32}  {'#Broker Name':32}  #QID  {'#ProcessQueueInfo':20}\n"
        f"{'T':32}  {'broker-a':32}  3     PopProcessQueueInfo [waitAckCount:5, droped:true, lastPopTimestamp:6]\n"
        f"\n\n#Consumer RT&TPS#\n{'#Topic':64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} "
        f"{'#ConsumeOK TPS':>14} {'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}\n"
        f"{'T':32}  {'1.50':>14} {'2.00':>14} {'0.13':>14} {'4.00':>14} {'5.00':>18} {'6':>25}\n"
        f"\n\n#User Consume Info#\n{'own':40}: value\n"
        "\n\n#Consumer jstack#\nmain: waits\n"
    )
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("members", "is_same"),
    [
        ([member("A", "B"), member("B", "A")], True),
        ([member("A"), member("A"), member("B")], False),
        ([member("A", started_ms=NOW_MS), member("B")], True),
        ([member("A", kind="CONSUME_ACTIVELY"), member("B")], True),
        ([ConsumerRunningInfo(), member("B")], True),
        ([member("A")], True),
    ],
)
def test_subscriptions_are_compared(members: list[ConsumerRunningInfo], is_same: bool) -> None:
    """Those of push members that have run for two minutes."""
    assert have_same_subscriptions(members, NOW_MS) is is_same


@pytest.mark.parametrize(
    ("state", "is_orderly", "expected"),
    [
        (
            ProcessQueueInfo(cached_msg_count=1),
            False,
            f"c {NAME} can't consume for a while, maybe blocked, 1000000ms\n",
        ),
        (ProcessQueueInfo(), False, None),
        (ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=NOW_MS), False, None),
        (ProcessQueueInfo(last_lock_timestamp=1), True, f"c {NAME} can't lock for a while, 999999ms\n"),
        (
            ProcessQueueInfo(locked=True, droped=True, try_unlock_times=2),
            True,
            f"c {NAME} unlock 2 times, still failed\n",
        ),
        (ProcessQueueInfo(locked=True), True, None),
    ],
)
def test_queues_that_stand_still_are_named(state: ProcessQueueInfo, is_orderly: bool, expected: str | None) -> None:
    """Of orderly members those that are not locked, of others those whose messages wait for a minute."""
    info = member()
    info.properties["PROP_CONSUMEORDERLY"] = str(is_orderly).lower()
    info.mq_table = {QUEUE: state}
    assert list(problems("c", info, NOW_MS)) == ([] if expected is None else [expected])
    info.properties["PROP_CONSUME_TYPE"] = "CONSUME_ACTIVELY"
    assert list(problems("c", info, NOW_MS)) == []
