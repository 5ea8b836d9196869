"""Checks of one consumer group."""

import itertools

import pytest

from skylarkmq import Message, blocking
from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.protocol.bodies.client_state import ConsumerRunningInfo
from skylarkmq.protocol.bodies.connections import ClientConnection, ConsumerConnection
from skylarkmq.protocol.bodies.enums import MessageModel
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.doctor.conftest import ScriptedCluster, parsed, route
from tests.clients.mqadmin.rocketmq.conftest import GROUP, TOPIC, Live, live
from tests.clients.peer import refuse

__all__ = ["live"]
QUEUE = MessageQueue("Orders", "b", 0)


@pytest.fixture
def billing(cluster: ScriptedCluster) -> ScriptedCluster:
    """Return the cluster with a group `billing` of two members, without lag."""
    cluster.routes["%RETRY%billing"] = route(cluster.peer.address, read=1, write=1)
    online(cluster)
    subscribed(cluster, "*", "*")
    reads(cluster, {QUEUE: OffsetWrapper(broker_offset=5, consumer_offset=5)})
    config = SubscriptionGroupWrapper(subscription_group_table={"billing": SubscriptionGroupConfig("billing")})
    cluster.peer.on(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, lambda *_: RemotingCommand.response(body=config.encode())
    )
    return cluster


def online(cluster: ScriptedCluster, model: MessageModel = MessageModel.CLUSTERING) -> None:
    members = ConsumerConnection(
        [ClientConnection(client_id=name) for name in ("m1", "m2")],
        {"Orders": SubscriptionData("Orders"), "%RETRY%billing": SubscriptionData("%RETRY%billing")},
        message_model=model,
    )
    cluster.peer.on(
        RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda *_: RemotingCommand.response(body=members.encode())
    )


def subscribed(cluster: ScriptedCluster, *expressions: str) -> None:
    """Set what the members m1, m2 … report."""
    by_member = {
        f"m{number}": ConsumerRunningInfo(subscription_set=[SubscriptionData("Orders", expression)]).encode()
        for number, expression in enumerate(expressions, 1)
    }

    def respond(_: object, request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(body=by_member[request.ext_fields()["clientId"]])

    cluster.peer.on(RequestCode.GET_CONSUMER_RUNNING_INFO, respond)


def reads(cluster: ScriptedCluster, *tables: dict[MessageQueue, OffsetWrapper]) -> None:
    """Set the offsets that the requests of a group's progress get, one after the other and again from the first."""
    bodies = itertools.cycle(ConsumeStats(table).encode() for table in tables)
    cluster.peer.on(RequestCode.GET_CONSUME_STATS, lambda *_: RemotingCommand.response(body=next(bodies)))


def test_a_group_that_keeps_up_has_no_finding(billing: ScriptedCluster) -> None:
    """And all of its checks are examined."""
    report = billing.report("-g", "billing", "-t", "Orders")
    assert report.findings == []
    assert {each.check for each in report.not_examined} == {"access"}


def test_a_group_of_our_own_broker_has_no_finding(mqadmin: RunCommand, live: Live) -> None:
    """With a real member."""
    report = parsed(mqadmin("doctor", "--json", "--sample", "0.01", "-g", GROUP, "-t", TOPIC))
    assert live.member
    assert [finding for finding in report.findings if finding.check != "disks"] == []
    assert {each.check for each in report.not_examined} == {"access"}


def test_a_group_without_members_is_an_error(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """Of our own broker: a group that exists, and one that does not."""
    with blocking.Admin(namesrv=broker.namesrv) as admin:
        admin.create_group(SubscriptionGroupConfig("idle", consume_enable=False))
    report = parsed(mqadmin("doctor", "--json", "--sample", "0.01", "-g", "idle"))
    assert [finding.what for finding in report.findings if finding.check == "group online"] == [
        "the group may not consume (consumeEnable is false)",
        "the group has no member: it consumes nothing",
    ]
    report = parsed(mqadmin("doctor", "--json", "--sample", "0.01", "-g", "unknown"))
    assert [finding.what for finding in report.findings if finding.check != "disks"] == ["the group does not exist"]


def test_a_topic_that_the_group_does_not_subscribe_to_is_an_error(billing: ScriptedCluster) -> None:
    """The finding names its topics."""
    billing.routes["Payments"] = route(billing.peer.address)
    (finding,) = billing.findings("-g", "billing", "-t", "Payments")
    assert finding == ("error", "group online", "the group does not subscribe to Payments, but to Orders")


def test_members_with_different_subscriptions_are_an_error(billing: ScriptedCluster) -> None:
    """With the expressions of each."""
    subscribed(billing, "a || b", "a")
    (finding,) = billing.findings("-g", "billing")
    assert finding[:2] == ("error", "subscriptions")
    assert finding[2].endswith("Orders (a || b) of m1; Orders (a) of m2")


def test_members_that_do_not_report_are_not_examined(billing: ScriptedCluster) -> None:
    """As with clients of other languages."""
    billing.peer.on(RequestCode.GET_CONSUMER_RUNNING_INFO, refuse(ResponseCode.SYSTEM_ERROR, "cannot"))
    report = billing.report("-g", "billing")
    assert report.findings == []
    assert [each.where for each in report.not_examined if each.check == "subscriptions"] == ["billing m1", "billing m2"]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ((10, 2), (10, 2), ("error", "the lag is 8 messages, and none was acknowledged within 0.01 s")),
        ((10, 2), (30, 4), ("warning", "the lag grew within 0.01 s from 8 to 26 messages")),
        ((10, 2), (12, 8), None),
        ((10, 10), (12, 12), None),
    ],
)
def test_a_lag_that_does_not_shrink_is_found(
    billing: ScriptedCluster, first: tuple[int, int], second: tuple[int, int], found: tuple[str, str] | None
) -> None:
    """It is read twice: the next offset of the broker, and that of the group."""
    reads(billing, *({QUEUE: OffsetWrapper(*each)} for each in (first, second)))
    expected = [] if found is None else [(found[0], "lag", found[1])]
    assert billing.findings("-g", "billing") == expected


