"""Checks of topics."""

import pytest

from skylarkmq.clients.mqadmin.doctor import topics
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.clients.mqadmin.doctor.conftest import ScriptedCluster, route

WRITE, READ = 2, 4
NOT_WRITTEN, NOT_READ = "the topic cannot be written on any broker", "the topic cannot be read on any broker"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (route("h:1"), []),
        (route("h:1", perm=READ), [("error", NOT_WRITTEN)]),
        (route("h:1", perm=WRITE), [("error", NOT_READ)]),
        (route("h:1", perm=0), [("error", NOT_WRITTEN), ("error", NOT_READ)]),
        (route("h:1", write=0), [("error", NOT_WRITTEN)]),
        (route("h:1", broker_id=1), [("error", NOT_WRITTEN)]),
        (route("h:1", read=2, write=4), [("error", "messages in 2 of 4 queues cannot be read")]),
        (route("h:1", read=4, write=2), []),
        (TopicRouteData(), [("error", NOT_WRITTEN), ("error", NOT_READ)]),
    ],
)
def test_a_route_is_written_and_read(data: TopicRouteData, found: list[tuple[str, str]]) -> None:
    """Each queue that is written is also read."""
    assert [(its.severity.value, its.what) for its in topics.route_findings("Orders", data)] == found


def test_a_topic_that_is_closed_on_one_of_two_brokers_is_a_warning() -> None:
    """The other one takes the messages."""
    rows = [QueueData("a", 4, 4, READ), QueueData("b", 4, 4, READ | WRITE)]
    data = TopicRouteData(queue_datas=rows, broker_datas=[BrokerData("c", name, {0: "h:1"}) for name in "ab"])
    (finding,) = topics.route_findings("Orders", data)
    assert (finding.severity.value, finding.where) == ("warning", "Orders on a")
    assert finding.what == "the topic cannot be written on this broker"


def test_an_unknown_topic_is_an_error(cluster: ScriptedCluster) -> None:
    """With -t."""
    assert cluster.findings("-t", "Payments") == [("error", "topics", "no name server has a route of the topic")]


def test_topics_of_brokers_and_groups_are_not_examined(cluster: ScriptedCluster) -> None:
    """Only those of applications."""
    closed = route(cluster.peer.address, perm=0)
    for name in ("TBW102", "%RETRY%g", "%DLQ%g", "rmq_sys_x", "b", "c", "c_REPLY_TOPIC"):
        cluster.routes[name] = closed
    assert cluster.findings() == []
    assert len(cluster.findings("-t", "TBW102")) == 2


def test_of_many_topics_the_first_are_examined(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the report says how many are not."""
    monkeypatch.setattr(topics, "MAX_TOPICS", 1)
    cluster.routes["Payments"] = route(cluster.peer.address, perm=0)
    report = cluster.report()
    assert report.findings == []
    assert "1 of 2 topics; give one with -t" in {each.reason for each in report.not_examined}
