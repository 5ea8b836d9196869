"""The topic table: topics at the start, creation of topics, and the data for name servers."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.metadata.topics import TopicsConfig, TopicTable
from skylarkmq.protocol.bodies.topic import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import Permission, ResponseCode, SystemTopic
from skylarkmq.protocol.errors import RequestError
from tests.harness.stores import Clock, golden_manifest, unpack_golden

AT_START = {
    # name: queues, perm
    "TBW102": (8, 7),
    "Cluster": (16, 7),
    "broker": (1, 7),
    "SELF_TEST_TOPIC": (1, 6),
    "OFFSET_MOVED_EVENT": (1, 6),
    "Cluster_REPLY_TOPIC": (1, 6),
    "BenchmarkTest": (1024, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    "rmq_sys_wheel_timer": (1, 6),
}


class Table:
    """A loaded table, its clock, and its number of change notifications."""

    def __init__(self, data: bytes | None = None, **settings: Any) -> None:
        self.clock = Clock()
        self.changes = 0
        self.topics = TopicTable(TopicsConfig(cluster_name="Cluster", broker_name="broker", **settings), self.clock)
        self.topics.load(data)
        self.topics.on_change(self._changed)

    def _changed(self) -> None:
        self.changes += 1


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_new_broker_has_its_system_topics(table: Table) -> None:
    """Every topic of the table above, with its queues and permission, from the start."""
    found = {topic.topic_name: (topic.read_queue_nums, topic.perm) for topic in table.topics}
    assert found == AT_START
    assert all(topic.read_queue_nums == topic.write_queue_nums for topic in table.topics)
    assert all(table.topics.is_system(name) for name in AT_START)
    assert table.topics.statistics() == msgspec.convert({"topics": 11, "version": 1}, type(table.topics.statistics()))


def test_topics_in_the_file_take_precedence_at_the_start() -> None:
    """Queue counts of an existing store are kept, missing system topics are added, and that is one change."""
    wrapper = TopicConfigSerializeWrapper(topic_config_table={"TBW102": TopicConfig("TBW102", 3, 3, perm=7)})
    wrapper.data_version.counter = 9
    table = Table(wrapper.encode())
    topic = table.topics.find("TBW102")
    assert topic is not None
    assert (topic.read_queue_nums, table.topics.version.counter, len(list(table.topics))) == (3, 10, 11)


def test_a_complete_file_is_no_change() -> None:
    """A restart does not change the version, so name servers need not load the table again."""
    first = Table()
    again = Table(first.topics.encode())
    assert again.topics.version == first.topics.version


def test_the_file_of_4_9_8_is_read_and_written_back(tmp_path: Path) -> None:
    """RocketMQ's own topics.json loads with every topic and its settings, and our encoding of it is equal."""
    data = (unpack_golden("4.9.8", tmp_path) / "config" / "topics.json").read_bytes()
    expected = golden_manifest("4.9.8")["config"]["topics.json"]
    table = Table(data)
    for topics in (table.topics, Table(table.topics.encode()).topics):
        for name, config in expected["topicConfigTable"].items():
            topic = topics.find(name)
            assert topic is not None
            assert config.items() <= msgspec.to_builtins(topic).items()


def test_a_topic_is_created_from_its_template(table: Table) -> None:
    """With as many queues as the producer requests and the template has, without INHERIT; one change."""
    topic = table.topics.create_from_template("new", "TBW102", 4, sys_flag=1)
    assert topic == TopicConfig("new", 4, 4, perm=6, topic_sys_flag=1)
    assert table.topics.find("new") is topic
    assert (table.changes, table.topics.version.counter, table.topics.version.timestamp) == (1, 2, table.clock.now_ms)


@pytest.mark.parametrize(("wanted", "queues"), [(4, 4), (100, 8), (0, 0), (-3, 0)])
def test_the_queue_count_is_limited_by_the_template(table: Table, wanted: int, queues: int) -> None:
    """min(requested, write queues of the template), and at least 0."""
    topic = table.topics.create_from_template("new", "TBW102", wanted)
    assert topic is not None
    assert topic.read_queue_nums == topic.write_queue_nums == queues


def test_only_a_template_with_the_inherit_bit_creates_topics(table: Table) -> None:
    """An unknown template, or one without the INHERIT bit, creates nothing."""
    assert table.topics.create_from_template("new", "unknown", 4) is None
    assert table.topics.create_from_template("new", "BenchmarkTest", 4) is None
    assert table.topics.create_from_template("new", "Cluster", 100) is not None
    assert table.changes == 1


def test_auto_creation_can_be_disabled() -> None:
    """Then TBW102 is not created, and one from the file is no longer a template."""
    assert Table(auto_create_topic_enable=False).topics.find(SystemTopic.AUTO_CREATE) is None
    table = Table(Table().topics.encode(), auto_create_topic_enable=False)
    assert table.topics.create_from_template("new", SystemTopic.AUTO_CREATE, 4) is None


def test_topics_of_a_group_are_created_once(table: Table) -> None:
    """One queue, perm 6, and the same topic afterwards."""
    topic = table.topics.create_for_group("%RETRY%g", sys_flag=2, order=True)
    assert topic == TopicConfig("%RETRY%g", 1, 1, perm=6, topic_sys_flag=2, order=True)
    assert table.topics.create_for_group("%RETRY%g", 8) is topic
    assert table.changes == 1


