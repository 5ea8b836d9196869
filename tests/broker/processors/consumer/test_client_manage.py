"""Heartbeats and their effects: group members, notifications, and the heartbeats of different clients."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.access.message_rights import Rights
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.processors.consumer.client_manage import ClientManageConfig
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol.bodies.enums import ConsumeType, MessageModel
from skylarkmq.protocol.bodies.heartbeat import CheckClientRequestBody, ConsumerIdList, SubscriptionData
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import VERSION, Flag, RequestCode, ResponseCode
from skylarkmq.protocol.command import MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader, UnregisterClientHeader
from skylarkmq.protocol.msgpack_header import ANNOUNCED_AS, ANNOUNCED_BY
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts, consumer, heartbeat
from tests.harness.golden import bodies
from tests.harness.peer import Peer

EXPIRY_MS = 120_000


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path) as it:
        yield it


def notices(peer: Peer) -> list[str]:
    """Return the groups named by the notifications that a peer has received since the last call."""
    peer.take()
    received, peer.received = peer.received, []
    pushed = [command for command in received if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert all(command.flag == Flag.ONEWAY and not command.body for command in pushed if not command.is_response)
    return [command.ext_fields()["consumerGroup"] for command in pushed if not command.is_response]


def notified(parts: BrokerParts, *peers: Peer) -> list[list[str]]:
    """Return the same for several peers, after all pending notifications have been sent."""
    parts.loop.pass_ms(50)
    return [notices(peer) for peer in peers]


def consumer_list(group: str = GROUP) -> RemotingCommand:
    return RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(group))


class Granted:
    """Rights by account and topic; the account is the `account` of a request."""

    def __init__(self, granted: set[tuple[str, str]]) -> None:
        self._granted = granted

    def rights_of(self, _connection: Connection, command: RemotingCommand) -> Rights:
        account = command.ext_fields()["account"]
        return lambda topic, action: action is Action.PUB and (account, topic) in self._granted


def by(account: str, command: RemotingCommand) -> RemotingCommand:
    """Return the request as that of an account."""
    command.ext = {"account": account}
    return command


def leave(**groups: str) -> RemotingCommand:
    return RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader("c1", **groups))


# ------------------------------------------------------------------------------------------------------------ join


async def test_a_producer_gets_checks_of_topics_that_its_last_heartbeat_may_send_to(tmp_path: Path) -> None:
    """The rights of the caller count, also when they change later; another caller on the connection has its own."""
    granted = {("first", "T"), ("second", "U")}
    with broker_parts(tmp_path, rights=Granted(granted)) as parts:
        peer = parts.peer()
        peer.call(by("first", heartbeat(producers=("P", "Q"))))
        assert [len(parts.sessions.producers_to(group, "T")) for group in "PQR"] == [1, 1, 0]
        assert parts.sessions.producers_to("P", "U") == []
        granted.add(("first", "U"))
        assert len(parts.sessions.producers_to("P", "U")) == 1
        granted.remove(("first", "T"))
        assert parts.sessions.producers_to("P", "T") == []
        peer.call(by("second", heartbeat(producers=("P",))))
        assert [len(parts.sessions.producers_to(group, "U")) for group in "PQ"] == [1, 1]
        granted.remove(("second", "U"))
        assert [len(parts.sessions.producers_to(group, "U")) for group in "PQ"] == [0, 1]


async def test_a_heartbeat_creates_the_group_its_retry_topic_and_its_member(parts: BrokerParts) -> None:
    """All before the response, which has our version and the support of heartbeats of version 2."""
    peer = parts.peer()
    response = peer.call(heartbeat(consumer(), client_id="ip@1", producers=("P",)))
    assert (response.code, response.version, response.remark) == (0, VERSION, None)
    assert response.ext_fields() == {
        "IS_SUPPORT_HEART_BEAT_V2": "true",
        "IS_SUB_CHANGE": "true",
        "SKYLARK_SERIALIZE": "MSGPACK",
    }
    assert parts.groups.find(GROUP) == SubscriptionGroupConfig(GROUP)
    assert parts.topics.find("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1, perm=6)
    assert ConsumerIdList.decode(peer.call(consumer_list()).body).consumer_id_list == ["ip@1"]
    [member] = parts.sessions.producers("P").values()
    assert (member.client_id, member.language, member.version) == ("ip@1", "PYTHON", VERSION)


async def test_a_new_member_is_notified_before_its_response_and_the_others_later(parts: BrokerParts) -> None:
    """Every member is notified of a new one once; a repeated heartbeat causes no notification."""
    first, second = parts.peer(), parts.peer(4322)
    first.send(heartbeat(consumer()))
    assert [command.code for command in first.received] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0]
    assert notified(parts, first) == [[GROUP]]
    second.send(heartbeat(consumer(), client_id="c2"))
    assert [command.code for command in second.received] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0]
    assert notices(first) == []
    assert notified(parts, first, second) == [[GROUP], [GROUP]]
    second.send(heartbeat(consumer(), client_id="c2"))
    assert notified(parts, first, second) == [[], []]


async def test_many_changes_are_one_notification_per_member(parts: BrokerParts) -> None:
    """For all changes within 50 ms; each member is notified of changes after its own."""
    peers = [parts.peer(5000 + n) for n in range(5)]
    for n, peer in enumerate(peers):
        peer.send(heartbeat(consumer(), client_id=f"c{n}"))
    peers[4].call(leave(consumer_group=GROUP))
    for peer in peers:
        notices(peer)
    assert notified(parts, *peers) == [[GROUP]] * 4 + [[]]
    assert repr(parts.notices) == "<GroupNotifications sent=9 gathering=0>"


async def test_a_large_group_is_notified_in_slices(parts: BrokerParts) -> None:
    """A hundred members per event-loop iteration, with other work in between."""
    peers = [parts.peer(5000 + n) for n in range(250)]
    for n, peer in enumerate(peers):
        peer.send(heartbeat(consumer(), client_id=f"c{n}"))
    parts.loop.pass_ms(50)
    before = parts.loop.iterations
    peers[0].disconnect()
    for peer in peers:
        notices(peer)
    assert notified(parts, *peers[1:]) == [[GROUP]] * 249
    assert parts.loop.iterations - before == 2


async def test_an_empty_group_is_not_notified(parts: BrokerParts) -> None:
    """Its last member left before the notification was due."""
    peer = parts.peer()
    peer.send(heartbeat(consumer()))
    notices(peer)
    peer.disconnect()
    assert notified(parts, peer) == [[]]
    assert parts.notices.statistics().sent == 1


async def test_notifications_are_json_for_all_clients(parts: BrokerParts) -> None:
    """A client with binary headers gets binary responses and JSON notifications, as from RocketMQ."""
    peer = parts.peer()
    request = heartbeat(consumer())
    request.dialect = ROCKETMQ
    peer.send(request)
    assert [command.dialect for command in peer.received] == [0, ROCKETMQ]


async def test_members_are_notified_of_changed_topics_and_not_of_changed_expressions(parts: BrokerParts) -> None:
    """Queues of topics have to be reassigned; each member filters for itself."""
    peer = parts.peer()
    peer.send(heartbeat(consumer(subscribe(TOPIC, "*", 1))))
    notices(peer)
    peer.send(heartbeat(consumer(subscribe(TOPIC, "A", 2))))
    assert notices(peer) == []
    peer.send(heartbeat(consumer(subscribe(TOPIC, "A", 2), subscribe("U", "*", 2))))
    assert notices(peer) == [GROUP]


async def test_broadcasting_groups_and_disabled_groups_are_not_notified(parts: BrokerParts) -> None:
    """Broadcasting members consume all queues anyway; a group can turn notifications off."""
    peer = parts.peer()
    peer.send(heartbeat(consumer(model=MessageModel.BROADCASTING)))
    group = parts.groups.find_or_create("quiet")
    assert group is not None
    group.notify_consumer_ids_changed_enable = False
    peer.send(heartbeat(consumer(group="quiet")))
    assert notified(parts, peer) == [[]]


async def test_notifications_can_be_turned_off(tmp_path: Path) -> None:
    """notifyConsumerIdsChangedEnable=false: members get no notification, and rebalance by their own timer."""
    with broker_parts(tmp_path, notify_consumer_ids_changed_enable=False) as parts:
        peer = parts.peer()
        peer.send(heartbeat(consumer()))
        assert notified(parts, peer) == [[]]


async def test_notifications_can_be_gathered(tmp_path: Path) -> None:
    """With realTimeNotifyConsumerChange=false a group gets one notification per 15 s, however often it changes."""
    with broker_parts(tmp_path, real_time_notify_consumer_change=False) as parts:
        first, second = parts.peer(), parts.peer(4322)
        parts.clients.step(parts.clock.now_ms)
        first.send(heartbeat(consumer()))
        second.send(heartbeat(consumer(), client_id="c2"))
        assert (notices(first), notices(second)) == ([], [])
        parts.clients.step(parts.clock.now_ms + 100)
        assert (notices(first), notices(second)) == ([GROUP], [GROUP])
        second.disconnect()
        parts.clients.step(parts.clock.now_ms + 15_000)
        assert notices(first) == []
        parts.clients.step(parts.clock.now_ms + 15_100)
        assert notices(first) == [GROUP]
        parts.clients.configure(ClientManageConfig())
        second = parts.peer(4323)
        second.send(heartbeat(consumer(), client_id="c3"))
        assert notified(parts, first, second) == [[GROUP], [GROUP]]


async def test_a_group_that_may_not_be_created_is_skipped(tmp_path: Path) -> None:
    """The heartbeat succeeds, its other groups are registered, and the forbidden group has no members."""
    with broker_parts(tmp_path, auto_create_subscription_group=False) as parts:
        peer = parts.peer()
        assert peer.call(heartbeat(consumer(), consumer(group="TOOLS_CONSUMER"))).code == 0
        assert parts.sessions.consumer_group(GROUP) is None
        assert parts.sessions.consumer_group("TOOLS_CONSUMER") is not None
        assert parts.topics.find("%RETRY%G") is None


async def test_groups_of_a_client_are_limited(tmp_path: Path) -> None:
    """Per heartbeat and per connection, including producer groups; a refused heartbeat changes nothing."""
    with broker_parts(tmp_path, max_groups_per_client=3) as parts:
        peer = parts.peer()
        assert peer.call(heartbeat(consumer(group="A"), consumer(group="B"), producers=("P",))).code == 0
        many = [consumer(group=f"X{number}") for number in range(4)]
        for refused in (heartbeat(*many), heartbeat(consumer(group="C")), heartbeat(producers=("Q",))):
            response = peer.call(refused)
            assert response.code == ResponseCode.SYSTEM_BUSY
            assert "maxGroupsPerClient=3" in str(response.remark)
        assert [parts.groups.find(name) for name in ("C", "X0")] == [None, None]
        assert not parts.sessions.producers("Q")
        assert peer.call(heartbeat(consumer(group="A"), consumer(group="B"), producers=("P",))).code == 0
        assert parts.peer(4322).call(heartbeat(consumer(group="C"))).code == 0
        peer.call(leave(consumer_group="B"))
        assert peer.call(heartbeat(consumer(group="D"))).code == 0


async def test_subscriptions_and_texts_of_a_client_are_limited(tmp_path: Path) -> None:
    """At the limit they are accepted; beyond it the whole heartbeat is refused."""
    limits = {"max_subscriptions_per_group": 2, "max_client_id_length": 5, "max_expression_length": 4}
    with broker_parts(tmp_path, **limits) as parts:
        peer = parts.peer()
        topics = [subscribe(f"T{number}", "a||b", 1) for number in range(3)]
        assert peer.call(heartbeat(consumer(*topics[:2]), client_id="12345")).code == 0
        for refused, setting in (
            (heartbeat(consumer(*topics, group="N")), "maxSubscriptionsPerGroup=2"),
            (heartbeat(consumer(subscribe("T", "a||bc", 1), group="N")), "maxExpressionLength=4"),
            (heartbeat(consumer(group="N"), client_id="123456"), "maxClientIdLength=5"),
        ):
            response = peer.call(refused)
            assert response.code == ResponseCode.SYSTEM_BUSY
            assert setting in str(response.remark)
        assert parts.groups.find("N") is None


async def test_a_group_beyond_the_limit_does_not_affect_the_others(tmp_path: Path) -> None:
    """The client gets an error that names the limit; its existing groups keep their member."""
    with broker_parts(tmp_path, max_subscription_groups=0) as parts:
        parts.limits.groups.most = len(list(parts.groups)) + 1
        peer = parts.peer()
        response = peer.call(
            heartbeat(consumer(group="New1"), consumer(group="New2"), consumer(group="TOOLS_CONSUMER"))
        )
        assert response.code == ResponseCode.SYSTEM_BUSY
        assert "maxSubscriptionGroups=" in str(response.remark)
        assert parts.sessions.consumer_group("New1") is not None
        assert parts.sessions.consumer_group("TOOLS_CONSUMER") is not None
        assert parts.groups.find("New2") is None


async def test_a_retry_topic_is_ordered_if_a_subscribed_topic_is(parts: BrokerParts) -> None:
    """It has as many queues as its group's setting."""
    parts.topics.update(TopicConfig("O", 4, 4, order=True))
    group = parts.groups.find_or_create(GROUP)
    assert group is not None
    group.retry_queue_nums = 3
    parts.peer().call(heartbeat(consumer(subscribe("O", "*", 1))))
    assert parts.topics.find("%RETRY%G") == TopicConfig("%RETRY%G", 3, 3, order=True)


