"""Failed messages, ordered messages, and broadcast messages."""

import asyncio
import zlib
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest

from skylarkmq import (
    LATER,
    BrokerError,
    ClientError,
    ConsumeFrom,
    ConsumerSettings,
    Later,
    MessageExt,
    PushConsumer,
    Sql92,
)
from skylarkmq.protocol.bodies.enums import MessageModel
from skylarkmq.protocol.bodies.heartbeat import HeartbeatData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode, SysFlag
from skylarkmq.protocol.headers.consumer import UpdateConsumerOffsetHeader
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.headers.send_back import SendBackHeader
from skylarkmq.protocol.message import decode_properties
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import refuse, until

FAST = ConsumerSettings(
    suspend_s=0.5,
    commit_interval_s=0.02,
    retry_pause_s=0.01,
    pull_retry_pause_s=0.01,
    handover_pause_s=0.05,
    suspend_pause_s=0.01,
    rebalance_interval_s=0.05,
)
WHERE, COMMIT = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
BACK = RequestCode.CONSUMER_SEND_MSG_BACK
RETRY = "%RETRY%g"


def push(cluster: Cluster, **options: object) -> PushConsumer:
    options = {"consume_from": ConsumeFrom.FIRST, "settings": FAST} | options
    return PushConsumer("g", namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]  # shorthand of a test


# ------------------------------------------------------------------------------------------------------- redelivery


async def test_a_failed_message_is_redelivered_from_the_retry_topic() -> None:
    """CONSUMER_SEND_MSG_BACK (36) names it. It has its own topic and a count; both offsets advance over it."""
    seen: list[tuple[str, bytes, int]] = []

    async def handler(message: MessageExt) -> None:
        seen.append((message.topic, message.body, message.reconsume_times))
        if message.reconsume_times < 2:
            raise ValueError("not yet")

    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, RETRY: 1}
        cluster.broker.store("T", 0, b"bad", "UNIQ_KEY\x01ID\x02")
        async with push(cluster, handler=handler) as consumer:
            await consumer.subscribe("T")
            await cluster.wait_committed("g", "T", {0: 1})
            await cluster.wait_committed("g", RETRY, {0: 2})
            assert seen == [("T", b"bad", 0), ("T", b"bad", 1), ("T", b"bad", 2)]
            assert (consumer.statistics().failed, consumer.statistics().sent_back) == (2, 2)
        first = cluster.broker.requests_of(BACK)[0].header(SendBackHeader)
        assert (first.offset, first.group, first.delay_level, first.max_reconsume_times) == (0, "g", 0, 16)
        assert (first.origin_msg_id, first.origin_topic, first.bname) == ("ID", "T", "broker-a")


@pytest.mark.parametrize(("result", "level"), [(LATER, 0), (Later(delay_level=5), 5), (Later(delay_level=-1), -1)])
async def test_the_result_of_a_handler_chooses_the_delay(result: Later, level: int) -> None:
    """The time of the broker, that of a level, or a dead letter at once."""

    async def handler(message: MessageExt) -> Later | None:
        return result if message.reconsume_times == 0 else None

    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, RETRY: 1}
        cluster.broker.store("T", 0, b"x")
        async with push(cluster, handler=handler) as consumer:
            await consumer.subscribe("T")
            (request,) = await cluster.broker.wait_requests(BACK)
            assert request.header(SendBackHeader).delay_level == level
            await cluster.wait_committed("g", "T", {0: 1})
            assert (("%DLQ%g", 0) in cluster.broker.queues) is (level == -1)


async def test_a_handler_that_exceeds_its_time_is_canceled() -> None:
    """Its message is sent back."""
    seen: list[str] = []

    async def handler(message: MessageExt) -> None:
        if message.reconsume_times:
            seen.append("again")
            return
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.02, consume_timeout_s=0.02, concurrency=1)
    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, RETRY: 1}
        cluster.broker.store("T", 0, b"x")
        async with push(cluster, handler=handler, settings=settings) as consumer:
            await consumer.subscribe("T")
            await cluster.wait_committed("g", RETRY, {0: 1})
            assert seen == ["cancelled", "again"]
            statistics = consumer.statistics()
            assert (statistics.timed_out, statistics.failed, statistics.sent_back) == (1, 1, 1)


