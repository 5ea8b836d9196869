"""RocketMQ's own mqadmin, 4.9.7 and 5.3.3, against a running broker: its commands work and print the broker's state.

The environment of a version is a broker with a topic, a group with one member, and messages that the member has
consumed. All commands of a version run in one process.

The same expectations hold for RocketMQ's own broker. To check that takes two minutes; CI does not do it:

    pytest tests/interop/test_mqadmin.py --broker-under-test=apache-5.3.3

RocketMQ's responses differ in two things that its own tools need: rates are missing until the broker has samples of
them, and 5.3.3 omits keys that the tools of 4.9 require. Skylark returns both.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.protocol import javajson
from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import CLIENTS
from tests.interop.compatibility import FACTS, OFFERED, TRIED
from tests.interop.drivers import DriverGroup
from tests.interop.matrix import ACCESS_COMMANDS, LEFT_OUT
from tests.interop.mqadmin_process import VERSIONS, CommandOutput, MqadminProcess

TOPIC, GROUP, IDLE_GROUP = "Alpha", "group-a", "group-b"
BROKER, CLUSTER = "broker-a", "DefaultCluster"
QUEUES, SENT = 4, 8
CLIENT_OF = {"4.9.7": "java-4.9.8", "5.3.3": "java-5.3.3"}
INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
"""The producer group of the client inside a Java consumer, which sends failed messages."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

pytestmark = pytest.mark.interop


class Environment:
    """A broker with some content, and the mqadmin process that reads and changes it."""

    def __init__(
        self, broker_kind: str, broker: BrokerUnderTest, mqadmin: MqadminProcess, drivers: DriverGroup
    ) -> None:
        self._broker_kind = broker_kind
        self.is_skylark = broker_kind == "skylark"
        self.broker = broker
        self.mqadmin = mqadmin
        self.drivers = drivers
        self.address = broker.broker_address
        self.commands_run: set[str] = set()
        self.is_five = mqadmin.is_five
        self.unique_ids = [f"7F000001{time.time_ns() // 1000:016X}{number:08X}" for number in range(SENT)]

    @property
    def has_required_keys(self) -> bool:
        """Whether the broker returns all keys that the tools of this version require."""
        return self._broker_kind != "apache-5.3.3" or self.is_five

    def prepare(self) -> None:
        """Create a topic and a group with one member, send messages, and wait until the member has received them."""
        self.broker.create_topic(TOPIC, QUEUES)
        client = CLIENTS[CLIENT_OF[self.mqadmin.version]]
        self.drivers.start("member", client.command, "consume", self.broker.namesrv, TOPIC, GROUP)
        self.drivers.wait_until(lambda: "member" in self.drivers.started, "the member has started", PROCESS_LIMIT_S)
        for number, unique_id in enumerate(self.unique_ids):
            properties = {"TAGS": "ab"[number % 2], "KEYS": f"key-{number}", "UNIQ_KEY": unique_id, "n": str(number)}
            self.broker.send(TOPIC, number % QUEUES, properties, b"hello %d" % number)
        self.drivers.wait_for_messages({str(number) for number in range(SENT)}, PROCESS_LIMIT_S)

    def run(self, command: str, *arguments: object) -> CommandOutput:
        """Run a command that succeeds."""
        output = self.mqadmin.run(command, *arguments)
        assert output.code == 0, output
        assert "SubCommandException" not in output.text, output.text
        return output

    def wait_until(self, condition: Callable[[], bool], description: str) -> None:
        """Wait for a value that the broker updates only periodically."""
        deadline = time.monotonic() + PROCESS_LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, description
            self.drivers.process_events(0.5)

    def route(self, topic: str) -> dict[str, Any]:
        route: dict[str, Any] = self.run("topicRoute", "-t", topic).json
        return route

    def permission(self, topic: str) -> int:
        return int(self.route(topic)["queueDatas"][0]["perm"])

    def offsets(self, group: str = GROUP) -> dict[str, tuple[str, str]]:
        """Return, by queue, the broker's and the group's offset; nothing if the group has not committed any yet."""
        output = self.mqadmin.run("consumerProgress", "-g", group)
        if "CODE: 206" in output.text:
            return {}
        assert "SubCommandException" not in output.text, output.text
        rows = output.rows
        return {queue: (end, at) for topic, _, queue, end, at, *_ in rows if topic == TOPIC}


