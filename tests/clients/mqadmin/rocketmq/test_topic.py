"""Commands about topics."""

import json
import re
from pathlib import Path

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.topic import CreateTopicHeader
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.peer import Peer

C = ("-c", "DefaultCluster")


def config_text(topic: str, queues: int = 8, perm: str = "RW-", flag: int = 0, order: str = "false") -> str:
    """Return RocketMQ's text of a topic."""
    return (
        f"TopicConfig [topicName={topic}, readQueueNums={queues}, writeQueueNums={queues}, perm={perm}, "
        f"topicFilterType=SINGLE_TAG, topicSysFlag={flag}, order={order}, attributes={{}}]"
    )


def test_a_topic_is_created_on_the_masters_of_a_cluster(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """With the defaults of RocketMQ's tool, and again with its defaults after a change."""
    assert mqadmin("updateTopic", *C, "-t", "Made", "-r", "3", "-w", "2", "-p", "4").code == 0
    (row,) = mqadmin("topicRoute", "-t", "Made", "-l").out.splitlines()[1:2]
    assert row.split()[3:] == ["3", "2", "4"]
    result = mqadmin("updateTopic", *C, "-t", "Made")
    assert result == (0, f"create topic to {broker.address} success.\n{config_text('Made')}\n", "")


def test_a_topic_is_created_on_one_broker(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """With flags, and attributes in the order of RocketMQ's tool."""
    flags = ("-u", "true", "-s", "true", "-a", "+message.type=FIFO")
    result = mqadmin("updateTopic", "-b", broker.address, "-t", "One", "-r", "4", "-w", "4", *flags)
    text = config_text("One", 4, flag=3).replace("{}", "{+message.type=FIFO}")
    assert result == (0, f"create topic to {broker.address} success.\n{text}\n", "")


def test_an_ordered_topic_gets_its_queue_numbers(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """In the name servers: of all masters of the cluster, or of one more broker."""
    result = mqadmin("updateTopic", *C, "-t", "Ordered", "-o", "true")
    assert "\nset cluster orderConf. isOrder=true, orderConf=[broker-a:8]\nTopicConfig [" in result.out
    result = mqadmin("updateTopic", "-b", broker.address, "-t", "Ordered", "-w", "2", "-o", "TRUE")
    assert result.out.startswith("set broker orderConf. isOrder=true, orderConf=[broker-a:2]\ncreate topic to ")
    result = mqadmin("updateTopic", "-b", "127.0.0.1:1", "-t", "Ordered", "-o", "true")
    assert (result.code, result.out) == (3, "")


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("-t", "X"), "give the address of a broker (-b) or the name of a cluster (-c)"),
        ((*C, "-t", "X", "-p", "9"), "topicPermission value: 9 is invalid"),
        ((*C, "-t", "X", "-a", "a=b"), "an attribute must be +name=value (set) or -name (remove)"),
        ((*C, "-t", "X", "-a", "+a=b,+a=c"), "the attribute a is given twice"),
        ((*C, "-t", "X", "-r", "many"), "'-r'"),
    ],
)
def test_a_wrong_option_creates_no_topic(mqadmin: RunCommand, arguments: tuple[str, ...], cause: str) -> None:
    """The exit code is 1."""
    result = mqadmin("updateTopic", *arguments)
    assert (result.code, result.out) == (1, "")
    assert cause in result.err


def test_an_unknown_cluster_creates_no_topic(mqadmin: RunCommand) -> None:
    """The exit code is 2."""
    assert mqadmin("updateTopic", "-c", "Nowhere", "-t", "X").code == 2


def test_topics_of_a_file_are_created(mqadmin: RunCommand, broker: InProcessBroker, tmp_path: Path) -> None:
    """With RocketMQ's defaults for absent fields."""
    file = tmp_path / "topics.json"
    file.write_text('[{"topicName":"L1"},{"topicName":"L2","readQueueNums":3,"writeQueueNums":3,perm:4}]')
    for where in (C, ("-b", broker.address)):
        result = mqadmin("updateTopicList", *where, "-f", str(file))
        line = f"submit batch of topic config to {broker.address} success, please check the result later.\n"
        assert result == (0, line, "")
    counts = [mqadmin("topicRoute", "-t", name, "-l").out.splitlines()[1].split()[3:] for name in ("L1", "L2")]
    assert counts == [["16", "16", "6"], ["3", "3", "4"]]