async def test_a_copy_is_sent_if_the_broker_does_not_take_a_message_back() -> None:
    """To the retry topic, with the properties of RocketMQ, count and limit in the header."""

    async def handler(message: MessageExt) -> Later | None:
        return LATER if message.reconsume_times == 0 else None

    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, RETRY: 1}
        cluster.broker.on(BACK, refuse(ResponseCode.SYSTEM_ERROR))
        cluster.broker.store("T", 0, b"x", "UNIQ_KEY\x01ID\x02TRAN_MSG\x01true\x02k\x01v\x02")
        async with push(cluster, handler=handler) as consumer:
            await consumer.subscribe("T")
            (request,) = await cluster.broker.wait_requests(RequestCode.SEND_MESSAGE_V2)
            header = request.header(SendMessageV2Header)
            assert (header.topic, header.reconsume_times, header.max_reconsume_times) == (RETRY, 1, 16)
            assert decode_properties(header.properties) == {
                "UNIQ_KEY": "ID",
                "k": "v",
                "RETRY_TOPIC": "T",
                "ORIGIN_MESSAGE_ID": "ID",
                "DELAY": "3",
            }
            await cluster.wait_committed("g", "T", {0: 1})


@pytest.mark.parametrize(
    ("body", "sent_flag"),
    [
        (b"x" * 4_095, 0),
        (b"x" * 4_096, SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB),
        (Random(1).randbytes(5_000), 0),  # compression would not make it smaller
    ],
)
@pytest.mark.parametrize("is_stored_compressed", [True, False])
async def test_a_copy_is_compressed_as_by_a_producer(
    body: bytes, sent_flag: int, *, is_stored_compressed: bool
) -> None:
    """The handler has the inflated body, which might not fit into a frame."""

    async def handler(message: MessageExt) -> Later | None:
        assert message.body == body
        return LATER

    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, RETRY: 1}
        cluster.broker.on(BACK, refuse(ResponseCode.SYSTEM_ERROR))
        stored = (zlib.compress(body), SysFlag.COMPRESSED) if is_stored_compressed else (body, 0)
        cluster.broker.store("T", 0, stored[0], "UNIQ_KEY\x01ID\x02", sys_flag=stored[1])
        async with push(cluster, handler=handler) as consumer:
            await consumer.subscribe("T")
            (request,) = await cluster.broker.wait_requests(RequestCode.SEND_MESSAGE_V2)
    assert request.header(SendMessageV2Header).sys_flag == sent_flag
    sent = bytes(request.body)
    assert (zlib.decompress(sent) if sent_flag else sent) == body


async def test_a_message_that_cannot_be_sent_back_is_handled_again_here(caplog: pytest.LogCaptureFixture) -> None:
    """Its offset is not committed meanwhile; a warning is logged."""
    tries: list[int] = []

    async def handler(message: MessageExt) -> None:
        tries.append(message.reconsume_times)
        if len(tries) < 3:
            raise ValueError("not yet")

    async with running_cluster() as cluster:
        cluster.topics = {"T": 1}
        cluster.broker.on(BACK, refuse(ResponseCode.SYSTEM_ERROR))
        cluster.broker.store("T", 0, b"x")
        async with push(cluster, handler=handler) as consumer:
            await consumer.subscribe("T")
            await cluster.wait_committed("g", "T", {0: 1})
            assert tries == [0, 1, 2]
        assert "ValueError: not yet" in caplog.text


# ------------------------------------------------------------------------------------------------------------ orderly


