"""`mqadmin group`: lists, lag, effects, confirmation, failures."""

from collections.abc import Callable
from typing import Any

import pytest

from skylarkmq.protocol.bodies.client_state import ConsumerRunningInfo, ProcessQueueInfo
from skylarkmq.protocol.bodies.connections import ClientConnection, ConsumerConnection
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.people.conftest import Sender
from tests.clients.mqadmin.rocketmq.conftest import GROUP, SENT, TOPIC, Live, live
from tests.clients.peer import Peer

__all__ = ["live"]

pytestmark = pytest.mark.usefixtures("live")


def test_groups_are_listed_with_members_and_lag(mqadmin: RunCommand, json_of: Callable[..., Any]) -> None:
    """Without the groups of the system."""
    (row,) = json_of("group", "list")["groups"]
    assert row | {"messagesPerSecond": 0} == {
        "name": GROUP,
        "members": 1,
        "lag": 0,
        "messagesPerSecond": 0,
        "maxRetries": 16,
        "isEnabled": True,
    }
    assert mqadmin("group", "list").out.splitlines()[1].split()[:3] == [GROUP, "1", "0"]
    assert "CID_ONSAPI_PULL" in mqadmin("group", "list", "--all").out
    assert mqadmin("group", "list", "--filter", "none").out == "No groups.\n"


def test_a_group_is_shown_with_its_members(mqadmin: RunCommand, json_of: Callable[..., Any], live: Live) -> None:
    """And with its subscriptions and the lag of each topic."""
    shown = json_of("group", "show", GROUP)
    assert [member["clientId"] for member in shown["members"]] == [live.member]
    assert {"topic": TOPIC, "subscription": "*", "lag": 0} in shown["topics"]
    text = mqadmin("group", "show", GROUP).out
    assert live.member in text
    assert text.startswith(f"Group {GROUP}\n")


def test_the_queues_of_a_hundred_members_are_requested(scripted: Peer, run_mqadmin: RunCommand) -> None:
    """A line names the number of those and of all members."""
    group, queue = "crowd", MessageQueue("Orders", "b", 0)
    route = TopicRouteData(
        queue_datas=[QueueData("b", 1, 1, 6)], broker_datas=[BrokerData("c", "b", {0: scripted.address})]
    )
    members = ConsumerConnection([ClientConnection(client_id=f"m{at}") for at in range(101)])
    info = ConsumerRunningInfo(mq_table={queue: ProcessQueueInfo()})
    stats = ConsumeStats({queue: OffsetWrapper(broker_offset=5, consumer_offset=5)})
    requested: list[str] = []

    def running_info(_: object, request: RemotingCommand) -> RemotingCommand:
        requested.append(request.ext_fields()["clientId"])
        return RemotingCommand.response(body=info.encode())

    for code, body in (
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, route),
        (RequestCode.GET_CONSUME_STATS, stats),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, members),
    ):
        scripted.on(code, lambda *_, body=body: RemotingCommand.response(body=body.encode()))
    scripted.on(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info)
    result = run_mqadmin("group", "lag", group, "--members")
    assert (result.code, result.err) == (0, "")
    assert "\nThe queues of 100 of 101 members were requested.\n" in result.out
    assert len(set(requested)) == len(requested) == 100


def test_the_lag_is_shown_by_queue(mqadmin: RunCommand, json_of: Callable[..., Any], live: Live) -> None:
    """With --members also the member of each queue."""
    shown = json_of("group", "lag", GROUP, "--topic", TOPIC, "--members")
    assert (shown["group"], shown["lag"], shown["members"]) == (GROUP, 0, 1)
    queues = [each for each in shown["queues"] if each["topic"] == TOPIC]
    assert [each["queue"] for each in queues] == [0, 1]
    assert sum(each["committed"] for each in queues) == SENT
    assert {each["clientId"] for each in queues} == {live.member}
    assert shown["membersRequested"] == 1
    assert mqadmin("group", "lag", GROUP).out.startswith(f"Group {GROUP}: lag 0, 1 member, ")


def test_a_group_is_created_and_deleted(
    mqadmin: RunCommand, json_of: Callable[..., Any], answers: Callable[[str], None]
) -> None:
    """After a confirmation."""
    assert json_of("group", "create", "mailing", "--retries", "3", "--ordered")["action"] == "created"
    shown = json_of("group", "show", "mailing")
    assert (shown["maxRetries"], shown["isOrdered"], shown["members"], shown["topics"]) == (3, True, [], [])
    again = mqadmin("group", "create", "mailing")
    assert (again.code, again.out) == (1, "")
    assert again.err == "mqadmin: group mailing exists. `mqadmin updateSubGroup` changes it.\n"
    answers("yes\n")
    deleted = mqadmin("group", "delete", "mailing")
    assert deleted.out.startswith("Group mailing is deleted on ")
    assert "It has 0 members." in deleted.err
    assert mqadmin("group", "show", "mailing").code == 2


def test_a_group_without_members_is_reset(json_of: Callable[..., Any], mqadmin: RunCommand, sender: Sender) -> None:
    """To the first message, to a time, and to the end."""
    assert mqadmin("group", "create", "reports").code == 0
    for to, expected in (("first", 0), ("end", SENT), ("1d", 0), ("now", SENT)):
        moved = json_of("group", "reset", "reports", "--topic", TOPIC, "--to", to, "--yes")
        assert sum(each["offset"] for each in moved["queues"]) == expected
        assert len(moved["queues"]) == 2
        assert sender.run(sender.admin.lag("reports", TOPIC)) == SENT - expected


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("show", "missing"), 2, "no broker has a group missing. `mqadmin group list` lists the groups."),
        (("lag", "missing"), 2, "missing"),
        (("lag", "missing", "--topic", TOPIC), 2, "missing"),
        (("delete", "missing", "--yes"), 2, "missing"),
        (("delete", GROUP), 1, "without --yes"),
        (("reset", GROUP, "--topic", TOPIC, "--to", "end"), 1, "without --yes"),
        (("reset", GROUP, "--topic", "Missing", "--to", "end", "--yes"), 2, "Missing"),
        (("reset", "missing", "--topic", TOPIC, "--to", "end", "--yes"), 2, "missing"),
        (("reset", GROUP, "--topic", TOPIC, "--to", "soon", "--yes"), 1, "a time must be now, 15m"),
    ],
)
def test_failures_are_one_line(mqadmin: RunCommand, arguments: tuple[str, ...], code: int, cause: str) -> None:
    """With the cause, and the exit code of its class."""
    result = mqadmin("group", *arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert cause in result.err