@pytest.mark.parametrize(
    ("content", "cause"),
    [(None, "No such file"), ("{", "TopicConfigList"), ("[]", "lists no topics"), ('[{"perm":"all"}]', "perm")],
)
def test_a_file_without_topics_is_named(mqadmin: RunCommand, tmp_path: Path, content: str | None, cause: str) -> None:
    """The exit code is 1."""
    file = tmp_path / "topics.json"
    if content is not None:
        file.write_text(content)
    result = mqadmin("updateTopicList", *C, "-f", str(file))
    assert (result.code, result.out) == (1, "")
    assert "topics.json" in result.err
    assert cause in result.err


def test_a_topic_is_deleted(mqadmin: RunCommand) -> None:
    """From the brokers of a cluster and from the name servers."""
    mqadmin("updateTopic", *C, "-t", "Gone")
    result = mqadmin("deleteTopic", *C, "-t", "Gone")
    lines = "delete topic [Gone] from cluster [DefaultCluster] success.\ndelete topic [Gone] from NameServer success.\n"
    assert result == (0, lines, "")
    result = mqadmin("topicRoute", "-t", "Gone")
    assert (result.code, result.out) == (2, "")
    assert "has topic Gone" in result.err
    assert mqadmin("deleteTopic", "-c", "Nowhere", "-t", "Gone").code == 2


