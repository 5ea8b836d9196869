"""The tables of a slave against a fake master: what is taken over, when, and what does not go back."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.ha.tables.master_calls import MasterCalls
from skylarkmq.broker.ha.tables.metadata import MetadataSync
from skylarkmq.broker.ha.tables.tables import REQUEST_MODES_FILE, SlaveTables
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig, SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicsConfig, TopicTable
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.outbound import Outbound
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets, DelayOffsets
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.timers import TimerCheck
from tests.broker.ha.classic.fake_master import RUNTIME_INFO, FakeMaster
from tests.harness.stores import Opened, message, opened
from tests.harness.timed import timed, timers_of
from tests.harness.waiting import until

TOPICS, OFFSETS, DELAYS, TIMER_CHECK, TIMER_COUNTS, GROUPS, MODES = 21, 43, 45, 60, 61, 201, 402
VERSION = DataVersion(0, 1_000, 7)


class Slave:
    """The tables of a slave over a real store, and the part that copies them."""

    def __init__(self, it: Opened, master: FakeMaster, outbound: Outbound) -> None:
        self.store = it.store
        self.root = it.root
        self.topics = TopicTable(TopicsConfig(cluster_name="C", broker_name="B"), it.clock)
        self.topics.load(None)
        self.groups = SubscriptionGroups(GroupsConfig(), it.clock)
        self.offsets = ConsumerOffsetTable(OffsetsConfig(), it.clock)
        self.delays = DelayOffsetTable(10_000, it.clock)
        self.timers = timers_of(it)
        self.timers.delivery.load()
        self.end = master.end
        tables = SlaveTables(self.topics, self.groups, self.offsets, self.delays, self.timers, it.store, it.root)
        self.calls = calls = MasterCalls(outbound)
        calls.address = master.address
        self.sync = MetadataSync(calls, tables, lambda: self.end)
        outbound.on_close(self.sync.connection_lost)

    async def copy(self) -> None:
        """Copy all tables once more."""
        applied = self.sync.applied
        self.sync.master_changed()
        await until(lambda: self.sync.applied > applied)


def serve(master: FakeMaster, *topics: str, offsets: Mapping[int, int] = {}, version: DataVersion = VERSION) -> None:
    """Set the tables of the master: these topics, and the offsets of group G in T."""
    wrapper = TopicConfigSerializeWrapper(version, {name: TopicConfig(topic_name=name) for name in topics})
    groups = SubscriptionGroupWrapper(version, {}, {"G": SubscriptionGroupConfig(group_name="G")})
    master.bodies[TOPICS] = wrapper.encode()
    master.bodies[GROUPS] = groups.encode()
    master.bodies[OFFSETS] = ConsumerOffsets(version, None, {"T@G": dict(offsets)}).encode()
    master.bodies.setdefault(DELAYS, DelayOffsets(version, {3: 5}).encode())


@asynccontextmanager
async def following(root: Path, master: FakeMaster) -> AsyncIterator[Slave]:
    outbound = Outbound(RemotingConfig())
    with opened(root) as it:
        slave = Slave(it, master, outbound)
        slave.sync.start()
        try:
            yield slave
        finally:
            await slave.sync.stop()
            slave.timers.delivery.close()
            await outbound.stop()
            slave.store.commit()


@pytest.fixture
async def master() -> AsyncIterator[FakeMaster]:
    async with FakeMaster(end=100) as master:
        serve(master, "T", "Other", offsets={0: 10, 1: 20})
        yield master


async def test_tables_become_those_of_the_master(tmp_path: Path, master: FakeMaster) -> None:
    """Topics and groups have its version; a master of 4.9 has neither timers nor request modes."""
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        assert {topic.topic_name for topic in slave.topics} == {"T", "Other"}
        assert slave.topics.version == VERSION
        assert slave.groups.find("G") is not None
        assert slave.groups.version == VERSION
        assert slave.offsets.table()["T@G"] == {0: 10, 1: 20}
        assert slave.delays.next_of(3) == 5
        assert DelayOffsets.decode(slave.delays.encode()).offset_table == {3: 5}


async def test_tables_without_offsets_are_copied(tmp_path: Path, master: FakeMaster) -> None:
    """RocketMQ's masters, and ours, respond with an error if no offset was ever committed, or no message delayed."""
    for code, remark in ((OFFSETS, "No consumer offset in this broker"), (DELAYS, "No delay offset in this broker")):
        del master.bodies[code]
        master.codes[code], master.remarks[code] = 1, remark
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        assert {topic.topic_name for topic in slave.topics} == {"T", "Other"}
        assert slave.offsets.table() == {}


async def test_tables_wait_for_the_log(tmp_path: Path, master: FakeMaster) -> None:
    """An offset must not count messages that the copy lacks."""
    async with following(tmp_path, master) as slave:
        slave.end = 99
        await until(lambda: master.asked.count(28))
        await asyncio.sleep(0.2)
        assert slave.offsets.table() == {}
        slave.end = 100
        await until(lambda: slave.sync.applied)
        assert slave.offsets.table()["T@G"] == {0: 10, 1: 20}


async def test_offsets_do_not_go_back(tmp_path: Path, master: FakeMaster) -> None:
    """What consumers committed here while the master was away stays (#1094)."""
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        slave.offsets.commit("G", "T", 0, 15)
        serve(master, "T", "Other", offsets={0: 12, 1: 25})
        await slave.copy()
        assert slave.offsets.table()["T@G"] == {0: 15, 1: 25}