@pytest.fixture(scope="module", params=VERSIONS)
def env(
    request: pytest.FixtureRequest, broker_kind: str, tmp_path_factory: pytest.TempPathFactory, measured: list[str]
) -> Iterator[Environment]:
    version: str = request.param
    homes = tmp_path_factory.mktemp(version)
    CLIENTS[CLIENT_OF[version]].command(homes)  # build the driver, or skip, before the broker starts
    begun = time.monotonic()
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker"), {"brokerName": BROKER}) as broker:
        mqadmin = MqadminProcess(version, homes / "mqadmin", broker.namesrv)
        drivers = DriverGroup(homes, broker.log)
        try:
            env = Environment(broker_kind, broker, mqadmin, drivers)
            env.prepare()
            yield env
        finally:
            drivers.stop()
            mqadmin.stop()
    measured.append(f"mqadmin {version}: all commands in {time.monotonic() - begun:.1f} s")


@pytest.fixture(autouse=True)
def report_commands_run(env: Environment, request: pytest.FixtureRequest) -> Iterator[None]:
    """Attach the commands that a test has run to its report."""
    mqadmin = env.mqadmin
    mqadmin.commands_run.clear()
    yield
    env.commands_run |= mqadmin.commands_run
    request.node.user_properties.append(
        (FACTS, [(TRIED, mqadmin.version, command) for command in sorted(mqadmin.commands_run)])
    )


# ------------------------------------------------------------------------------------------------------------- topics


def test_topics_are_created_changed_and_deleted(env: Environment) -> None:
    """updateTopic, updateTopicPerm, updateTopicList and deleteTopic change the routes as requested."""
    run = env.run
    assert "success" in run("updateTopic", "-c", CLUSTER, "-t", "Beta", "-r", 3, "-w", 2).text
    [queues] = env.route("Beta")["queueDatas"]
    assert (queues["brokerName"], queues["readQueueNums"], queues["writeQueueNums"]) == (BROKER, 3, 2)
    assert "from 6 to 4" in run("updateTopicPerm", "-b", env.address, "-t", "Beta", "-p", 4).text
    assert env.permission("Beta") == 4
    if env.is_five:
        wanted = [
            {"topicName": "L1", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6},
            {"topicName": "L2", "perm": 4},
        ]
        path = env.mqadmin.home / "topics.json"
        path.write_text(json.dumps(wanted))
        assert "success" in run("updateTopicList", "-b", env.address, "-f", path).text
        assert [env.permission(name) for name in ("L1", "L2")] == [6, 4]
        assert [CLUSTER, BROKER, f"{{0={env.address}}}", "3", "2", "4"] in run("topicRoute", "-t", "Beta", "-l").rows
    assert run("topicClusterList", "-t", "Beta").lines == [CLUSTER]
    assert len(run("deleteTopic", "-c", CLUSTER, "-t", "Beta").lines) == 2
    assert "Beta" not in run("topicList").lines


def test_topics_are_listed_with_their_groups(env: Environment) -> None:
    """topicList prints every topic, with -c also its groups; allocateMQ divides the queues between clients."""
    assert {TOPIC, "TBW102", CLUSTER, BROKER, f"%RETRY%{GROUP}"} <= set(env.run("topicList").lines)
    assert [CLUSTER, TOPIC, GROUP] in env.run("topicList", "-c").rows
    shared = env.run("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2,10.0.0.3").json["result"]
    assert sorted(len(queues) for queues in shared.values()) == [1, 1, 2]


def test_the_queues_of_a_topic_are_printed(env: Environment) -> None:
    """topicStatus prints the offsets of each queue and the time of its last message."""
    rows = [row for row in env.run("topicStatus", "-t", TOPIC).rows if row[0] == BROKER]
    assert [row[1] for row in rows] == [str(queue) for queue in range(QUEUES)]
    assert all(int(row[2]) == 0 and int(row[3]) >= 2 and row[4].startswith(time.strftime("%Y-")) for row in rows)


def test_ordered_topics_have_their_configuration_in_the_route(env: Environment) -> None:
    """The order configuration of updateTopic -o and updateOrderConf is in the route if orderMessageEnable is true."""
    run = env.run
    run("updateTopic", "-b", env.address, "-t", "Ordered", "-r", 2, "-w", 2, "-o", "true")
    assert "orderConf=[broker-a:2]" in run("updateOrderConf", "-t", "Ordered", "-m", "get").text
    assert "success" in run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true").text
    assert env.route("Ordered")["orderTopicConf"] == "broker-a:2"
    assert "success" in run("updateOrderConf", "-t", "Ordered", "-m", "put", "-v", "broker-a:7").text
    assert env.route("Ordered")["orderTopicConf"] == "broker-a:7"
    assert "success" in run("updateOrderConf", "-t", "Ordered", "-m", "delete").text
    assert env.route("Ordered").get("orderTopicConf") is None


