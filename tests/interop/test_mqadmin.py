"""RocketMQ's own mqadmin, 4.9.7 and 5.3.3, against a running broker: what its commands say of it is true.

A scene is a broker with a topic, a group with one member, and messages that it has consumed. All commands of a version
run in one process.

What is expected here has been held against RocketMQ's own broker, and can be again (two minutes; CI does not):

    pytest tests/interop/test_mqadmin.py --broker-under-test=apache-5.3.3

Its answers differ from ours in two things that its own tools trip over: it leaves out rates until it has their samples,
and, of 5.3.3, keys that tools of 4.9 insist on. Ours gives both.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.protocol import javajson
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import CLIENTS
from tests.interop.compatibility import FACTS, OFFERED, TRIED
from tests.interop.drivers import Stage
from tests.interop.matrix import LEFT_OUT
from tests.interop.tools import VERSIONS, Said, Tools

TOPIC, GROUP, IDLE_GROUP = "Alpha", "group-a", "group-b"
BROKER, CLUSTER = "broker-a", "DefaultCluster"
QUEUES, SENT = 4, 8
CLIENT_OF = {"4.9.7": "java-4.9.8", "5.3.3": "java-5.3.3"}
INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
"""The group in which a consumer of Java sends messages back."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
CONSUMED_WITHIN_S: Final = 60.0
SEEN_WITHIN_S: Final = 30.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


class Scene:
    """A broker with something to look at, and the tools to do so."""

    def __init__(self, broker_kind: str, broker: BrokerUnderTest, tools: Tools, stage: Stage) -> None:
        self._broker_kind = broker_kind
        self.is_ours = broker_kind == "skylark"
        self.broker = broker
        self.tools = tools
        self.stage = stage
        self.address = broker.broker_address
        self.tried: set[str] = set()
        self.is_five = tools.is_five
        self.unique_ids = [f"7F000001{time.time_ns() // 1000:016X}{number:08X}" for number in range(SENT)]

    @property
    def is_served(self) -> bool:
        """Whether the broker gives all that tools of this version insist on."""
        return self._broker_kind != "apache-5.3.3" or self.is_five

    def prepare(self) -> None:
        """Messages to a topic whose group has one member, which gets them."""
        self.broker.create_topic(TOPIC, QUEUES)
        client = CLIENTS[CLIENT_OF[self.tools.version]]
        self.stage.start("member", client.command, "consume", self.broker.namesrv, TOPIC, GROUP)
        self.stage.wait_until(lambda: "member" in self.stage.started, "the member has started", CONSUMED_WITHIN_S)
        for number, unique_id in enumerate(self.unique_ids):
            properties = {"TAGS": "ab"[number % 2], "KEYS": f"key-{number}", "UNIQ_KEY": unique_id, "n": str(number)}
            self.broker.send(TOPIC, number % QUEUES, properties, b"hello %d" % number)
        self.stage.wait_for_messages({str(number) for number in range(SENT)}, CONSUMED_WITHIN_S)

    def run(self, command: str, *arguments: object) -> Said:
        """Run a command that succeeds."""
        said = self.tools.run(command, *arguments)
        assert said.code == 0, said
        assert "SubCommandException" not in said.text, said.text
        return said

    def until(self, look: Callable[[], bool], what: str) -> None:
        """Wait for what the broker tells only now and then."""
        deadline = time.monotonic() + SEEN_WITHIN_S
        while not look():
            assert time.monotonic() < deadline, what
            self.stage.listen(0.5)

    def route(self, topic: str) -> dict[str, Any]:
        route: dict[str, Any] = self.run("topicRoute", "-t", topic).json
        return route

    def permission(self, topic: str) -> int:
        return int(self.route(topic)["queueDatas"][0]["perm"])

    def offsets(self, group: str = GROUP) -> dict[str, tuple[str, str]]:
        """Of each queue the broker's offset and the group's."""
        rows = self.run("consumerProgress", "-g", group).rows
        return {queue: (end, at) for topic, _, queue, end, at, *_ in rows if topic == TOPIC}