async def test_a_master_that_comes_back_with_older_offsets_changes_none(tmp_path: Path, master: FakeMaster) -> None:
    """A crash lost them there; the connection was lost, so it is no reset."""
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        serve(master, "T", "Other", offsets={0: 3, 1: 25})
        master.requests.disconnect()
        slave.sync.connection_lost(master.address)
        await slave.copy()
        assert slave.offsets.table()["T@G"] == {0: 10, 1: 25}


async def test_a_reset_at_the_master_is_taken_over(tmp_path: Path, master: FakeMaster) -> None:
    """The same process had a larger offset before: an operator has reset the group."""
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        serve(master, "T", "Other", offsets={0: 0, 1: 20})
        await slave.copy()
        assert slave.offsets.table()["T@G"] == {0: 0, 1: 20}


async def test_a_delay_offset_does_not_go_back(tmp_path: Path, master: FakeMaster) -> None:
    """Messages before it are delivered, and their copies are in this log."""
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        master.bodies[DELAYS] = DelayOffsets(VERSION, {3: 4, 1: 9}).encode()
        await slave.copy()
        assert dict(slave.delays.table()) == {3: 5, 1: 9}


async def test_a_deleted_topic_loses_its_queues(tmp_path: Path, master: FakeMaster) -> None:
    """Also if this table never had the topic; RocketMQ's own topics keep theirs."""
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        for topic in ("T", "Other", "Short", SystemTopic.TRANSACTION_HALF):
            slave.store.put(message(b"x", topic))
        slave.store.commit()
        master.end = slave.end = slave.store.max_physical_offset
        slave.offsets.commit("G", "Other", 0, 1)
        serve(master, "T", version=DataVersion(0, 2_000, 8))
        await slave.copy()
        assert sorted(slave.store.queues.topics()) == [SystemTopic.TRANSACTION_HALF, "T"]
        assert "Other@G" not in slave.offsets.table()


async def test_a_topic_with_younger_messages_keeps_its_queues(tmp_path: Path, master: FakeMaster) -> None:
    """They may be of a topic with the same name that was created after the master's response."""
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        slave.store.put(message(b"x", "Other"))
        slave.store.commit()
        master.end = 0
        serve(master, "T", version=DataVersion(0, 2_000, 8))
        await slave.copy()
        assert slave.store.queues.topics() == ["Other"]


async def test_messages_sent_while_the_master_is_asked_keep_their_queues(tmp_path: Path, master: FakeMaster) -> None:
    """The topic was created again after the master's response about topics, before its response about the log."""
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        slave.store.put(message(b"x", "Other"))
        slave.store.commit()
        slave.end = slave.store.max_physical_offset
        master.end, master.ends = 0, {TOPICS: slave.end, RUNTIME_INFO: 0}
        serve(master, "T", version=DataVersion(0, 2_000, 8))
        await slave.copy()
        assert slave.store.queues.topics() == ["Other"]


async def test_request_modes_are_kept_in_rocketmqs_file(tmp_path: Path, master: FakeMaster) -> None:
    """Nothing here uses them; a broker of RocketMQ 5 on this directory does."""
    modes = b'{"messageRequestModeMap":{"T":{}}}'
    master.bodies[MODES] = modes
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        assert (slave.root / "config" / REQUEST_MODES_FILE).read_bytes() == modes


async def test_timers_follow_the_master(tmp_path: Path, master: FakeMaster) -> None:
    """Messages that it has put on its wheel are on this one, without the slots that it has delivered."""
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        begin = 1_700_000_000_000
        for seconds in (2, 4, 6, 8):
            slave.store.put(timed(b"%d" % seconds, begin + seconds * 1_000))
        slave.store.commit()
        progress = TimerCheck(read_ms=begin + 5_000, queue_offset=3, master_queue_offset=3)
        master.bodies[TIMER_CHECK] = progress.encode()[:56]
        master.bodies[TIMER_COUNTS] = b'{"dataVersion":{},"timingCount":{"T":{"count":1,"timeStamp":5}}}'
        await slave.copy()
        delivery = slave.timers.delivery
        await until(lambda: delivery.check().read_ms == begin + 5_000)
        assert delivery.check().queue_offset == 3
        assert [at for at, _ in slave.timers.files.wheel.slots()] == [begin + 6_000]
        assert slave.timers.counts.statistics().counts == {"T": 1}


async def test_an_unreadable_response_changes_nothing(
    tmp_path: Path, master: FakeMaster, caplog: pytest.LogCaptureFixture
) -> None:
    """One line names the master and the request; the next attempt may succeed."""
    master.bodies[TOPICS] = b"\x00no JSON"
    async with following(tmp_path, master) as slave:
        await until(lambda: caplog.records)
        assert slave.sync.applied == 0
        assert "GET_ALL_TOPIC_CONFIG (21)" in caplog.text
        serve(master, "T")
        await slave.copy()


async def test_a_malformed_address_of_the_master_is_logged_and_tried_again(
    tmp_path: Path, master: FakeMaster, caplog: pytest.LogCaptureFixture
) -> None:
    """A name server may have any text as an address. The next attempt has the next address."""
    serve(master, "T")
    async with following(tmp_path, master) as slave:
        await until(lambda: slave.sync.applied)
        slave.calls.address = "master:99999"
        slave.sync.master_changed()
        await until(lambda: "an address must be host:port, not 'master:99999'" in caplog.text)
        slave.calls.address = master.address
        await slave.copy()


def test_a_version_is_compared_before_a_table_is_replaced() -> None:
    """The same version means the same table, so listeners are not called."""
    table = TopicTable(TopicsConfig(cluster_name="C", broker_name="B"), lambda: 0)
    table.load(None)
    calls: list[int] = []
    table.on_change(lambda: calls.append(1))
    table.follow(TopicConfigSerializeWrapper(msgspec.structs.replace(table.version), {}))
    assert calls == []