async def test_heartbeats_of_version_2(parts: BrokerParts) -> None:
    """The client must resend its subscriptions if its fingerprint differs from the group's, or the broker has none."""
    peer = parts.peer()

    def changed(**fields: Any) -> str:
        response = peer.call(heartbeat(consumer(), **fields))
        assert response.ext_fields()["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        return response.ext_fields()["IS_SUB_CHANGE"]

    assert changed(heartbeat_fingerprint=7, without_sub=True) == "true"
    assert changed(heartbeat_fingerprint=7) == "false"
    assert changed(heartbeat_fingerprint=7, without_sub=True) == "false"
    assert changed(heartbeat_fingerprint=8) == "true"
    assert changed(heartbeat_fingerprint=8, without_sub=True) == "false"
    group = parts.sessions.consumer_group(GROUP)
    assert group is not None
    assert list(group.subscriptions) == [TOPIC]


@pytest.mark.parametrize("body", bodies("HEART_BEAT", "request"), ids=lambda body: body[13:45].decode())
async def test_heartbeats_of_javas_client_are_decoded(parts: BrokerParts, body: bytes) -> None:
    """Every captured heartbeat registers exactly its groups, topics and tags."""
    said = msgspec.json.decode(body)
    request = RemotingCommand.request(RequestCode.HEART_BEAT, body=body)
    assert parts.peer().call(request).code == 0
    for data in said["consumerDataSet"]:
        group = parts.sessions.consumer_group(data["groupName"])
        assert group is not None
        assert group.client_ids() == [said["clientID"]]
        assert (group.message_model, group.consume_type) == (data["messageModel"], data["consumeType"])
        expected = {subscription["topic"]: subscription for subscription in data["subscriptionDataSet"]}
        assert {topic: msgspec.to_builtins(s.data) for topic, s in group.subscriptions.items()} == expected
        assert parts.topics.find("%RETRY%" + data["groupName"]) is not None
    for data in said["producerDataSet"]:
        assert len(parts.sessions.producers(data["groupName"])) == 1


async def test_heartbeats_of_the_cpp_client_are_decoded(parts: BrokerParts) -> None:
    """Ordinals for names, subVersion as text, no expressionType, tags, codes or producers, a newline at the end."""
    body = (
        b'{"clientID":"77-10.0.0.9@DEFAULT","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"cpp",'
        b'"messageModel":1,"subscriptionDataSet":[{"subString":"A || B","subVersion":"1795224625015","topic":"T"}]},'
        b'{"consumeFromWhere":4,"consumeType":1,"groupName":"all","messageModel":0}]}\n'
    )
    request = RemotingCommand.request(RequestCode.HEART_BEAT, body=body)
    request.language = "CPP"
    assert parts.peer().call(request).code == 0
    clustering, broadcasting = parts.sessions.consumer_group("cpp"), parts.sessions.consumer_group("all")
    assert clustering is not None
    assert broadcasting is not None
    assert (clustering.is_broadcast, broadcasting.is_broadcast) == (False, True)
    assert clustering.consume_type is ConsumeType.CONSUME_PASSIVELY
    matches = clustering.subscriptions[TOPIC].matches
    assert matches is not None
    assert [matches(code) for code in (65, 66, 67)] == [True, True, False]
    assert clustering.subscriptions[TOPIC].data.sub_version == 1795224625015


@pytest.mark.parametrize("body", [b"", b"no json", b"[]"])
async def test_an_invalid_heartbeat_is_an_error(parts: BrokerParts, body: bytes) -> None:
    """SYSTEM_ERROR (1) and no session."""
    assert parts.peer().call(RemotingCommand.request(RequestCode.HEART_BEAT, body=body)).code == 1
    assert parts.sessions.statistics().consumers == 0


# ----------------------------------------------------------------------------------------------------------- leave


async def test_a_leaving_client_is_removed_and_the_others_are_notified(parts: BrokerParts) -> None:
    """UNREGISTER_CLIENT (35) removes the connection from the named groups only."""
    first, second = parts.peer(), parts.peer(4322)
    first.send(heartbeat(consumer(), consumer(group="H"), producers=("P",)))
    second.send(heartbeat(consumer(), client_id="c2"))
    notified(parts, first, second)
    response = first.call(leave(consumer_group=GROUP, producer_group="P"))
    assert (response.code, response.remark, bytes(response.body)) == (0, None, b"")
    assert notified(parts, first, second) == [[], [GROUP]]
    assert not parts.sessions.producers("P")
    assert parts.sessions.consumer_group("H") is not None
    assert first.call(leave(consumer_group=GROUP)).code == 0
    assert notified(parts, second) == [[]]


async def test_a_lost_connection_notifies_even_a_disabled_group(parts: BrokerParts) -> None:
    """The group's setting does not apply to closed connections."""
    group = parts.groups.find_or_create(GROUP)
    assert group is not None
    group.notify_consumer_ids_changed_enable = False
    first, second = parts.peer(), parts.peer(4322)
    first.send(heartbeat(consumer()))
    second.send(heartbeat(consumer(), client_id="c2"))
    second.disconnect()
    assert notified(parts, first) == [[GROUP]]
    assert parts.sessions.statistics().consumers == 1


async def test_a_silent_client_expires_and_the_others_are_notified(parts: BrokerParts) -> None:
    """After 120 s without a heartbeat, checked every 10 s, its connection is closed and its members are removed."""
    silent, alive = parts.peer(), parts.peer(4322)
    silent.send(heartbeat(consumer()))
    parts.clock.now_ms += 60_000
    alive.send(heartbeat(consumer(), client_id="c2"))
    notified(parts, silent, alive)
    for _ in range(2):
        parts.clock.now_ms += 35_000
        parts.clients.step(parts.clock.now_ms)
    assert (silent.transport.closing, alive.transport.closing) == (True, False)
    silent.disconnect()
    assert notified(parts, alive) == [[GROUP]]
    assert parts.clients.statistics().expired == 1


# ---------------------------------------------------------------------------------------------------------- inquire


async def test_a_group_without_members_has_no_consumer_list(parts: BrokerParts) -> None:
    """GET_CONSUMER_LIST_BY_GROUP (38) is SYSTEM_ERROR (1) with RocketMQ's remark."""
    response = parts.peer().call(consumer_list("nobody"))
    assert (response.code, response.remark) == (1, "no consumer for this group, nobody")


@pytest.mark.parametrize(
    ("subscription", "code", "remark"),
    [
        (None, 0, None),
        (subscribe(TOPIC, "A", 1), 0, None),
        (SubscriptionData(TOPIC, "a > 1", expression_type=""), 0, None),
        (
            SubscriptionData(TOPIC, "a > 1", expression_type="SQL92"),
            1,
            "The broker does not support consumer to filter message by SQL92",
        ),
    ],
)
async def test_tags_are_supported_and_sql_is_not(
    parts: BrokerParts, subscription: SubscriptionData | None, code: int, remark: str | None
) -> None:
    """CHECK_CLIENT_CONFIG (46) gives the result of a pull; a request without body or subscription succeeds."""
    body = CheckClientRequestBody("c1", GROUP, subscription_data=subscription).encode()
    response = parts.peer().call(RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
    assert (response.code, response.remark) == (code, remark)
    assert parts.peer().call(RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG)).code == 0


@pytest.mark.parametrize(
    ("kind", "expression", "code", "remark"),
    [
        ("SQL92", "a > 5", 0, None),
        ("TAG", "a > 5", 0, None),
        (
            "SQL92",
            "a >\n)",
            23,
            "line 2, column 1: expected a property, a text, a number or a parenthesis, found ')'",
        ),
        (
            "SQL92",
            "",
            23,
            "line 1, column 1: expected a property, a text, a number or a parenthesis, found the end",
        ),
        ("CLASS", "a.B", 23, "there are no expressions of type 'CLASS'"),
    ],
)
async def test_expressions_with_property_filters(
    tmp_path: Path, kind: str, expression: str, code: int, remark: str | None
) -> None:
    """With enablePropertyFilter, CHECK_CLIENT_CONFIG (46) compiles the expression, or returns the error with its
    position."""
    with broker_parts(tmp_path, enable_property_filter=True) as parts:
        subscription = SubscriptionData(TOPIC, expression, expression_type=kind)
        body = CheckClientRequestBody("c1", GROUP, subscription_data=subscription).encode()
        response = parts.peer().call(RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=body))
        assert (response.code, response.remark) == (code, remark)