async def test_messages_of_an_orderly_queue_are_handled_one_by_one() -> None:
    """In the order of the queue, while other queues continue."""
    order: defaultdict[int, list[int]] = defaultdict(list)
    running: Counter[int] = Counter()
    together = 0

    async def handler(message: MessageExt) -> None:
        nonlocal together
        running[message.queue_id] += 1
        assert running[message.queue_id] == 1
        together = max(together, running.total())
        await asyncio.sleep(0)
        order[message.queue_id].append(int(message.body))
        running[message.queue_id] -= 1

    async with running_cluster() as cluster:
        for n in range(100):
            cluster.broker.store("T", n % 2, b"%d" % n)
        async with push(cluster, handler=handler, orderly=True) as consumer:
            await consumer.subscribe("T")
            await cluster.wait_committed("g", "T", {0: 50, 1: 50})
        assert order == {0: list(range(0, 100, 2)), 1: list(range(1, 100, 2))}
        assert together == 2
        assert not cluster.broker.locks


async def test_an_orderly_queue_pauses_after_a_failure() -> None:
    """The same message follows, counted, and no message overtakes it."""
    seen: list[tuple[bytes, int]] = []

    async def handler(message: MessageExt) -> Later | None:
        seen.append((message.body, message.reconsume_times))
        return LATER if message.body == b"bad" and message.reconsume_times < 2 else None

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        for body in (b"bad", b"good"):
            cluster.broker.store("T", 0, body)
        async with push(cluster, handler=handler, orderly=True) as consumer:
            await consumer.subscribe("T")
            await cluster.wait_committed("g", "T", {0: 2})
        assert seen == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
        assert not cluster.broker.requests_of(BACK)


async def test_an_orderly_message_that_fails_too_often_goes_to_the_retry_topic() -> None:
    """Brokers turn it into a dead letter; the queue goes on."""
    settings = ConsumerSettings(suspend_s=0.5, suspend_pause_s=0.01, commit_interval_s=0.02, max_reconsume_times=2)
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)
        if message.body == b"bad":
            raise ValueError("never")

    async with running_cluster() as cluster:
        cluster.topics |= {"T": 1, RETRY: 1}
        for body in (b"bad", b"good"):
            cluster.broker.store("T", 0, body)
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"})
        async with push(cluster, handler=handler, orderly=True, settings=settings) as consumer:
            await consumer.subscribe("T")
            await cluster.wait_committed("g", "T", {0: 2})
        assert seen == [b"bad", b"bad", b"bad", b"good"]
        header = cluster.broker.requests_of(RequestCode.SEND_MESSAGE_V2)[0].header(SendMessageV2Header)
        assert (header.topic, header.reconsume_times, header.max_reconsume_times) == (RETRY, 3, 2)


async def test_an_orderly_queue_is_read_only_while_it_is_locked() -> None:
    """It is not read while another member has the lock."""
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    queue = MessageQueue("T", "broker-a", 0)
    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        cluster.broker.locks[queue] = "another member"
        cluster.broker.store("T", 0, b"x")
        async with push(cluster, handler=handler, orderly=True) as consumer:
            await consumer.subscribe("T")
            await cluster.broker.wait_requests(RequestCode.LOCK_BATCH_MQ, 2)
            assert not cluster.broker.requests_of(RequestCode.PULL_MESSAGE)
            assert consumer.statistics().queues == ()
            del cluster.broker.locks[queue]
            await until(lambda: seen == [b"x"])
            assert cluster.broker.locks[queue] == consumer.client.client_id
        assert queue not in cluster.broker.locks


async def test_an_orderly_queue_changes_hands_after_its_running_message() -> None:
    """The new owner gets the lock after the commit, so no message is repeated."""
    gate, seen = asyncio.Event(), Counter[bytes]()

    async def slow(message: MessageExt) -> None:
        seen[message.body] += 1
        await gate.wait()

    async def quick(message: MessageExt) -> None:
        seen[message.body] += 1

    async with running_cluster() as cluster:
        for n in range(10):
            cluster.broker.store("T", n % 2, b"%d" % n)
        async with push(cluster, handler=slow, orderly=True) as first:
            await first.subscribe("T")
            await until(lambda: seen.total() == 2)
            async with push(cluster, handler=quick, orderly=True) as second:
                await second.subscribe("T")
                await until(lambda: len(first.statistics().queues) == 1)
                assert second.statistics().queues == ()
                gate.set()
                await until(lambda: len(second.statistics().queues) == 1)
                await until(lambda: seen.total() == 10)
        assert set(seen.values()) == {1}