@pytest.fixture(scope="module", params=VERSIONS)
def scene(
    request: pytest.FixtureRequest, broker_kind: str, tmp_path_factory: pytest.TempPathFactory, measured: list[str]
) -> Iterator[Scene]:
    version: str = request.param
    homes = tmp_path_factory.mktemp(version)
    CLIENTS[CLIENT_OF[version]].command(homes)  # built, or skipped, before the broker starts
    began = time.monotonic()
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker"), {"brokerName": BROKER}) as broker:
        tools = Tools(version, homes / "tools", broker.namesrv)
        stage = Stage(homes, broker.log)
        try:
            scene = Scene(broker_kind, broker, tools, stage)
            scene.prepare()
            yield scene
        finally:
            stage.stop()
            tools.stop()
    measured.append(f"mqadmin {version}: all commands in {time.monotonic() - began:.1f} s")


@pytest.fixture(autouse=True)
def told(scene: Scene, request: pytest.FixtureRequest) -> Iterator[None]:
    """The commands that a test has run stand in its report."""
    tools = scene.tools
    tools.tried.clear()
    yield
    scene.tried |= tools.tried
    request.node.user_properties.append((FACTS, [(TRIED, tools.version, command) for command in sorted(tools.tried)]))


# ------------------------------------------------------------------------------------------------------------- topics


def test_topics_are_made_changed_and_deleted(scene: Scene) -> None:
    """updateTopic, updateTopicPerm, updateTopicList, deleteTopic: the routes say what was asked for."""
    run = scene.run
    assert "success" in run("updateTopic", "-c", CLUSTER, "-t", "Beta", "-r", 3, "-w", 2).text
    [queues] = scene.route("Beta")["queueDatas"]
    assert (queues["brokerName"], queues["readQueueNums"], queues["writeQueueNums"]) == (BROKER, 3, 2)
    assert "from 6 to 4" in run("updateTopicPerm", "-b", scene.address, "-t", "Beta", "-p", 4).text
    assert scene.permission("Beta") == 4
    if scene.is_five:
        wanted = [
            {"topicName": "L1", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6},
            {"topicName": "L2", "perm": 4},
        ]
        path = scene.tools.home / "topics.json"
        path.write_text(json.dumps(wanted))
        assert "success" in run("updateTopicList", "-b", scene.address, "-f", path).text
        assert [scene.permission(name) for name in ("L1", "L2")] == [6, 4]
        assert [CLUSTER, BROKER, f"{{0={scene.address}}}", "3", "2", "4"] in run("topicRoute", "-t", "Beta", "-l").rows
    assert run("topicClusterList", "-t", "Beta").lines == [CLUSTER]
    assert len(run("deleteTopic", "-c", CLUSTER, "-t", "Beta").lines) == 2
    assert "Beta" not in run("topicList").lines


def test_topics_are_listed_with_their_groups(scene: Scene) -> None:
    """topicList names every topic, with -c who consumes it; allocateMQ shares queues out."""
    assert {TOPIC, "TBW102", CLUSTER, BROKER, f"%RETRY%{GROUP}"} <= set(scene.run("topicList").lines)
    assert [CLUSTER, TOPIC, GROUP] in scene.run("topicList", "-c").rows
    shared = scene.run("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2,10.0.0.3").json["result"]
    assert sorted(len(queues) for queues in shared.values()) == [1, 1, 2]


def test_a_topics_queues_are_shown(scene: Scene) -> None:
    """topicStatus: bounds of each queue, and when its last message came."""
    rows = [row for row in scene.run("topicStatus", "-t", TOPIC).rows if row[0] == BROKER]
    assert [row[1] for row in rows] == [str(queue) for queue in range(QUEUES)]
    assert all(int(row[2]) == 0 and int(row[3]) >= 2 and row[4].startswith(time.strftime("%Y-")) for row in rows)


def test_ordered_topics_have_their_configuration_in_the_route(scene: Scene) -> None:
    """updateTopic -o, updateOrderConf and updateNamesrvConfig orderMessageEnable go together."""
    run = scene.run
    run("updateTopic", "-b", scene.address, "-t", "Ordered", "-r", 2, "-w", 2, "-o", "true")
    assert "orderConf=[broker-a:2]" in run("updateOrderConf", "-t", "Ordered", "-m", "get").text
    assert "success" in run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true").text
    assert scene.route("Ordered")["orderTopicConf"] == "broker-a:2"
    assert "success" in run("updateOrderConf", "-t", "Ordered", "-m", "put", "-v", "broker-a:7").text
    assert scene.route("Ordered")["orderTopicConf"] == "broker-a:7"
    assert "success" in run("updateOrderConf", "-t", "Ordered", "-m", "delete").text
    assert scene.route("Ordered").get("orderTopicConf") is None