async def test_a_heartbeat_in_messagepack(parts: BrokerParts) -> None:
    """The response has the same dialect, and announces it."""
    request = heartbeat(consumer())
    request.dialect = MSGPACK
    response = parts.peer().call(request)
    assert (response.dialect, response.code) == (MSGPACK, 0)
    assert response.ext_fields()[ANNOUNCED_BY] == ANNOUNCED_AS


async def test_invalid_names_create_nothing(parts: BrokerParts) -> None:
    """Neither groups nor topics, nor producers or subscriptions; valid names in the same heartbeat are registered."""
    peer = parts.peer()
    valid = subscribe(TOPIC, "*", 1)
    bad = [subscribe(name, "*", 1) for name in ("../x", "a\nb", "", "T" * 256)]
    topics = {topic.topic_name for topic in parts.topics}
    groups = ("../g", "g\n", "", "g" * 256)
    asked = heartbeat(
        consumer(valid, *bad), *(consumer(valid, group=name) for name in groups), producers=("PG", *groups)
    )
    assert peer.call(asked).code == 0
    assert {topic.topic_name for topic in parts.topics} - topics == {"%RETRY%G"}
    assert all(parts.groups.find(name) is None for name in groups)
    assert list(parts.sessions.producer_groups()) == ["PG"]
    assert [group.name for group in parts.sessions.consumer_groups()] == [GROUP]
    members = parts.sessions.consumer_group(GROUP)
    assert members is not None
    assert list(members.subscriptions) == [TOPIC]


async def test_a_group_whose_retry_topic_name_is_too_long(parts: BrokerParts) -> None:
    """The group is created without a retry topic."""
    long = "g" * 250
    assert parts.peer().call(heartbeat(consumer(group=long))).code == 0
    assert parts.groups.find(long) is not None
    assert parts.topics.find("%RETRY%" + long) is None