async def test_a_stop_during_a_handover_commits_the_queue() -> None:
    """The offset after its last message is committed, and the lock released."""
    gate, seen = asyncio.Event(), Counter[bytes]()

    async def slow(message: MessageExt) -> None:
        seen[message.body] += 1
        await gate.wait()

    async with running_cluster() as cluster:
        for n in range(2):
            cluster.broker.store("T", n, b"%d" % n)
        first, second = push(cluster, handler=slow, orderly=True), push(cluster, handler=slow, orderly=True)
        await first.start()
        await first.subscribe("T")
        await until(lambda: seen.total() == 2)
        async with second:
            await second.subscribe("T")
            await until(lambda: len(first.statistics().queues) == 1)
            stopping = asyncio.create_task(first.stop())
            await asyncio.sleep(0)
            gate.set()
            await stopping
            assert cluster.broker.committed("g", "T") == {0: 1, 1: 1}
        assert set(seen.values()) == {1}
        assert not cluster.broker.locks


async def test_a_queue_whose_lock_is_lost_is_given_up_without_a_commit() -> None:
    """The offsets of its new owner are untouched. It is read again once the lock is granted."""
    settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=3600, lock_renewal_s=0.02, rebalance_interval_s=0.05)
    started = asyncio.Event()

    async def handler(message: MessageExt) -> None:
        started.set()

    queue = MessageQueue("T", "broker-a", 0)
    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        cluster.broker.store("T", 0, b"x")
        async with push(cluster, handler=handler, orderly=True, settings=settings) as consumer:
            await consumer.subscribe("T")
            await started.wait()
            cluster.broker.locks[queue] = "another member"
            await until(lambda: consumer.statistics().queues == ())
            assert cluster.broker.committed("g", "T") == {}
            del cluster.broker.locks[queue]
            await until(lambda: consumer.statistics().queues == (queue,))


async def test_an_orderly_queue_waits_for_its_lock_on_a_new_connection() -> None:
    """A restarted broker may have given it to another member: no message is handled, and no offset committed."""
    # locks are renewed every 20 s
    settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.01, pull_retry_pause_s=0.01)
    seen: list[bytes] = []
    queue = MessageQueue("T", "broker-a", 0)

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        cluster.broker.store("T", 0, b"1")
        async with push(cluster, handler=handler, orderly=True, settings=settings) as consumer:
            await consumer.subscribe("T")
            await until(lambda: cluster.broker.committed("g", "T") == {0: 1})
            cluster.broker.locks[queue] = "another member"
            cluster.broker.offsets["g", "T", 0] = 0
            cluster.broker.hang_up()
            cluster.broker.store("T", 0, b"2")
            await until(lambda: consumer.statistics().queues == ())
            assert seen == [b"1"]
            assert cluster.broker.committed("g", "T") == {0: 0}
            del cluster.broker.locks[queue]
            consumer._member.group_changed()
            await until(lambda: seen == [b"1", b"1", b"2"])


async def test_an_orderly_queue_continues_after_a_broken_connection() -> None:
    """If no other member had it, no message is repeated, also not uncommitted ones."""
    settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=3600, pull_retry_pause_s=0.01)
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        cluster.broker.store("T", 0, b"1")
        async with push(cluster, handler=handler, orderly=True, settings=settings) as consumer:
            await consumer.subscribe("T")
            await until(lambda: seen == [b"1"])
            cluster.broker.hang_up()
            cluster.broker.store("T", 0, b"2")
            await until(lambda: len(seen) > 1)
        assert seen == [b"1", b"2"]
        assert cluster.broker.committed("g", "T") == {0: 2}


