"""Offset resets: on the broker, or by notifying the members."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.protocol.bodies.client_state import ResetOffsets
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeStats
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import PullSysFlag, RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.client_calls import ResetOffsetHeader
from skylarkmq.protocol.headers.consumer import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from skylarkmq.protocol.headers.stats import ConsumeStatsHeader
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, consumer, heartbeat, pull
from tests.harness.cold_files import ColdFiles
from tests.harness.peer import Peer
from tests.harness.waiting import until

LATEST = -1
LISTED = b'{"offsetTable":[{"brokerName":"b","offset":%d,"queueId":0,"topic":"T"}]}'
KEYED = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:%d}}'


class Resetting(BrokerParts):
    """Parts; topic `T` has one queue with three messages 10 ms apart."""

    def __init__(self, root: Path, *, by_broker: bool = True) -> None:
        super().__init__(root, resets_by_broker=by_broker)
        self.topics.update(TopicConfig(TOPIC, 1, 1))
        self.groups.find_or_create(GROUP)
        self.first_ms = self.clock.now_ms
        for body in (b"one", b"two", b"three"):
            self.put(body)
            self.clock.now_ms += 10
        self.saved: list[int | None] = []  # the first queue's committed offset at each awaited save
        self.resets = self.administration.resets

    async def wait_for(self, name: str) -> None:
        await super().wait_for(name)
        if name == "offsets":
            self.saved.append(self.offsets.committed(GROUP, TOPIC, 0))

    async def reset(self, timestamp: int = LATEST, **fields: Any) -> RemotingCommand:
        header = ResetOffsetHeader(fields.pop("group", GROUP), fields.pop("topic", TOPIC), timestamp, "true")
        for name, value in fields.items():
            setattr(header, name, value)
        request = RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return await self.peer(999).call_and_wait(request)

    def committed(self) -> int | None:
        header = QueryConsumerOffsetHeader(GROUP, TOPIC, 0)
        response = self.peer().call(RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header))
        return int(response.ext_fields()["offset"])

    def commit(self, offset: int) -> RemotingCommand:
        header = UpdateConsumerOffsetHeader(GROUP, TOPIC, 0, offset)
        return self.peer().call(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header))


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Resetting]:
    it = Resetting(tmp_path)
    yield it
    it.store.close()


@pytest.fixture
async def by_clients(tmp_path: Path) -> AsyncIterator[Resetting]:
    it = Resetting(tmp_path, by_broker=False)
    yield it
    it.store.close()


def offsets(response: RemotingCommand) -> dict[int, int]:
    table = ResetOffsets.decode(response.body).offset_table
    assert {(queue.topic, queue.broker_name) for queue in table} <= {(TOPIC, "b")}
    return {queue.queue_id: offset for queue, offset in table.items()}


def moved_to(response: RemotingCommand) -> tuple[int, str | None, str]:
    return response.code, response.remark, response.ext_fields()["nextBeginOffset"]


# ----------------------------------------------------------------------------------------------------- on the broker


async def test_a_group_is_reset_to_a_time(parts: Resetting) -> None:
    """To the first message at or after that time; to the end if there is none, or without a time."""
    response = await parts.reset(parts.first_ms + 5)
    assert (response.code, response.remark, offsets(response)) == (0, None, {0: 1})
    assert response.body == KEYED % 1
    assert offsets(await parts.reset(parts.clock.now_ms + 1_000)) == {0: 3}
    assert offsets(await parts.reset(0)) == {0: 0}
    assert offsets(await parts.reset(LATEST)) == {0: 3}


async def test_a_reset_holds_until_the_group_is_notified(parts: Resetting) -> None:
    """Queries 14 and 208 return the new offset, commits are ignored, and the next pull gets PULL_OFFSET_MOVED (21)."""
    parts.commit(3)
    await parts.reset(parts.first_ms + 5)
    late = parts.commit(3)
    assert (late.code, late.remark, parts.committed()) == (0, "Offset has been previously reset", 1)
    request = RemotingCommand.request(RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader(GROUP, TOPIC))
    stats = ConsumeStats.decode((await parts.peer().call_and_wait(request)).body)
    assert stats.offset_table[MessageQueue(TOPIC, "b", 0)].consumer_offset == 1
    flags = PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET
    reset = parts.peer().call(pull(queue_offset=3, sys_flag=flags, commit_offset=3))
    assert (moved_to(reset), parts.committed()) == ((21, "OFFSET_RESET", "1"), 1)
    assert reset.ext_fields()["minOffset"] == "0"
    assert reset.ext_fields()["maxOffset"] == "3"
    after = parts.peer().call(pull(queue_offset=1))
    assert (after.code, parts.commit(2).remark, parts.committed()) == (0, None, 2)
    assert parts.offsets.statistics().resets == 0


async def test_a_parked_pull_is_resumed_at_once(parts: Resetting) -> None:
    """Parked pulls of other groups stay parked."""
    member, other = parts.peer(1), parts.peer(2)
    member.send(pull(queue_offset=3, suspend_ms=60_000))
    other.send(pull(queue_offset=3, suspend_ms=60_000, consumer_group="other"))
    await parts.reset(0)
    [reset] = member.take()
    assert (moved_to(reset), other.take()) == ((21, "OFFSET_RESET", "0"), [])
    assert parts.arrivals.statistics().parked == 1


async def test_one_queue_is_reset_to_an_offset(parts: Resetting) -> None:
    """Valid offsets run from the first to one past the end; -1 is no offset, and then the time is used."""
    parts.topics.update(TopicConfig(TOPIC, 2, 2))
    assert offsets(await parts.reset(queue_id=0, offset=2)) == {0: 2}
    assert offsets(await parts.reset(queue_id=0, offset=4)) == {0: 4}
    assert offsets(await parts.reset(queue_id=0, offset=-1)) == {0: 3}
    assert offsets(await parts.reset(queue_id=0)) == {0: 3}
    assert offsets(await parts.reset(offset=2)) == {0: 3, 1: 0}
    outside = await parts.reset(queue_id=0, offset=5)
    assert (outside.code, outside.remark) == (1, "Target offset 5 not in consume queue range [0-3]")


async def test_a_reset_waits_for_cold_data(tmp_path: Path) -> None:
    """Nothing changes before every queue has been read, and the event loop does not wait for the disk."""
    Resetting(tmp_path).store.close()
    parts = Resetting(tmp_path)
    parts.store.reader._log_reads._hot_tail_bytes = 0
    parts.store.reader.start(asyncio.get_running_loop())
    with ColdFiles() as cold:
        cold.freeze(*(path for path in tmp_path.glob("co*/**/*") if path.is_file()))
        cold.gate.clear()
        task = asyncio.ensure_future(parts.reset(parts.first_ms + 5))
        await until(lambda: parts.store.statistics().reader.cold.under_way)
        assert parts.offsets.statistics().resets == 0
        cold.gate.set()
        assert offsets(await task) == {0: 1}
        assert {in_loop for _, in_loop in cold.waits} == {False}
    parts.store.close()


async def test_an_invalid_reset_is_refused(parts: Resetting) -> None:
    """Unknown topic, group or queue; nothing changes."""
    unknown_topic = await parts.reset(topic="none")
    unknown_group = await parts.reset(group="none")
    no_queue = await parts.reset(queue_id=7)
    assert (unknown_topic.code, unknown_topic.remark) == (17, "Topic none does not exist")
    assert (unknown_group.code, unknown_group.remark) == (26, "Group none does not exist")
    assert (no_queue.code, no_queue.remark) == (1, "No queues to reset.")
    assert (parts.offsets.statistics().resets, parts.offsets.topics_of("none")) == (0, [])


async def test_a_deleted_topic_loses_its_resets(parts: Resetting) -> None:
    """A new topic with that name starts without them."""
    await parts.reset(0)
    parts.offsets.remove_topic(TOPIC)
    assert (parts.offsets.statistics().resets, parts.offsets.committed(GROUP, TOPIC, 0)) == (0, None)


# -------------------------------------------------------------------------------------------------- at the clients


def member(parts: Resetting, port: int, language: str = "JAVA", version: int = 409) -> Peer:
    peer = parts.peer(port)
    beat = heartbeat(consumer(), client_id=f"c{port}")
    beat.language, beat.version = language, version
    peer.send(beat)
    return peer


def resets(peer: Peer) -> list[RemotingCommand]:
    peer.take()
    return [command for command in peer.received if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]


async def test_members_receive_offsets_in_their_own_form(by_clients: Resetting) -> None:
    """A list for C++, a map for the others, oneway; the operator receives the map, and the broker changes nothing."""
    java, cpp = member(by_clients, 1), member(by_clients, 2, "CPP", 63)
    by_clients.commit(3)
    at_ms = by_clients.first_ms + 5
    response = await by_clients.reset(at_ms)
    assert (response.code, response.remark, response.body) == (0, "not set any response code", KEYED % 1)
    [reset], [reset_cpp] = resets(java), resets(cpp)
    assert (reset.is_oneway, reset.body, reset_cpp.body) == (True, KEYED % 1, LISTED % 1)
    assert reset.ext_fields() == {
        "group": GROUP, "topic": TOPIC, "timestamp": str(at_ms), "isForce": "false", "queueId": "-1",
    }  # fmt: skip
    assert (by_clients.committed(), by_clients.offsets.statistics().resets) == (3, 0)


async def test_only_force_moves_a_group_forward(by_clients: Resetting) -> None:
    """Without it, the target is at most the committed offset."""
    member(by_clients, 1)
    by_clients.commit(1)
    assert offsets(await by_clients.reset(LATEST, is_force="false")) == {0: 1}
    assert offsets(await by_clients.reset(0, is_force="false")) == {0: 0}
    assert offsets(await by_clients.reset(LATEST, is_force="true")) == {0: 3}


async def test_an_invalid_reset_at_clients_is_refused(by_clients: Resetting) -> None:
    """Unknown topics, groups without commits, groups without members, members with a version before 220."""
    unknown = await by_clients.reset(topic="none")
    assert unknown.code == 17
    never = await by_clients.reset(5)
    assert (never.code, never.remark) == (1, f"THe consumer group <{GROUP}> not exist")
    by_clients.commit(1)
    refused = await by_clients.reset(5)
    remark = f"Consumer not online, so can not reset offset, Group: {GROUP} Topic: {TOPIC} Timestamp: 5"
    assert (refused.code, refused.remark) == (206, remark)
    recent, old = member(by_clients, 1), member(by_clients, 2, version=27)
    refused = await by_clients.reset(5)
    assert (refused.code, refused.remark) == (1, "the client does not support this feature. version=V3_0_6")
    assert (resets(recent), resets(old)) == ([], [])


async def test_where_to_reset_can_change_at_run_time(by_clients: Resetting) -> None:
    """The next request uses the new setting."""
    by_clients.commit(1)
    assert (await by_clients.reset(0)).code == 206
    by_clients.resets.configure(by_broker=True)
    assert (await by_clients.reset(0)).code == 0


async def test_a_reset_is_on_disk_before_the_response(parts: Resetting) -> None:
    """A crash after the response does not undo it; a refused request waits for nothing."""
    assert (await parts.reset()).code == 0
    assert parts.saved == [3]
    assert (await parts.reset(group="none")).code == 26
    assert parts.saved == [3]


@pytest.mark.parametrize("by_broker", [True, False])
async def test_the_broker_s_own_offsets_cannot_be_reset(parts: Resetting, by_broker: bool) -> None:
    """They determine where the loading of open half messages begins."""
    parts.resets.configure(by_broker=by_broker)
    group, half = "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"
    parts.offsets.commit_own(half, 0, 3)
    response = await parts.reset(group=group, topic=half)
    assert (response.code, response.remark) == (16, f"the consumer group[{group}] is forbidden for topic[{half}]")
    assert parts.offsets.committed(group, half, 0) == 3