# ----------------------------------------------------------------------------------------------------------- messages


def test_messages_are_sent(scene: Scene) -> None:
    """sendMessage, to any queue or to one; checkMsgSendRT; sendMsgStatus to the topic that is named like the broker."""
    scene.run("updateTopic", "-c", CLUSTER, "-t", "Sends", "-r", 2, "-w", 2)
    [anywhere] = scene.run("sendMessage", "-t", "Sends", "-p", "body", "-k", "mine", "-c", "tagged").rows
    assert (anywhere[0], anywhere[2]) == (BROKER, "SEND_OK")
    [there] = scene.run("sendMessage", "-t", "Sends", "-p", "body", "-b", BROKER, "-i", 1).rows
    assert there[:3] == [BROKER, "1", "SEND_OK"]
    timed = scene.run("checkMsgSendRT", "-t", "Sends", "-a", 3, "-s", 16)
    assert [row[2] for row in timed.rows if row[0] == BROKER] == ["true"] * 3
    assert scene.run("sendMsgStatus", "-b", BROKER, "-s", 16, "-c", 2).text.count("sendStatus=SEND_OK") == 2
    found = scene.run("queryMsgByKey", "-t", "Sends", "-k", "mine").rows
    assert [row[0] for row in found] == [anywhere[3]]