def test_updates_and_deletions_without_effect_are_no_changes(table: Table) -> None:
    """The version changes with each change and only then."""
    assert table.topics.update(TopicConfig("t", 4, 4))
    assert not table.topics.update(TopicConfig("t", 4, 4))
    assert table.topics.update(TopicConfig("t", 4, 8))
    assert table.topics.delete("t")
    assert not table.topics.delete("t")
    assert (table.changes, table.topics.version.counter) == (3, 4)
    assert table.topics.find("t") is None


@pytest.mark.parametrize(("permission", "seen"), [(6, 7), (4, 4), (2, 2)])
def test_the_registration_contains_the_broker_permission(permission: int, seen: int) -> None:
    """The registration masks every permission unless the broker permits both; the table stays unchanged."""
    table = Table(broker_permission=permission)
    wrapper = RegisterBrokerBody.decode(table.topics.registration_body()).topic_config_serialize_wrapper
    assert wrapper.data_version == table.topics.version
    assert wrapper.topic_config_table.keys() == AT_START.keys()
    assert wrapper.topic_config_table["TBW102"].perm == seen
    template = table.topics.find("TBW102")
    assert template is not None
    assert template.perm == Permission.READ_WRITE | Permission.INHERIT


def test_reserved_names_are_system_topics(table: Table) -> None:
    """Names that RocketMQ reserves are system topics even if no such topic exists; others are not."""
    for name in ("TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC", "rmq_sys_wheel_timer"):
        assert table.topics.is_system(name)
    assert not table.topics.is_system("%RETRY%g")


def test_invalid_names_in_the_file_are_left_out(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """Retry topics of a version that did not check group names are not loaded, and one line logs them."""
    for name in ("%RETRY%g/../..", "a\nb", "%RETRY%" + "g" * 249, "Orders"):
        table.topics._put(TopicConfig(name, 1, 1, 6))
    data = table.topics.encode()
    again = TopicTable(TopicsConfig(cluster_name="C", broker_name="b"), lambda: 1)
    again.load(data)
    names = {topic.topic_name for topic in again}
    assert "Orders" in names
    assert not any("/" in name or "\n" in name or len(name) > 255 for name in names)
    assert [record.message for record in caplog.records if "invalid names" in record.message] == [
        "topics with invalid names are left out topics=3 first=%RETRY%g/../.."
    ]


@pytest.mark.parametrize("name", ["%RETRY%g/../..", "%RETRY%" + "g" * 249])
def test_no_topic_is_created_for_an_unstorable_name(table: Table, name: str) -> None:
    """The error is that of a negative acknowledgment whose retry topic could not be created."""
    with pytest.raises(RequestError) as refused:
        table.topics.create_for_group(name)
    assert (refused.value.code, refused.value.remark) == (ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
    assert table.topics.find(name) is None


def test_the_file_is_json_in_alphabetical_order(table: Table) -> None:
    """Members are alphabetical, without spaces."""
    assert table.topics.encode().startswith(
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{"BenchmarkTest":'
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":1024,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"BenchmarkTest","topicSysFlag":0,"writeQueueNums":1024},'
    )


def test_the_broker_permission_may_change() -> None:
    """It is a change of the table, which name servers get; the topics themselves stay unchanged."""
    it = Table().topics
    it.update(TopicConfig("T", 1, 1))
    version = it.version.counter
    it.permit(4)
    assert it.version.counter == version + 1
    told = RegisterBrokerBody.decode(it.registration_body()).topic_config_serialize_wrapper.topic_config_table
    found = it.find("T")
    assert found is not None
    assert (told["T"].perm, found.perm) == (4, 6)
    it.permit(4)
    assert it.version.counter == version + 1


def test_auto_creation_may_change_while_the_broker_runs() -> None:
    """TBW102 stops or resumes being a template; it is created if it was off from the start."""
    for at_start in (True, False):
        it = Table(auto_create_topic_enable=at_start).topics
        it.allow_auto_creation(allowed=True)
        assert it.create_from_template("A", "TBW102", 4) is not None
        it.allow_auto_creation(allowed=False)
        assert it.create_from_template("B", "TBW102", 4) is None


def test_a_trace_topic_is_created_if_configured() -> None:
    """As an ordinary topic with one queue; it belongs to the broker."""
    it = Table(trace_topic="Traces").topics
    assert it.find("Traces") == TopicConfig("Traces", 1, 1)
    assert it.is_system("Traces")


def test_topics_not_saved_by_a_killed_process_are_restored() -> None:
    """They get the queues that their messages need, or those of the template, and cause one change each."""
    table = Table()
    table.topics.restore({"Orders": 3, "Many": 12, "%RETRY%billing": 1})
    found = [table.topics.find(name) for name in ("Orders", "Many", "%RETRY%billing")]
    assert [(topic.read_queue_nums, topic.write_queue_nums, topic.perm) for topic in found if topic is not None] == [
        (8, 8, 6),
        (12, 12, 6),
        (1, 1, 6),
    ]
    assert table.changes == 3


def test_without_a_template_restored_topics_have_only_the_needed_queues() -> None:
    """Without auto-creation only the messages show how many queues a topic had."""
    table = Table(auto_create_topic_enable=False)
    table.topics.restore({"Orders": 3})
    assert (topic := table.topics.find("Orders")) is not None
    assert topic.write_queue_nums == 3