def test_retries_and_dead_letters_are_found(billing: ScriptedCluster) -> None:
    """The messages that wait for another delivery, and those that have failed."""
    retries = MessageQueue("%RETRY%billing", "b", 0)
    reads(billing, {QUEUE: OffsetWrapper(5, 5), retries: OffsetWrapper(3, 1)})
    billing.routes["%DLQ%billing"] = route(billing.peer.address, read=1, write=1)
    table = TopicStatsTable({MessageQueue("%DLQ%billing", "b", 0): TopicOffset(min_offset=1, max_offset=4)})
    billing.peer.on(RequestCode.GET_TOPIC_STATS_INFO, lambda *_: RemotingCommand.response(body=table.encode()))
    assert billing.findings("-g", "billing") == [
        ("warning", "lag", "2 messages to be delivered again"),
        ("warning", "dead letters", "3 dead letters"),
    ]


def test_the_lag_of_broadcasts_is_not_examined(billing: ScriptedCluster) -> None:
    """Their members keep their own offsets."""
    online(billing, MessageModel.BROADCASTING)
    report = billing.report("-g", "billing")
    assert "broadcast" in next(each.reason for each in report.not_examined if each.check == "lag")


def test_a_lag_of_our_own_broker_is_found(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """Of a group without a member."""
    with blocking.Admin(namesrv=broker.namesrv) as admin, blocking.Producer("p", namesrv=broker.namesrv) as producer:
        admin.create_topic("Slow", queues=1)
        admin.create_group(SubscriptionGroupConfig("slow"))
        producer.send(Message("Slow", b"1"))
        admin.set_offset("slow", MessageQueue("Slow", "broker-a", 0), 0)
    report = parsed(mqadmin("doctor", "--json", "--sample", "0.01", "-g", "slow", "-t", "Slow"))
    assert [finding.what for finding in report.findings if finding.check == "lag"] == [
        "the lag is 1 message, and none was acknowledged within 0.01 s"
    ]