def test_messages_are_found_by_key_and_by_every_id(scene: Scene) -> None:
    """The same message by key, unique key, queue offset and offset id, with all that it consists of."""
    unique_id = scene.unique_ids[3]
    assert scene.run("queryMsgByKey", "-t", TOPIC, "-k", "key-3").rows == [[unique_id, "3", "0"]]
    by_unique_id = scene.run("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique_id)
    by_offset = scene.run("queryMsgByOffset", "-t", TOPIC, "-b", BROKER, "-i", 3, "-o", 0)
    topic = ["-t", TOPIC] if scene.is_five else []
    by_id = scene.run("queryMsgById", "-i", by_offset.fields["OffsetID"], *topic)
    for said in (by_unique_id, by_offset, by_id):
        fields = said.fields
        told = [fields[name] for name in ("Topic", "Tags", "Keys", "Queue ID", "Queue Offset", "Store Host")]
        assert told == [TOPIC, "[b]", "[key-3]", "3", "0", scene.address]
        assert f"UNIQ_KEY={unique_id}" in fields["Properties"]
        assert Path(fields["Message Body Path"]).read_bytes() == b"hello 3"


def test_a_message_is_tracked_to_who_consumed_it(scene: Scene) -> None:
    """queryMsgById tells of each group whether it has consumed the message."""
    offset_id = scene.run("queryMsgByOffset", "-t", TOPIC, "-b", BROKER, "-i", 3, "-o", 0).fields["OffsetID"]
    topic = ["-t", TOPIC] if scene.is_five else []

    def is_consumed() -> bool:
        text = scene.tools.run("queryMsgById", "-i", offset_id, *topic).text
        return f"MessageTrack [consumerGroup={GROUP}, trackType=CONSUMED," in text

    scene.until(is_consumed, "the message counts as consumed")


def test_a_message_is_handed_to_a_member_and_sent_again(scene: Scene) -> None:
    """queryMsgById: -d has one member consume it now, and its result comes back; -s sends it once more."""
    topic = ["-t", TOPIC] if scene.is_five else []
    [client] = scene.broker.members(GROUP)
    offset_id = scene.run("queryMsgByOffset", "-t", TOPIC, "-b", BROKER, "-i", 3, "-o", 0).fields["OffsetID"]
    assert (
        "consumeResult=CR_SUCCESS" in scene.run("queryMsgById", "-i", offset_id, *topic, "-g", GROUP, "-d", client).text
    )
    scene.broker.create_topic("Again", 1)
    scene.broker.send("Again", 0, {"UNIQ_KEY": scene.unique_ids[0]}, b"once more")
    offset_id = scene.run("queryMsgByOffset", "-t", "Again", "-b", BROKER, "-i", 0, "-o", 0).fields["OffsetID"]
    topic = ["-t", "Again"] if scene.is_five else []
    assert "sendStatus=SEND_OK" in scene.run("queryMsgById", "-i", offset_id, *topic, "-s", "true").text
    assert [message.body for message in scene.broker.stored("Again", 1, 2)] == [b"once more"] * 2


def test_a_trace_is_shown(scene: Scene) -> None:
    """queryMsgTraceById: who sent the message, from the trace that its producer left."""
    traced = scene.unique_ids[0]
    now_ms = int(time.time() * 1000)
    sent = (now_ms, "region", "tracing-group", TOPIC, traced, "a", "key-0", "10.0.0.9:1", 7, 23, 0, "offset-id", "true")
    record = "\x01".join(("Pub", *map(str, sent))) + "\x02"
    scene.broker.send(TRACE_TOPIC, 0, {"KEYS": traced, "UNIQ_KEY": f"{traced}T"}, record.encode())
    scene.until(lambda: TRACE_TOPIC in scene.run("topicList").lines, "the topic that this made has a route")
    said = scene.run("queryMsgTraceById", "-i", traced)
    [row] = [row for row in said.rows if row[0] == "Pub"]
    assert (row[1], row[4], row[5]) == ("tracing-group", "23ms", "success")


def test_messages_are_printed(scene: Scene) -> None:
    """printMsg, printMsgByQueue and consumeMessage show the messages of a topic, or of one queue."""
    everything = scene.run("printMsg", "-t", TOPIC, "-d", "true").text
    assert set(scene.unique_ids) <= set(re.findall(r"MSGID: (\w+)", everything))
    assert "BODY: hello 5" in everything
    of_queue = scene.run("printMsgByQueue", "-t", TOPIC, "-a", BROKER, "-i", 3, "-p", "true", "-f", "true").text
    assert re.findall(r"MSGID: (\w+)", of_queue) == [scene.unique_ids[3], scene.unique_ids[7]]
    assert re.search(r"Tag: b\s+Count: 2", of_queue)
    consumed = scene.run("consumeMessage", "-t", TOPIC, "-b", BROKER, "-i", 3, "-o", 0, "-c", 2).text
    assert re.findall(r"MSGID: (\w+)", consumed) == [scene.unique_ids[3], scene.unique_ids[7]]


def test_queue_units_are_shown(scene: Scene) -> None:
    """queryCq: units with what they are to a group, and its subscription."""
    said = scene.run("queryCq", "-t", TOPIC, "-q", 3, "-i", 0, "-c", 2, "-b", scene.address, "-g", GROUP)
    assert '"subString":"*"' in said.text
    assert "max: 2, min: 0" in said.text
    units = re.findall(r"physicOffset=(\d+), physicSize=(\d+), tagsCode=(\d+)", said.text)
    assert len(units) == 2
    assert {tags_code for _, _, tags_code in units} == {str(ord("b"))}
    missing = scene.tools.run("queryCq", "-t", TOPIC, "-q", 99, "-i", 0, "-c", 2, "-b", scene.address)
    assert f"99@{TOPIC} is not exist!" in missing.text


# ------------------------------------------------------------------------------------------- groups and their members


def test_groups_are_made_shown_and_deleted(scene: Scene) -> None:
    """updateSubGroup, getConsumerConfig, deleteSubGroup; of 5.x also many groups from a file."""
    run = scene.run
    assert "success" in run("updateSubGroup", "-b", scene.address, "-g", IDLE_GROUP, "-r", 3, "-q", 2).text
    shown = run("getConsumerConfig", "-g", IDLE_GROUP).fields
    assert (shown["groupName"], shown["retryMaxTimes"], shown["retryQueueNums"]) == (IDLE_GROUP, "3", "2")
    assert shown["consumeBroadcastEnable"] == "false"
    if scene.is_five:
        path = scene.tools.home / "groups.json"
        path.write_text(json.dumps([{"groupName": "gl1", "retryMaxTimes": 5}, {"groupName": "gl2"}]))
        assert "success" in run("updateSubGroupList", "-b", scene.address, "-f", path).text
        assert run("getConsumerConfig", "-g", "gl1").fields["retryMaxTimes"] == "5"
    assert "success" in run("deleteSubGroup", "-b", scene.address, "-g", IDLE_GROUP).text


def test_members_of_groups_are_shown(scene: Scene) -> None:
    """consumerConnection: who is there, and what they subscribe to; consumerStatus asks the member itself."""
    said = scene.run("consumerConnection", "-g", GROUP)
    [client] = scene.broker.members(GROUP)
    assert [row[0] for row in said.rows] == [client]
    assert said.rows[0][2] == "JAVA"
    assert re.search(rf"^{TOPIC}\s+\*", said.text, re.MULTILINE)
    assert (said.fields["ConsumeType"], said.fields["MessageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    status = scene.run("consumerStatus", "-g", GROUP)
    assert status.rows[0][1] == client
    assert "Same subscription in the same group of consumer" in status.text
    assert "Rebalance OK" in status.text
    running = scene.run("consumerStatus", "-g", GROUP, "-i", client)
    assert running.fields["consumerGroup"] == GROUP
    assert re.search(rf"^{TOPIC}\s+{BROKER}\s+0\s+\d+", running.text, re.MULTILINE)


def test_producers_are_shown(scene: Scene) -> None:
    """producerConnection of a group that sends to a topic; producer, of 5.x and 4.9.7: all groups of a broker."""
    [client] = scene.broker.members(GROUP)
    assert client in scene.run("producerConnection", "-g", INNER_PRODUCER, "-t", TOPIC).text
    said = scene.run("producer", "-b", scene.address).text
    assert f"producer group ({INNER_PRODUCER}) instance" in said
    assert f"clientId={client}" in said


def test_progress_is_shown(scene: Scene) -> None:
    """consumerProgress: where a group stands in each queue, and all groups in one table."""

    def is_caught_up() -> bool:
        offsets = scene.offsets()
        return len(offsets) == QUEUES and all(int(end) >= 2 and end == at for end, at in offsets.values())

    scene.until(is_caught_up, "everything is consumed and committed")
    said = scene.run("consumerProgress", "-g", GROUP)
    assert said.fields["Consume Diff Total" if scene.is_five else "Diff Total"] == "0"
    assert GROUP in {row[0] for row in scene.run("consumerProgress").rows}


# ------------------------------------------------------------------------------------------------------------ offsets


def test_offsets_are_reset(scene: Scene) -> None:
    """resetOffsetByTime to the beginning and skipAccumulatedMessage to the end; cloneGroupOffset copies them."""
    client = scene.broker
    client._broker.call(352, {"group": IDLE_GROUP})
    reset = scene.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", 0)
    rows = {row[1]: row[2] for row in reset.rows if row[0] == BROKER}
    assert rows == dict.fromkeys(map(str, range(QUEUES)), "0")
    skipped = scene.run("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
    ends = {row[1]: row[3] for row in scene.run("topicStatus", "-t", TOPIC).rows if row[0] == BROKER}
    assert {row[1]: row[2] for row in skipped.rows if row[0] == BROKER} == ends
    if scene.is_five:
        one = scene.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", 0, "-b", scene.address, "-q", 1, "-o", 1)
        assert "reset consumer offset to 1" in one.text
    cloned = scene.run("cloneGroupOffset", "-s", GROUP, "-d", IDLE_GROUP, "-t", TOPIC)
    assert "success" in cloned.text


# ------------------------------------------------------------------------------------------- brokers and name servers


def test_brokers_are_shown(scene: Scene) -> None:
    """clusterList, with -m in totals; brokerStatus; brokerConsumeStats."""
    [row] = [row for row in scene.run("clusterList").rows if row[0] == CLUSTER]
    assert row[:4] == [CLUSTER, BROKER, "0", scene.address]
    [totals] = [row for row in scene.run("clusterList", "-m").rows if row[0] == CLUSTER]
    assert int(totals[4]) >= SENT
    status = scene.run("brokerStatus", "-b", scene.address).fields
    assert len(status["putTps"].split()) == 3 or not scene.is_ours
    assert int(status["msgPutTotalTodayNow"]) >= SENT
    stats = scene.run("brokerConsumeStats", "-b", scene.address)
    assert {str(queue) for queue in range(QUEUES)} == {row[3] for row in stats.rows if row[:2] == [TOPIC, GROUP]}
    assert "Diff Total" in stats.fields


def test_settings_are_changed(scene: Scene) -> None:
    """getBrokerConfig and updateBrokerConfig; an unknown key is a success too."""
    assert scene.run("getBrokerConfig", "-b", scene.address).fields["fileReservedTime"] == "72"
    for key in ("fileReservedTime", "noSuchKey"):
        assert (
            "update broker config success"
            in scene.run("updateBrokerConfig", "-b", scene.address, "-k", key, "-v", 48).text
        )
    assert scene.run("getBrokerConfig", "-b", scene.address).fields["fileReservedTime"] == "48"


def test_a_brokers_permission_takes_effect_at_once(scene: Scene) -> None:
    """updateBrokerConfig brokerPermission=4: the next route says so; and back."""
    for permission in (4, 6):
        scene.run("updateBrokerConfig", "-b", scene.address, "-k", "brokerPermission", "-v", permission)
        assert scene.permission(TOPIC) == permission


def test_name_servers_are_shown_and_changed(scene: Scene) -> None:
    """getNamesrvConfig, key-values, and taking a broker out of the writable ones."""
    run = scene.run
    assert "orderMessageEnable" in run("getNamesrvConfig").fields
    assert "success" in run("updateKvConfig", "-s", "space", "-k", "key", "-v", "value").text
    assert "success" in run("deleteKvConfig", "-s", "space", "-k", "key").text
    assert re.search(r"OK, [1-9]", run("wipeWritePerm", "-b", BROKER).text)
    assert scene.permission(TOPIC) == 4
    assert re.search(r"OK, [1-9]", run("addWritePerm", "-b", BROKER).text)
    assert scene.permission(TOPIC) == 6


def test_a_broker_is_tidied_up(scene: Scene) -> None:
    """cleanExpiredCQ, cleanUnusedTopic, deleteExpiredCommitLog: nothing that is in use goes."""
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert scene.run(command, "-b", scene.address).lines == ["success"]
    assert scene.run("queryMsgByKey", "-t", TOPIC, "-k", "key-0").rows[0][0] == scene.unique_ids[0]


# --------------------------------------------------------------------------------------------------------- statistics


def test_statistics_are_shown(scene: Scene) -> None:
    """statsAll: what came into a topic and what a group got of it, within the day."""

    def of_group() -> list[int]:
        """What is not consumed, what came, what was got."""
        rows = scene.run("statsAll", "-t", TOPIC).rows
        return next(([int(row[2]), int(row[5]), int(row[6])] for row in rows if row[:2] == [TOPIC, GROUP]), [])

    scene.until(lambda: bool(of_group()) and of_group()[0] == 0 and min(of_group()[1:]) >= SENT, "all are counted")
    assert "NO_CONSUMER" in scene.run("statsAll").text


def test_settings_are_exported(scene: Scene) -> None:
    """exportConfigs finds every key that it needs."""
    if not scene.is_served:
        pytest.skip("a broker of 5.3.3 has not the keys that tools of 4.9 need")
    scene.run("exportConfigs", "-c", CLUSTER, "-f", scene.tools.home)
    configs = javajson.loads((scene.tools.home / "configs.json").read_text())
    assert configs["brokerConfigs"][BROKER]["autoCreateTopicEnable"] == "true"
    assert configs["clusterScale"]["masterBrokerSize"] == 1


def test_metadata_and_figures_are_exported(scene: Scene) -> None:
    """exportMetadata has topics and groups, exportMetrics what came and went."""
    scene.run("exportMetadata", "-c", CLUSTER, "-f", scene.tools.home)
    metadata = javajson.loads((scene.tools.home / "metadata.json").read_text())
    assert TOPIC in metadata["topicConfigTable"]
    assert GROUP in metadata["subscriptionGroupTable"]
    if not scene.is_served:
        pytest.skip("a broker of 5.3.3 has not the keys that tools of 4.9 need")
    scene.run("exportMetrics", "-c", CLUSTER, "-f", scene.tools.home)
    metrics = javajson.loads((scene.tools.home / "metrics.json").read_text())
    assert BROKER in metrics["evaluateReport"]


def test_the_broker_has_seen_no_fault_of_its_own(scene: Scene) -> None:
    """After all that its log holds neither an error nor a traceback."""
    log = scene.broker.log.read_text(errors="replace")
    assert [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")] == []


def test_every_command_is_tried_or_left_out_for_a_reason(scene: Scene, request: pytest.FixtureRequest) -> None:
    """Behind all others: what mqadmin offers is what they have run, and what is known not to be for this broker."""
    offered = scene.tools.commands()
    request.node.user_properties.append((FACTS, [(OFFERED, scene.tools.version, name) for name in sorted(offered)]))
    refused = set() if scene.is_served else {"exportConfigs", "exportMetrics"}
    assert offered - scene.tried - refused == offered & LEFT_OUT.keys()