async def test_an_orderly_queue_continues_where_another_member_left_it() -> None:
    """The other member has committed more meanwhile: the group's offset does not move back."""
    # locks are renewed every 20 s
    settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.01, pull_retry_pause_s=0.01)
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        cluster.broker.store("T", 0, b"1")
        async with push(cluster, handler=handler, orderly=True, settings=settings) as consumer:
            await consumer.subscribe("T")
            await until(lambda: cluster.broker.committed("g", "T") == {0: 1})
            cluster.broker.hang_up()
            for body in (b"2", b"3", b"4"):
                cluster.broker.store("T", 0, body)
            cluster.broker.offsets["g", "T", 0] = 3
            earlier = len(cluster.broker.requests_of(COMMIT))
            await until(lambda: cluster.broker.committed("g", "T") == {0: 4})
        assert seen == [b"1", b"4"]
        offsets = [
            request.header(UpdateConsumerOffsetHeader).commit_offset or 0
            for request in cluster.broker.requests_of(COMMIT)
        ]
        assert offsets == sorted(offsets)
        # the offset at which the queue was taken, and those after it; a shutdown repeats an interrupted commit
        assert (set(offsets[:earlier]) | {0}, set(offsets[earlier:]) | {3}) == ({0, 1}, {3, 4})


async def test_a_released_queue_does_not_move_its_offset_back() -> None:
    """Its last message is still handled while another member has the queue, and while the lock is granted again."""
    settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=3600, lock_renewal_s=0.02, rebalance_interval_s=0.05)
    gate, seen = asyncio.Event(), list[bytes]()

    async def slow(message: MessageExt) -> None:
        seen.append(message.body)
        await gate.wait()

    async with running_cluster() as cluster:
        for queue_id in range(2):
            cluster.broker.store("T", queue_id, b"%d" % queue_id)
        async with (
            push(cluster, handler=slow, orderly=True, settings=settings) as first,
            push(cluster, handler=slow, orderly=True, settings=settings) as second,
        ):
            await first.subscribe("T")
            await until(lambda: len(seen) == 2)
            await second.subscribe("T")
            await until(lambda: len(first.statistics().queues) == 1)
            cluster.broker.hang_up()
            for queue_id in range(2):
                cluster.broker.store("T", queue_id, b"another member's")
                cluster.broker.offsets["g", "T", queue_id] = 2
            await cluster.broker.wait_requests(WHERE, len(cluster.broker.requests_of(WHERE)) + 4)
            gate.set()
            await until(lambda: len(second.statistics().queues) == 1)
        assert sorted(seen) == [b"0", b"1"]
        assert {
            request.header(UpdateConsumerOffsetHeader).commit_offset for request in cluster.broker.requests_of(COMMIT)
        } <= {2}
        assert cluster.broker.committed("g", "T") == {0: 2, 1: 2}


# ---------------------------------------------------------------------------------------------------------- broadcast


async def test_every_broadcasting_member_receives_all_messages_once(tmp_path: Path) -> None:
    """Its offsets are in a file of its own, not at the brokers, and failures are not redelivered."""
    seen: defaultdict[str, list[bytes]] = defaultdict(list)

    def member(cluster: Cluster, name: str) -> PushConsumer:
        async def handler(message: MessageExt) -> None:
            seen[name].append(message.body)
            if message.body == b"1":
                raise ValueError("lost")

        return push(cluster, handler=handler, broadcast=True, offsets_path=tmp_path / name)

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        for n in range(3):
            cluster.broker.store("T", 0, b"%d" % n)
        async with member(cluster, "a") as first, member(cluster, "b") as second:
            for consumer in (first, second):
                await consumer.subscribe("T")
            await until(lambda: len(seen["a"]) == len(seen["b"]) == 3)
        cluster.broker.store("T", 0, b"3")
        async with member(cluster, "a") as consumer:
            await consumer.subscribe("T")
            await until(lambda: len(seen["a"]) == 4)
        assert sorted(seen["a"]) == [b"0", b"1", b"2", b"3"]
        assert not cluster.broker.offsets
        for code in (BACK, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET):
            assert not cluster.broker.requests_of(code)
        (data,) = HeartbeatData.decode(cluster.broker.requests_of(RequestCode.HEART_BEAT)[0].body).consumer_data_set
        assert data.message_model is MessageModel.BROADCASTING