# ----------------------------------------------------------------------------------------------------------- messages


def test_messages_are_sent(env: Environment) -> None:
    """sendMessage to any queue or to one, checkMsgSendRT, and sendMsgStatus to the topic named like the broker."""
    env.run("updateTopic", "-c", CLUSTER, "-t", "Sends", "-r", 2, "-w", 2)
    [anywhere] = env.run("sendMessage", "-t", "Sends", "-p", "body", "-k", "mine", "-c", "tagged").rows
    assert (anywhere[0], anywhere[2]) == (BROKER, "SEND_OK")
    [there] = env.run("sendMessage", "-t", "Sends", "-p", "body", "-b", BROKER, "-i", 1).rows
    assert there[:3] == [BROKER, "1", "SEND_OK"]
    timings = env.run("checkMsgSendRT", "-t", "Sends", "-a", 3, "-s", 16)
    assert [row[2] for row in timings.rows if row[0] == BROKER] == ["true"] * 3
    assert env.run("sendMsgStatus", "-b", BROKER, "-s", 16, "-c", 2).text.count("sendStatus=SEND_OK") == 2
    found = env.run("queryMsgByKey", "-t", "Sends", "-k", "mine").rows
    assert [row[0] for row in found] == [anywhere[3]]


def test_messages_are_found_by_key_and_by_each_id(env: Environment) -> None:
    """Key, unique key, queue offset and offset id find the same message, complete."""
    unique_id = env.unique_ids[3]
    assert env.run("queryMsgByKey", "-t", TOPIC, "-k", "key-3").rows == [[unique_id, "3", "0"]]
    by_unique_id = env.run("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique_id)
    by_offset = env.run("queryMsgByOffset", "-t", TOPIC, "-b", BROKER, "-i", 3, "-o", 0)
    topic = ["-t", TOPIC] if env.is_five else []
    by_id = env.run("queryMsgById", "-i", by_offset.fields["OffsetID"], *topic)
    for output in (by_unique_id, by_offset, by_id):
        fields = output.fields
        found = [fields[name] for name in ("Topic", "Tags", "Keys", "Queue ID", "Queue Offset", "Store Host")]
        assert found == [TOPIC, "[b]", "[key-3]", "3", "0", env.address]
        assert f"UNIQ_KEY={unique_id}" in fields["Properties"]
        assert Path(fields["Message Body Path"]).read_bytes() == b"hello 3"


def test_a_message_is_tracked_for_each_group(env: Environment) -> None:
    """queryMsgById prints for each group whether it has consumed the message."""
    offset_id = env.run("queryMsgByOffset", "-t", TOPIC, "-b", BROKER, "-i", 3, "-o", 0).fields["OffsetID"]
    topic = ["-t", TOPIC] if env.is_five else []

    def is_consumed() -> bool:
        text = env.mqadmin.run("queryMsgById", "-i", offset_id, *topic).text
        return f"MessageTrack [consumerGroup={GROUP}, trackType=CONSUMED," in text

    env.wait_until(is_consumed, "the message is tracked as consumed")


def test_a_message_is_consumed_directly_and_sent_again(env: Environment) -> None:
    """queryMsgById -d has a member consume the message and prints the result; -s sends the message again."""
    topic = ["-t", TOPIC] if env.is_five else []
    [client] = env.broker.members(GROUP)
    offset_id = env.run("queryMsgByOffset", "-t", TOPIC, "-b", BROKER, "-i", 3, "-o", 0).fields["OffsetID"]
    assert (
        "consumeResult=CR_SUCCESS" in env.run("queryMsgById", "-i", offset_id, *topic, "-g", GROUP, "-d", client).text
    )
    env.broker.create_topic("Again", 1)
    env.broker.send("Again", 0, {"UNIQ_KEY": env.unique_ids[0]}, b"once more")
    offset_id = env.run("queryMsgByOffset", "-t", "Again", "-b", BROKER, "-i", 0, "-o", 0).fields["OffsetID"]
    topic = ["-t", "Again"] if env.is_five else []
    assert "sendStatus=SEND_OK" in env.run("queryMsgById", "-i", offset_id, *topic, "-s", "true").text
    assert [message.body for message in env.broker.stored("Again", 1, 2)] == [b"once more"] * 2


def test_a_message_trace_is_printed(env: Environment) -> None:
    """queryMsgTraceById prints the producer of a message, from the trace that the producer sent."""
    traced = env.unique_ids[0]
    now_ms = int(time.time() * 1000)
    sent = (now_ms, "region", "tracing-group", TOPIC, traced, "a", "key-0", "10.0.0.9:1", 7, 23, 0, "offset-id", "true")
    record = "\x01".join(("Pub", *map(str, sent))) + "\x02"
    env.broker.send(TRACE_TOPIC, 0, {"KEYS": traced, "UNIQ_KEY": f"{traced}T"}, record.encode())
    env.wait_until(lambda: TRACE_TOPIC in env.run("topicList").lines, "the trace topic has a route")
    output = env.run("queryMsgTraceById", "-i", traced)
    [row] = [row for row in output.rows if row[0] == "Pub"]
    assert (row[1], row[4], row[5]) == ("tracing-group", "23ms", "success")


def test_messages_are_printed(env: Environment) -> None:
    """printMsg, printMsgByQueue and consumeMessage print the messages of a topic, or of one queue."""
    everything = env.run("printMsg", "-t", TOPIC, "-d", "true").text
    assert set(env.unique_ids) <= set(re.findall(r"MSGID: (\w+)", everything))
    assert "BODY: hello 5" in everything
    of_queue = env.run("printMsgByQueue", "-t", TOPIC, "-a", BROKER, "-i", 3, "-p", "true", "-f", "true").text
    assert re.findall(r"MSGID: (\w+)", of_queue) == [env.unique_ids[3], env.unique_ids[7]]
    assert re.search(r"Tag: b\s+Count: 2", of_queue)
    consumed = env.run("consumeMessage", "-t", TOPIC, "-b", BROKER, "-i", 3, "-o", 0, "-c", 2).text
    assert re.findall(r"MSGID: (\w+)", consumed) == [env.unique_ids[3], env.unique_ids[7]]


def test_queue_units_are_printed(env: Environment) -> None:
    """queryCq prints queue units, with the subscription of a group."""
    output = env.run("queryCq", "-t", TOPIC, "-q", 3, "-i", 0, "-c", 2, "-b", env.address, "-g", GROUP)
    assert '"subString":"*"' in output.text
    assert "max: 2, min: 0" in output.text
    units = re.findall(r"physicOffset=(\d+), physicSize=(\d+), tagsCode=(\d+)", output.text)
    assert len(units) == 2
    assert {tags_code for _, _, tags_code in units} == {str(ord("b"))}
    missing = env.mqadmin.run("queryCq", "-t", TOPIC, "-q", 99, "-i", 0, "-c", 2, "-b", env.address)
    assert f"99@{TOPIC} is not exist!" in missing.text


# ------------------------------------------------------------------------------------------- groups and their members


def test_groups_are_created_printed_and_deleted(env: Environment) -> None:
    """updateSubGroup, getConsumerConfig and deleteSubGroup; 5.x also creates groups from a file."""
    run = env.run
    assert "success" in run("updateSubGroup", "-b", env.address, "-g", IDLE_GROUP, "-r", 3, "-q", 2).text
    printed = run("getConsumerConfig", "-g", IDLE_GROUP).fields
    assert (printed["groupName"], printed["retryMaxTimes"], printed["retryQueueNums"]) == (IDLE_GROUP, "3", "2")
    assert printed["consumeBroadcastEnable"] == "false"
    if env.is_five:
        path = env.mqadmin.home / "groups.json"
        path.write_text(json.dumps([{"groupName": "gl1", "retryMaxTimes": 5}, {"groupName": "gl2"}]))
        assert "success" in run("updateSubGroupList", "-b", env.address, "-f", path).text
        assert run("getConsumerConfig", "-g", "gl1").fields["retryMaxTimes"] == "5"
    assert "success" in run("deleteSubGroup", "-b", env.address, "-g", IDLE_GROUP).text


def test_the_members_of_a_group_are_printed(env: Environment) -> None:
    """consumerConnection prints the members and their subscriptions; consumerStatus queries the member itself."""
    output = env.run("consumerConnection", "-g", GROUP)
    [client] = env.broker.members(GROUP)
    assert [row[0] for row in output.rows] == [client]
    assert output.rows[0][2] == "JAVA"
    assert re.search(rf"^{TOPIC}\s+\*", output.text, re.MULTILINE)
    assert (output.fields["ConsumeType"], output.fields["MessageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    status = env.run("consumerStatus", "-g", GROUP)
    assert status.rows[0][1] == client
    assert "Same subscription in the same group of consumer" in status.text
    assert "Rebalance OK" in status.text
    running = env.run("consumerStatus", "-g", GROUP, "-i", client)
    assert running.fields["consumerGroup"] == GROUP
    assert re.search(rf"^{TOPIC}\s+{BROKER}\s+0\s+\d+", running.text, re.MULTILINE)


def test_producers_are_printed(env: Environment) -> None:
    """producerConnection prints the producers of a group that sends to a topic; producer prints all groups."""
    [client] = env.broker.members(GROUP)
    assert client in env.run("producerConnection", "-g", INNER_PRODUCER, "-t", TOPIC).text
    output = env.run("producer", "-b", env.address).text
    assert f"producer group ({INNER_PRODUCER}) instance" in output
    assert f"clientId={client}" in output


def test_the_progress_of_groups_is_printed(env: Environment) -> None:
    """consumerProgress prints the offsets of a group in each queue, or all groups in one table."""

    def is_caught_up() -> bool:
        offsets = env.offsets()
        return len(offsets) == QUEUES and all(int(end) >= 2 and end == at for end, at in offsets.values())

    env.wait_until(is_caught_up, "everything is consumed and committed")
    output = env.run("consumerProgress", "-g", GROUP)
    assert output.fields["Consume Diff Total" if env.is_five else "Diff Total"] == "0"
    assert GROUP in {row[0] for row in env.run("consumerProgress").rows}


# ------------------------------------------------------------------------------------------------------------ offsets


def test_offsets_are_reset(env: Environment) -> None:
    """resetOffsetByTime to the beginning, skipAccumulatedMessage to the end, and cloneGroupOffset to another group."""
    client = env.broker
    client._broker.call(352, {"group": IDLE_GROUP})
    reset = env.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", 0)
    rows = {row[1]: row[2] for row in reset.rows if row[0] == BROKER}
    assert rows == dict.fromkeys(map(str, range(QUEUES)), "0")
    skipped = env.run("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
    ends = {row[1]: row[3] for row in env.run("topicStatus", "-t", TOPIC).rows if row[0] == BROKER}
    assert {row[1]: row[2] for row in skipped.rows if row[0] == BROKER} == ends
    if env.is_five:
        one = env.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", 0, "-b", env.address, "-q", 1, "-o", 1)
        assert "reset consumer offset to 1" in one.text
    cloned = env.run("cloneGroupOffset", "-s", GROUP, "-d", IDLE_GROUP, "-t", TOPIC)
    assert "success" in cloned.text


# ------------------------------------------------------------------------------------------- brokers and name servers


def test_brokers_are_printed(env: Environment) -> None:
    """clusterList, with -m for totals, brokerStatus and brokerConsumeStats."""
    [row] = [row for row in env.run("clusterList").rows if row[0] == CLUSTER]
    assert row[:4] == [CLUSTER, BROKER, "0", env.address]
    [totals] = [row for row in env.run("clusterList", "-m").rows if row[0] == CLUSTER]
    assert int(totals[4]) >= SENT
    status = env.run("brokerStatus", "-b", env.address).fields
    assert len(status["putTps"].split()) == 3 or not env.is_skylark
    assert int(status["msgPutTotalTodayNow"]) >= SENT
    stats = env.run("brokerConsumeStats", "-b", env.address)
    assert {str(queue) for queue in range(QUEUES)} == {row[3] for row in stats.rows if row[:2] == [TOPIC, GROUP]}
    assert "Diff Total" in stats.fields


def test_the_state_of_replication_is_printed(env: Environment) -> None:
    """haStatus of a master without slaves. The tool of 4.9 does not have the command."""
    if env.is_five:
        text = env.run("haStatus", "-b", env.address).text
        assert f"#MasterAddr\t{env.address}" in text
        assert "#SlaveNum\t0" in text
    else:
        assert "haStatus" not in env.mqadmin.commands()


def test_settings_are_changed(env: Environment) -> None:
    """getBrokerConfig and updateBrokerConfig; an unknown key succeeds, too."""
    assert env.run("getBrokerConfig", "-b", env.address).fields["fileReservedTime"] == "72"
    for key in ("fileReservedTime", "noSuchKey"):
        assert (
            "update broker config success" in env.run("updateBrokerConfig", "-b", env.address, "-k", key, "-v", 48).text
        )
    assert env.run("getBrokerConfig", "-b", env.address).fields["fileReservedTime"] == "48"


def test_the_permission_of_a_broker_changes_at_once(env: Environment) -> None:
    """After updateBrokerConfig brokerPermission=4 the next route has that permission; the same for 6."""
    for permission in (4, 6):
        env.run("updateBrokerConfig", "-b", env.address, "-k", "brokerPermission", "-v", permission)
        assert env.permission(TOPIC) == permission


def test_settings_of_name_servers_are_printed_and_changed(env: Environment) -> None:
    """getNamesrvConfig, key-values, and wipeWritePerm and addWritePerm of a broker."""
    run = env.run
    assert "orderMessageEnable" in run("getNamesrvConfig").fields
    assert "success" in run("updateKvConfig", "-s", "space", "-k", "key", "-v", "value").text
    assert "success" in run("deleteKvConfig", "-s", "space", "-k", "key").text
    assert re.search(r"OK, [1-9]", run("wipeWritePerm", "-b", BROKER).text)
    assert env.permission(TOPIC) == 4
    assert re.search(r"OK, [1-9]", run("addWritePerm", "-b", BROKER).text)
    assert env.permission(TOPIC) == 6


def test_unused_files_and_topics_are_cleaned_up(env: Environment) -> None:
    """cleanExpiredCQ, cleanUnusedTopic and deleteExpiredCommitLog succeed and delete nothing that is in use."""
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert env.run(command, "-b", env.address).lines == ["success"]
    assert env.run("queryMsgByKey", "-t", TOPIC, "-k", "key-0").rows[0][0] == env.unique_ids[0]


# --------------------------------------------------------------------------------------------------------- statistics


def test_statistics_are_printed(env: Environment) -> None:
    """statsAll prints the messages of a topic, and of its groups, of the last 24 hours."""

    def of_group() -> list[int]:
        """Return the lag, the messages received by the broker, and the messages delivered to the group."""
        rows = env.run("statsAll", "-t", TOPIC).rows
        return next(([int(row[2]), int(row[5]), int(row[6])] for row in rows if row[:2] == [TOPIC, GROUP]), [])

    env.wait_until(
        lambda: bool(of_group()) and of_group()[0] == 0 and min(of_group()[1:]) >= SENT, "all messages are counted"
    )
    assert "NO_CONSUMER" in env.run("statsAll").text


def test_settings_are_exported(env: Environment) -> None:
    """exportConfigs gets every key that it needs."""
    if not env.has_required_keys:
        pytest.skip("a broker of 5.3.3 does not have the keys that tools of 4.9 need")
    env.run("exportConfigs", "-c", CLUSTER, "-f", env.mqadmin.home)
    configs = javajson.loads((env.mqadmin.home / "configs.json").read_text())
    assert configs["brokerConfigs"][BROKER]["autoCreateTopicEnable"] == "true"
    assert configs["clusterScale"]["masterBrokerSize"] == 1


def test_metadata_and_metrics_are_exported(env: Environment) -> None:
    """exportMetadata writes topics and groups, exportMetrics writes message rates."""
    env.run("exportMetadata", "-c", CLUSTER, "-f", env.mqadmin.home)
    metadata = javajson.loads((env.mqadmin.home / "metadata.json").read_text())
    assert TOPIC in metadata["topicConfigTable"]
    assert GROUP in metadata["subscriptionGroupTable"]
    if not env.has_required_keys:
        pytest.skip("a broker of 5.3.3 does not have the keys that tools of 4.9 need")
    env.run("exportMetrics", "-c", CLUSTER, "-f", env.mqadmin.home)
    metrics = javajson.loads((env.mqadmin.home / "metrics.json").read_text())
    assert BROKER in metrics["evaluateReport"]


def test_the_broker_logs_no_error(env: Environment) -> None:
    """After all tests the broker's log contains neither an error nor a traceback."""
    log = env.broker.log.read_text(errors="replace")
    assert [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")] == []


def test_every_command_is_run_or_left_out_for_a_reason(env: Environment, request: pytest.FixtureRequest) -> None:
    """Runs last: every command of mqadmin was run here, or in test_access_admin.py, or LEFT_OUT gives the reason."""
    offered = env.mqadmin.commands()
    request.node.user_properties.append((FACTS, [(OFFERED, env.mqadmin.version, name) for name in sorted(offered)]))
    refused = set() if env.has_required_keys else {"exportConfigs", "exportMetrics"}
    assert offered - env.commands_run - refused == offered & (LEFT_OUT.keys() | ACCESS_COMMANDS)