def test_the_permission_of_a_topic_changes(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """Its numbers of queues stay as they are."""
    mqadmin("updateTopic", *C, "-t", "Perm", "-r", "3", "-w", "3")
    result = mqadmin("updateTopicPerm", *C, "-t", "Perm", "-p", "4")
    assert result == (0, f"update topic perm from 6 to 4 in {broker.address} success.\n", "")
    result = mqadmin("updateTopicPerm", "-b", broker.address, "-t", "Perm", "-p", "2")
    line = f"update topic perm from 4 to 2 in {broker.address} success.\n"
    assert result == (0, f"{line}{config_text('Perm', 3, '-W-')}.\n", "")
    result = mqadmin("updateTopicPerm", "-b", broker.address, "-t", "Perm", "-p", "2")
    assert result == (0, "new perm equals to the old one!\n", "")
    result = mqadmin("updateTopicPerm", "-b", "127.0.0.1:1", "-t", "Perm", "-p", "2")
    assert (result.code, result.out) == (2, "")
    assert mqadmin("updateTopicPerm", "-t", "Perm", "-p", "2").code == 1


def test_a_route_is_printed(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """As indented JSON in the layout of fastjson, or as a table."""
    mqadmin("updateTopic", *C, "-t", "Routed", "-r", "4", "-w", "4")
    result = mqadmin("topicRoute", "-t", "Routed")
    assert result.out == (
        '{\n\t"brokerDatas":[\n\t\t{\n\t\t\t"brokerAddrs":{0:"ADDRESS"\n\t\t\t},\n\t\t\t"brokerName":"broker-a",\n'
        '\t\t\t"cluster":"DefaultCluster",\n\t\t\t"enableActingMaster":false\n\t\t}\n\t],\n\t"filterServerTable":{},\n'
        '\t"queueDatas":[\n\t\t{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":4,\n'
        '\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":4\n\t\t}\n\t]\n}\n'
    ).replace("ADDRESS", broker.address)
    head, row, line, total = mqadmin("topicRoute", "-t", "Routed", "-l").out.splitlines()
    assert head.split() == ["#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"]
    assert row.split() == ["DefaultCluster", "broker-a", f"{{0={broker.address}}}", "4", "4", "6"]
    assert line == "-" * 158
    assert total.split() == ["Total:", "1", "4", "4"]


def test_the_offsets_of_a_topic_are_printed(mqadmin: RunCommand) -> None:
    """With the time of the last message; also by the route of another topic."""
    mqadmin("updateTopic", *C, "-t", "Status", "-r", "2", "-w", "2")
    result = mqadmin("topicStatus", "-t", "Status")
    assert re.sub(" +", " ", result.out) == (
        "#Broker Name #QID #Min Offset #Max Offset #Last Updated\nbroker-a 0 0 0 \nbroker-a 1 0 0 \n\n"
        "Topic Put TPS: 0.0\n"
    )
    assert mqadmin("topicStatus", "-t", "Status", "-c", "DefaultCluster") == result
    assert mqadmin("topicStatus", "-t", "Unknown").code == 2


def test_topics_are_listed(mqadmin: RunCommand) -> None:
    """With -c: with their clusters and groups, without the topics of retries and dead letters."""
    mqadmin("updateTopic", *C, "-t", "Listed")
    mqadmin("updateTopic", *C, "-t", "%RETRY%listed")
    names = mqadmin("topicList").out.splitlines()
    assert {"Listed", "%RETRY%listed", "TBW102", "broker-a"} <= set(names)
    result = mqadmin("topicList", "-c")
    assert result.out.splitlines()[0].split("  ")[0] == "#Cluster Name"
    assert [row[1] for row in result.rows] == [name for name in names if not name.startswith("%RETRY%")]
    assert {row[0] for row in result.rows} == {"DefaultCluster"}


def test_the_clusters_of_a_topic_are_listed(mqadmin: RunCommand) -> None:
    """Those that have its first broker."""
    mqadmin("updateTopic", *C, "-t", "Here")
    assert mqadmin("topicClusterList", "-t", "Here") == (0, "DefaultCluster\n", "")


def test_queues_are_allocated(mqadmin: RunCommand) -> None:
    """To the members, as JSON: queues and members in the order of Java's hash tables."""
    mqadmin("updateTopic", *C, "-t", "Orders")
    result = mqadmin("allocateMQ", "-t", "Orders", "-i", "10.0.0.1,10.0.0.2,10.0.0.3")
    shares = {ip: [queue["queueId"] for queue in queues] for ip, queues in json.loads(result.out)["result"].items()}
    assert list(shares.items()) == [("10.0.0.3", [1, 0]), ("10.0.0.2", [4, 7, 6]), ("10.0.0.1", [3, 2, 5])]


def test_a_4_9_broker_gets_the_topics_one_by_one(run_mqadmin: RunCommand, scripted: Peer, tmp_path: Path) -> None:
    """Because it responds that it does not support UPDATE_AND_CREATE_TOPIC_LIST (18)."""
    made: list[tuple[str, int]] = []

    def create(_: object, request: RemotingCommand) -> RemotingCommand:
        header = request.header(CreateTopicHeader)
        made.append((header.topic, header.read_queue_nums))
        return RemotingCommand.response()

    scripted.on(RequestCode.UPDATE_AND_CREATE_TOPIC, create)
    file = tmp_path / "topics.json"
    file.write_text('[{"topicName":"L1"},{"topicName":"L2","readQueueNums":3}]')
    result = run_mqadmin("updateTopicList", "-c", "c", "-f", str(file))
    assert (result.code, result.err) == (0, "")
    assert made == [("L1", 16), ("L2", 3)]


def test_a_refusal_is_one_line(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """With the exit code of its class, and nothing on stdout."""
    refusal = RemotingCommand.response(ResponseCode.NO_PERMISSION, "not you")
    scripted.on(RequestCode.UPDATE_AND_CREATE_TOPIC, lambda *_: refusal)
    result = run_mqadmin("updateTopic", "-c", "c", "-t", "X")
    assert (result.code, result.out, result.err.count("\n")) == (4, "", 1)
    assert "not you" in result.err


def test_odd_routes_are_one_line(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """With queues of a broker without address, without queues, and with invalid numbers."""
    routes = {
        "NoQueues": TopicRouteData(broker_datas=[BrokerData("c", "b", {0: scripted.address})]),
        "NoBroker": TopicRouteData(queue_datas=[QueueData("b", 1, 1, 6)]),
        "Negative": TopicRouteData(queue_datas=[QueueData("b", -1, 1, 6)]),
    }
    scripted.on(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        lambda _, request: RemotingCommand.response(body=routes[request.ext_fields()["topic"]].encode()),
    )
    for arguments, code in (
        (("topicRoute", "-l", "-t", "NoQueues"), 2),
        (("updateTopicPerm", "-c", "c", "-p", "4", "-t", "NoQueues"), 2),
        (("topicStatus", "-t", "NoBroker"), 2),
        (("topicClusterList", "-t", "NoBroker"), 2),
        (("topicRoute", "-t", "Negative"), 5),
    ):
        result = run_mqadmin(*arguments)
        assert (result.code, result.err.count("\n")) == (code, 1), arguments


def test_a_topic_without_a_readable_route_is_listed(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """Without cluster or groups, because it may have been deleted since the list was made."""
    info = ClusterInfo({"b": BrokerData("c", "b", {0: scripted.address})}, {"c": ["b"]})
    scripted.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=info.encode()))
    scripted.on(
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        lambda *_: RemotingCommand.response(body=b'{"topicList":["Deleted"]}'),
    )
    scripted.on(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: RemotingCommand.response(ResponseCode.TOPIC_NOT_EXIST, "no")
    )
    result = run_mqadmin("topicList", "-c")
    assert (result.code, result.rows) == (0, [["Deleted"]])


def test_the_configuration_text_of_a_topic_is_rocketmqs() -> None:
    """`config_text` above and the text of the struct are the same."""
    assert str(TopicConfig("T", 8, 8)) == config_text("T")