async def test_two_broadcasting_members_of_a_host_need_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the second one is rejected; with two names their offsets are separate."""
    monkeypatch.setenv("HOME", str(tmp_path))
    seen: defaultdict[str, list[bytes]] = defaultdict(list)

    def member(cluster: Cluster, name: str) -> PushConsumer:
        async def handler(message: MessageExt) -> None:
            seen[name].append(message.body)

        return push(cluster, handler=handler, broadcast=True, instance_name=name)

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        async with push(cluster, broadcast=True):
            with pytest.raises(ClientError, match="instance_name="):
                await push(cluster, broadcast=True).start()
        cluster.broker.store("T", 0, b"0")
        async with member(cluster, "left") as left:
            await left.subscribe("T")
            await until(lambda: seen["left"] == [b"0"])
        cluster.broker.store("T", 0, b"1")
        async with member(cluster, "left") as left, member(cluster, "right") as right:
            for consumer in (left, right):
                await consumer.subscribe("T")
            await until(lambda: seen == {"left": [b"0", b"1"], "right": [b"0", b"1"]})


async def test_orderly_and_broadcast_exclude_each_other() -> None:
    """An orderly consumer needs a handler."""
    async with running_cluster() as cluster:
        with pytest.raises(ValueError, match="does not go with"):
            push(cluster, orderly=True, broadcast=True, handler=lambda message: asyncio.sleep(0))
        with pytest.raises(ValueError, match="needs a handler"):
            push(cluster, orderly=True)


# -------------------------------------------------------------------------------------------------------------- SQL92


async def test_an_sql_expression_is_checked_before_the_heartbeat() -> None:
    """By CHECK_CLIENT_CONFIG (46). The client does not filter the messages again."""
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        cluster.broker.on(RequestCode.CHECK_CLIENT_CONFIG, None)
        cluster.broker.store("T", 0, b"x", "TAGS\x01t\x02")
        async with push(cluster, handler=handler) as consumer:
            await consumer.subscribe("T", Sql92("a > 5"))
            await until(lambda: seen == [b"x"])
            beat = cluster.broker.requests_of(RequestCode.HEART_BEAT)[-1]
            (data,) = HeartbeatData.decode(beat.body).consumer_data_set
            (wanted,) = (entry for entry in data.subscription_data_set if entry.topic == "T")
            assert (wanted.sub_string, wanted.expression_type, wanted.tags_set) == ("a > 5", "SQL92", [])


async def test_a_rejected_expression_is_not_subscribed() -> None:
    """The error is that of the broker."""
    async with running_cluster() as cluster, push(cluster) as consumer:
        cluster.broker.on(RequestCode.CHECK_CLIENT_CONFIG, refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "at 3"))
        with pytest.raises(BrokerError, match="at 3"):
            await consumer.subscribe("T", Sql92("a >"))
        assert consumer.statistics().queues == ()


async def test_a_broker_that_does_not_respond_delays_no_locks_of_other_brokers() -> None:
    """Each broker locks its own queues."""
    seen: set[str] = set()

    async def handler(message: MessageExt) -> None:
        seen.add(message.body.decode())

    async with running_cluster(brokers=2) as cluster:
        cluster.topics["T"] = 1
        for broker in cluster.brokers:
            broker.store("T", 0, broker.name.encode())
        cluster.brokers[1].on(RequestCode.LOCK_BATCH_MQ, refuse(ResponseCode.SYSTEM_ERROR))
        async with push(cluster, handler=handler, orderly=True) as consumer:
            await consumer.subscribe("T")
            await until(lambda: seen == {"broker-a"})
