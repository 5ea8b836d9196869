"""Sends: every check in order, with RocketMQ's codes and remarks, and the stored messages."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.app.sections.production import Production, ProductionConfig
from skylarkmq.broker.app.sections.tables import Tables, TablesConfig
from skylarkmq.broker.counters.put_latency import PutLatency
from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.metadata.consumer_offsets import OffsetsConfig
from skylarkmq.broker.metadata.limits import LimitsConfig
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig
from skylarkmq.broker.metadata.topics import TopicsConfig
from skylarkmq.broker.processors.send.checks import SendConfig
from skylarkmq.broker.remoting.admission import Pool, PoolLimits
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.store.files.config import DEFAULT_DELAY_LEVELS, FlushDiskType, StoreConfig, parse_delay_levels
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.message import BatchRecord, MessageExt, encode_batch
from skylarkmq.protocol.message_id import decode_offset_id, encode_host
from skylarkmq.protocol.record import decode
from skylarkmq.protocol.serialize import encode_command
from tests.harness.peer import Peer
from tests.harness.stores import TestDisk

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
HOST = encode_host("10.0.0.1", 10911)
NOW = 1_700_000_000_000


class Sends:
    """A send processor over a real store, and a peer."""

    def __init__(self, root: Path, disk: Disk | None = None, **settings: Any) -> None:
        fields = {field.name for field in msgspec.structs.fields(StoreConfig)}
        store_settings = {name: settings.pop(name) for name in fields & settings.keys()}
        self.store = MessageStore(
            StoreConfig(
                store_path_root_dir=root,
                store_host=HOST,
                **{"mapped_file_size_commit_log": 8 << 20} | store_settings,
            ),
            lambda: NOW,
            disk=disk,
        )
        self.store.load()
        self.store.start()
        tables = Tables(
            TablesConfig(
                LimitsConfig(),
                TopicsConfig(cluster_name="C", broker_name="b"),
                GroupsConfig(**settings.pop("groups", {})),
                OffsetsConfig(),
            ),
            lambda: NOW,
        )
        self.topics, self.groups = tables.topics, tables.groups
        self.topics.load(None)
        self.topics.update(TopicConfig("T", 4, 4))
        self.groups.load(None)
        self.pool = Pool("send", 10_000, settings.pop("pool_limits", PoolLimits()))
        self.orderly: set[str] = set()
        production = Production(
            ProductionConfig(
                SendConfig(broker_ip="10.0.0.1", **settings),
                max_message_size=4 << 20,
                cluster_name="C",
                broker_name="",
                region_id="R",
                trace_on=True,
                store_host=HOST,
            ),
            tables,
            self.store,
            Deferral(parse_delay_levels(DEFAULT_DELAY_LEVELS)),
            PutLatency(Latencies()),
            self.pool,
            self.orderly.__contains__,
            lambda: "MADE",
            lambda: NOW,
            Refusals(),
        )
        self.processor, self.messages = production.sends, production.messages
        self.dispatcher = Dispatcher()
        production.register(self.dispatcher)
        self.peer = Peer(self.dispatcher)
        production.attach(self.dispatcher, self.peer.selector)
        self.backpressure = production.backpressure

    def call(self, body: bytes = b"body", *, code: int = RequestCode.SEND_MESSAGE_V2, **fields: Any) -> RemotingCommand:
        return self.peer.call(send(body, code=code, **fields))

    def stored(self, response: RemotingCommand) -> list[MessageExt]:
        """Return the messages that a response names, read from the log."""
        messages = []
        for message_id in response.ext_fields()["msgId"].split(","):
            data = self.store.record_at(decode_offset_id(message_id)[2])
            assert data is not None
            messages += decode(data)
        return messages


def send(body: bytes = b"body", *, code: int = RequestCode.SEND_MESSAGE_V2, **fields: Any) -> RemotingCommand:
    header_type = SendMessageHeader if code == RequestCode.SEND_MESSAGE else SendMessageV2Header
    version = fields.pop("version", 479)
    header = msgspec.structs.replace(header_type("PG", "T", "TBW102", 4, 0, 0, NOW - 5, 7), **fields)
    command = RemotingCommand.request(code, header, body)
    command.version = version
    return command


@pytest.fixture
async def sends(tmp_path: Path) -> AsyncIterator[Sends]:
    sends = Sends(tmp_path)
    yield sends
    sends.store.close()


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_send_is_stored_as_sent(sends: Sends, code: int) -> None:
    """Both forms of the header; the response has the message's offsets."""
    response = sends.call(b"payload", code=code, queue_id=2, properties="KEYS\x01k\x02UNIQ_KEY\x01U\x02TAGS\x01a")
    assert (response.code, response.remark, bytes(response.body)) == (0, None, b"")
    ext = response.ext_fields()
    assert {name: ext[name] for name in ("queueId", "queueOffset", "transactionId", "MSG_REGION", "TRACE_ON")} == {
        "queueId": "2", "queueOffset": "0", "transactionId": "U", "MSG_REGION": "R", "TRACE_ON": "true",
    }  # fmt: skip
    (message,) = sends.stored(response)
    assert (message.topic, message.queue_id, message.body, message.flag) == ("T", 2, b"payload", 7)
    assert message.properties == {"KEYS": "k", "UNIQ_KEY": "U", "TAGS": "a", "CLUSTER": "C"}
    assert (message.born_timestamp, message.born_host) == (NOW - 5, ("127.0.0.9", 4321))
    assert message.store_host == ("10.0.0.1", 10911)


async def test_all_sends_of_a_read_get_a_response_in_its_iteration(sends: Sends) -> None:
    """One hundred frames in one read: one hundred responses, offsets in order."""
    sends.peer.send(*(send(b"%d" % n, queue_id=n % 2) for n in range(100)))
    offsets = [(a.opaque, int(a.ext_fields()["queueOffset"])) for a in sends.peer.received]
    assert offsets == [(n + 1, n // 2) for n in range(100)]


async def test_fast_path_sends_and_others_keep_their_order(sends: Sends) -> None:
    """A send without a unique key is stored between the fast-path sends before and after it."""
    common = "UNIQ_KEY\x01%d\x02TAGS\x01a"
    bodies = [b"%d" % n for n in range(9)]
    sends.peer.send(*(send(body, properties="" if n % 3 == 1 else common % n) for n, body in enumerate(bodies)))
    responses = {each.opaque: each for each in sends.peer.received}
    messages = [message for opaque in sorted(responses) for message in sends.stored(responses[opaque])]
    assert [(message.body, message.queue_offset) for message in messages] == [(b, n) for n, b in enumerate(bodies)]
    assert [m.physical_offset for m in messages] == sorted(m.physical_offset for m in messages)


async def test_another_request_sees_the_sends_before_it(sends: Sends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within one read, too; consecutive fast-path sends are put together."""
    happened: list[str] = []
    put_run = sends.store.put_run

    def put(appends: Sequence[Append]) -> None:
        happened.append(f"put {len(appends)}")
        put_run(appends)

    def look(*_: object) -> RemotingCommand:
        happened.append("looked")
        return RemotingCommand.response()

    sends.call()  # the topic is known
    monkeypatch.setattr(sends.store, "put_run", put)
    sends.dispatcher.register([RequestCode.DELETE_TOPIC_IN_BROKER], look, sends.pool)
    common = [send(properties=f"UNIQ_KEY\x01{n}\x02TAGS\x01a") for n in range(5)]
    sends.peer.send(*common[:3], RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER), *common[3:])
    assert happened == ["put 3", "looked", "put 2"]


async def test_failed_fast_path_sends_get_a_response(sends: Sends, monkeypatch: pytest.MonkeyPatch) -> None:
    """SYSTEM_ERROR, whatever failed; the next sends are stored."""
    properties = "UNIQ_KEY\x01U\x02TAGS\x01a"
    sends.call()  # the topic is known
    sends.peer.received.clear()
    with monkeypatch.context() as broken:
        broken.setattr(sends.store, "put_run", lambda _: 1 / 0)
        sends.peer.send(*(send(properties=properties) for _ in range(3)))
    assert [(response.code, response.remark) for response in sends.peer.received] == [(1, "UNKNOWN_ERROR")] * 3
    assert sends.call(properties=properties).code == 0


@pytest.mark.parametrize("dialect", [ROCKETMQ, MSGPACK])
async def test_the_response_has_the_dialect_of_the_request(sends: Sends, dialect: int) -> None:
    """A binary request gets a binary response with the same fields, and one in MessagePack its own."""
    command = send()
    command.dialect = dialect
    response = sends.peer.call(command)
    assert response.dialect == dialect
    assert set(response.ext_fields()) == {"msgId", "queueId", "queueOffset", "transactionId", "MSG_REGION", "TRACE_ON"}


async def test_oneway_sends_are_stored_and_get_no_response(sends: Sends) -> None:
    """Neither success nor failure causes a response."""
    command, wrong = send(), send(topic="no spaces please")
    command.flag = wrong.flag = 2
    sends.peer.send(command, wrong)
    assert sends.peer.received == []
    assert sends.store.max_offset("T", 0) == 1


async def test_empty_bodies_are_stored(sends: Sends) -> None:
    """A body of zero bytes is valid."""
    (message,) = sends.stored(sends.call(b""))
    assert message.body == b""


async def test_the_broker_chooses_a_queue_on_request(sends: Sends) -> None:
    """queueId -1 selects a random queue."""
    queues = {int(sends.call(queue_id=-1).ext_fields()["queueId"]) for _ in range(100)}
    assert queues == {0, 1, 2, 3}


TOPIC_TEXT = (
    "TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=4, perm=RW-, topicFilterType=SINGLE_TAG, "
    "topicSysFlag=0, order=false, attributes={}]"
)
ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B, "
    "msg properties length limit 32KB."
)


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": " "}, 29, "The specified topic is blank."),
        ({"topic": "a b"}, 29, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ({"topic": "L" * 128}, 29, "The specified topic is longer than topic max length."),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"topic": "New", "default_topic": "T"}, 17, "topic[New] not exist, apply first please!" + FAQ),
        ({"topic": "New", "default_topic": "None"}, 17, "topic[New] not exist, apply first please!" + FAQ),
        ({"queue_id": 4}, 29, f"request queueId[4] is illegal, {TOPIC_TEXT} Producer: 127.0.0.9:4321"),
        ({"body": bytes(4_194_305)}, 13, ILLEGAL),
        ({"properties": "a\x01" + "x" * 32_768}, 13, ILLEGAL),
    ],
)  # fmt: skip
async def test_an_invalid_send_is_refused(sends: Sends, fields: dict[str, Any], code: int, remark: str) -> None:
    """With code and remark, and the region in the ext fields; nothing is stored."""
    sends.peer.selector.read_scheduler.receive_buffer = memoryview(bytearray(8 << 20))
    response = sends.call(fields.pop("body", b"body"), **fields)
    assert (response.code, response.remark) == (code, remark)
    assert response.ext_fields() == {"MSG_REGION": "R", "TRACE_ON": "true"}
    assert sends.store.max_physical_offset == 0


async def test_the_largest_body_is_stored(sends: Sends) -> None:
    """The limit applies to the body: exactly maxMessageSize is accepted."""
    sends.peer.selector.read_scheduler.receive_buffer = memoryview(bytearray(8 << 20))
    assert sends.call(bytes(4_194_304)).code == 0


async def test_a_missing_required_field_is_an_error(sends: Sends) -> None:
    """SYSTEM_ERROR (1) without region, as for all failures before the checks."""
    command = send()
    assert command.ext is not None
    del command.ext["b"]
    response = sends.peer.call(command)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.ext_fields() == {}


@pytest.mark.parametrize(("wanted", "queues"), [(4, 4), (100, 8), (-1, 0)])
async def test_unknown_topics_are_created_from_the_template(sends: Sends, wanted: int, queues: int) -> None:
    """With the requested number of queues, at most the template's, and without its INHERIT bit."""
    sends.call(topic="New", default_topic_queue_nums=wanted)
    topic = sends.topics.find("New")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (queues, queues, 6)


async def test_sends_before_the_start_time_are_refused(tmp_path: Path) -> None:
    """startAcceptSendRequestTimeStamp."""
    sends = Sends(tmp_path, start_accept_ms=NOW + 1000)
    response = sends.call()
    assert response.code == 1
    assert (response.remark or "").startswith("broker unable to service, until 20")
    sends.store.close()


async def test_a_read_only_broker_refuses_order_topics_only(tmp_path: Path) -> None:
    """The broker's permission is checked for order topics only, after the start time."""
    sends = Sends(tmp_path, broker_permission=4)
    sends.topics.update(TopicConfig("Ordered", 4, 4, order=True))
    assert sends.call().code == 0
    response = sends.call(topic="Ordered")
    assert (response.code, response.remark) == (16, "the broker[10.0.0.1] sending message is forbidden")
    sends.store.close()


async def test_retries_of_clients_are_stored_in_the_retry_topic_up_to_their_limit(sends: Sends) -> None:
    """The group's 16 retries, or the header's limit from version 121 on; then the dead letter topic."""
    cases = [(16, None, 479, "%RETRY%g"), (17, None, 479, "%DLQ%g"), (4, 3, 479, "%DLQ%g"), (4, 3, 120, "%RETRY%g")]
    for tried, limit, version, topic in cases:
        response = sends.call(topic="%RETRY%g", reconsume_times=tried, max_reconsume_times=limit, version=version)
        (message,) = sends.stored(response)
        assert (message.topic, message.reconsume_times, message.queue_id) == (topic, tried, 0)


async def test_retries_of_an_orderly_group_are_dead_letters(sends: Sends) -> None:
    """Such a group stops at a failed message instead of receiving it later; a dead letter is not delayed."""
    properties = "KEYS\x01k\x02DELAY\x013\x02TIMER_DELAY_SEC\x019\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01U"
    sends.orderly.add("g")
    response = sends.call(topic="%RETRY%g", queue_id=0, properties=properties)
    (message,) = sends.stored(response)
    assert (message.topic, message.properties["DELAY"], message.properties["KEYS"]) == ("%DLQ%g", "-1", "k")
    assert sends.call(topic="%RETRY%h", properties="DELAY\x013\x02UNIQ_KEY\x01U").code == 0
    assert sends.store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 1


async def test_retries_of_an_unknown_group_are_refused(tmp_path: Path) -> None:
    """SUBSCRIPTION_GROUP_NOT_EXIST (26) if groups are not created automatically."""
    sends = Sends(tmp_path, groups={"auto_create_subscription_group": False})
    response = sends.call(topic="%RETRY%g")
    assert (response.code, response.remark) == (26, "subscription group not exist, g " + FAQ)
    sends.store.close()


BATCH = [BatchRecord(n, b"b%d" % n, b"UNIQ_KEY\x01U%d\x02TAGS\x01t%d" % (n, n)) for n in range(3)]


@pytest.mark.parametrize("code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_batch_is_stored_message_by_message(sends: Sends, code: int) -> None:
    """Consecutive offsets, each with its own properties; one response with all ids."""
    response = sends.call(encode_batch(BATCH), code=code, batch=True, queue_id=1, properties="WAIT\x01true")
    assert response.code == 0
    assert response.ext_fields()["queueOffset"] == "0"
    messages = sends.stored(response)
    assert [(m.body, m.flag, m.tags, m.queue_offset, m.queue_id) for m in messages] == [
        (b"b%d" % n, n, f"t{n}", n, 1) for n in range(3)
    ]
    assert all(m.properties["WAIT"] == "true" for m in messages)


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "%RETRY%g"}, 13, "batch request does not support retry group %RETRY%g"),
        ({"sys_flag": 4}, 13, ILLEGAL),
        ({"body": b""}, 13, ILLEGAL),
        ({"body": b"damaged"}, 1, None),
    ],
)
async def test_an_invalid_batch_is_refused(sends: Sends, fields: dict[str, Any], code: int, remark: str | None) -> None:
    """A batch is stored whole or not at all."""
    response = sends.call(fields.pop("body", encode_batch(BATCH)), batch=True, **fields)
    assert response.code == code
    assert remark is None or response.remark == remark
    assert sends.store.max_physical_offset == 0


async def test_a_batch_flag_of_1_is_no_batch(sends: Sends) -> None:
    """The C++ client's "1" is not true: one message, whose body is the encoded batch."""
    body = encode_batch(BATCH)
    command = send(body, code=RequestCode.SEND_MESSAGE)
    assert command.ext is not None
    command.ext["batch"] = "1"
    (message,) = sends.stored(sends.peer.call(command))
    assert message.body == body


async def test_transaction_flags_without_a_transaction(sends: Sends) -> None:
    """Prepared and rolled-back records get no queue offset of their own."""
    offsets = [sends.call(sys_flag=kind).ext_fields()["queueOffset"] for kind in (0, 4, 8, 12, 0)]
    assert offsets == ["0", "0", "1", "0", "2"]


async def test_multi_tag_topics_mark_their_messages(sends: Sends) -> None:
    """The topic's filter type is in the message's sysFlag."""
    topic = TopicConfig.decode(b'{"topicName":"M","topicFilterType":"MULTI_TAG","readQueueNums":1,"writeQueueNums":1}')
    sends.topics.update(topic)
    (message,) = sends.stored(sends.call(topic="M"))
    assert message.sys_flag & 2


async def test_a_closed_store_refuses_a_send(sends: Sends) -> None:
    """SERVICE_NOT_AVAILABLE (14), with the disk's state in the remark."""
    sends.store.close()
    response = sends.call()
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (response.remark or "").startswith("service not available now. It may be caused by one of the following")


async def test_under_sync_flush_the_response_waits_for_the_flush(tmp_path: Path) -> None:
    """The send keeps its slot in the pool until then."""
    sends = Sends(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    sends.peer.send(send(), send())
    assert (sends.peer.received, sends.pool.pending) == ([], 2)
    sends.store.close()
    assert [response.code for response in sends.peer.take()] == [0, 0]
    assert sends.pool.pending == 0


async def test_a_send_that_waits_for_the_flush_releases_its_body(tmp_path: Path) -> None:
    """Large bodies of many producers would fill the memory while the disk is slow; responses do not need them."""
    disk = TestDisk()
    sends = Sends(tmp_path, disk, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    disk.syncs.clear()
    data = encode_command(send(b"x" * 100_000))
    sends.peer.send_bytes(data[:50_000])
    sends.peer.send_bytes(data[50_000:])
    batch = encode_batch([BatchRecord(0, b"y" * 1_000, b"")])
    sends.peer.send(send(batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
    assert (sends.pool.pending, sends.peer.received) == (2, [])
    commits = sends.store._durability.log._waiting._hidden
    assert [bytes(append.body) for commit in commits for append in commit.appends] == [b"", b""]
    disk.syncs.set()
    sends.store.close()
    assert [response.code for response in sends.peer.take()] == [0, 0]


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_delayed_send_is_stored_in_the_queue_of_its_level(sends: Sends, code: int) -> None:
    """The response has the requested queue, the offset in the queue of the level, and the record's offset id."""
    sends.call(properties="DELAY\x013\x02")
    response = sends.call(b"later", code=code, queue_id=2, properties="UNIQ_KEY\x01U\x02TAGS\x01a\x02DELAY\x013\x02")
    ext = response.ext_fields()
    assert (response.code, ext["queueId"], ext["queueOffset"], ext["transactionId"]) == (0, "2", "1", "U")
    (message,) = sends.stored(response)
    assert (message.topic, message.queue_id, message.body) == ("SCHEDULE_TOPIC_XXXX", 2, b"later")
    assert message.properties == {
        "UNIQ_KEY": "U", "TAGS": "a", "DELAY": "3", "CLUSTER": "C", "REAL_TOPIC": "T", "REAL_QID": "2",
    }  # fmt: skip
    assert sends.store.max_offset("T", 2) is None
    assert sends.store.traffic()["SCHEDULE_TOPIC_XXXX"].by_message_type().keys() == {"delay"}


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("DELAY\x01soon\x02", ILLEGAL),
        ("TIMER_DELAY_SEC\x013\x02", None),
        ("TRAN_MSG\x01true\x02PGROUP\x01g\x02", None),
    ],
)
async def test_an_invalid_deferral_is_refused(sends: Sends, properties: str, remark: str | None) -> None:
    """Otherwise the message would be delivered too early."""
    response = sends.call(properties=properties)
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert remark is None or response.remark == remark
    assert response.ext_fields() == {"MSG_REGION": "R", "TRACE_ON": "true"}
    assert sends.store.max_physical_offset == 0


@pytest.mark.parametrize("is_in_record", [True, False])
async def test_a_batch_cannot_be_delayed(sends: Sends, *, is_in_record: bool) -> None:
    """Neither by the batch's own properties nor by those of one message."""
    own, shared = (b"DELAY\x011", "") if is_in_record else (b"", "DELAY\x011\x02")
    response = sends.call(encode_batch([BatchRecord(0, b"b", own)]), batch=True, properties=shared)
    assert (response.code, response.remark) == (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL)
    assert sends.store.max_physical_offset == 0


# ---------------------------------------------------------------------------------------------- a disk that is too slow


async def test_producers_are_paused_while_the_disk_is_too_slow(tmp_path: Path) -> None:
    """A producer that sends while too much is unflushed is not read from until the flush has caught up; others are, and
    every send gets a response."""
    disk = TestDisk()
    sends = Sends(tmp_path, disk, flush_disk_type=FlushDiskType.SYNC_FLUSH, flush_lag_limit=5_000)
    consumer = Peer(sends.dispatcher, sends.peer.selector, ("127.0.0.9", 4322))
    disk.syncs.clear()
    sends.peer.send(send(b"a" * 3_000))
    assert (sends.peer.transport.reading, consumer.transport.reading) == (True, True)
    sends.peer.send(send(b"b" * 3_000), send(b"c" * 3_000))
    assert (sends.peer.transport.reading, consumer.transport.reading) == (False, True)
    await asyncio.sleep(0)
    sends.peer.selector.registry.close_idle(asyncio.get_running_loop().time() + 1_000)
    assert not sends.peer.transport.closing  # the idle timeout does not close a paused connection
    assert sends.peer.received == []
    disk.syncs.set()
    flusher = sends.store._durability.log._flusher
    assert flusher is not None
    flusher.wait_idle()
    sends.store.step(NOW)
    sends.peer.selector.pending_writes.flush()
    sends.peer.take()
    assert (sends.peer.transport.reading, consumer.transport.reading) == (True, True)
    assert [response.code for response in sends.peer.received] == [ResponseCode.SUCCESS] * 3
    sends.store.close()


class Lagging:
    """Sends to a store whose log is flushed by the test; 5,000 unflushed bytes are too many."""

    def __init__(self, root: Path, pool_limits: PoolLimits) -> None:
        self.disk = TestDisk()
        sends = Sends(
            root, self.disk, flush_lag_limit=5_000, flush_interval_commit_log=600_000, pool_limits=pool_limits
        )
        self.sends = sends
        self.late = Peer(sends.dispatcher, sends.peer.selector, ("127.0.0.9", 4322))
        self.disk.syncs.clear()
        sends.peer.send(send(b"a" * 6_000))
        assert [response.code for response in sends.peer.take() or sends.peer.received] == [ResponseCode.SUCCESS]

    def catch_up(self) -> None:
        """Flush the log, and notify the store."""
        self.disk.syncs.set()
        flusher = self.sends.store._durability.log._flusher
        assert flusher is not None
        flusher.wait_idle()
        self.sends.store.step(NOW)
        self.sends.peer.selector.pending_writes.flush()


async def test_sends_that_were_read_wait_for_the_disk(tmp_path: Path) -> None:
    """They are neither stored nor refused; their producer is paused, and they are stored once the flush catches up."""
    it = Lagging(tmp_path, PoolLimits())
    end = it.sends.store.max_physical_offset
    it.late.send(send(b"b"), send(b"c"))
    assert (it.late.received, it.late.transport.reading) == ([], False)
    assert (it.sends.pool.pending, it.sends.store.max_physical_offset) == (2, end)
    assert repr(it.sends.backpressure) == "<SendBackpressure paused>"
    it.catch_up()
    assert [response.code for response in it.late.take()] == [ResponseCode.SUCCESS] * 2
    assert (it.sends.pool.pending, it.late.transport.reading) == (0, True)
    assert it.sends.store.max_offset("T", 0) == 3
    assert repr(it.sends.backpressure) == "<SendBackpressure running>"
    it.sends.store.close()


async def test_a_send_that_waits_too_long_for_the_disk_is_refused(tmp_path: Path) -> None:
    """With the flush lag and its limit; nothing of it is stored, before or after."""
    it = Lagging(tmp_path, PoolLimits(wait_ms=200))
    it.late.send(send(b"b"))
    loop = asyncio.get_running_loop()
    it.sends.pool._deferred[0] = it.sends.pool._deferred[0]._replace(since_s=loop.time() - 1)
    it.sends.dispatcher._refuse_overdue(it.sends.pool)
    (response,) = it.late.take()
    busy = r"\[OVERLOAD\]system busy, start flow control for a while"
    remark = rf"{busy}, flush behind {it.sends.store.flush.lag} bytes, limit 5000"
    assert response.code == ResponseCode.SYSTEM_BUSY
    assert re.fullmatch(remark, response.remark or "")
    assert not it.late.transport.reading
    it.catch_up()
    assert it.late.take() == []
    assert (it.sends.pool.pending, it.late.transport.reading) == (0, True)
    assert it.sends.store.max_offset("T", 0) == 1
    assert it.sends.pool.statistics().rejected_by_wait == 1
    it.sends.store.close()


async def test_a_waiting_send_of_a_closed_connection_is_dropped(tmp_path: Path) -> None:
    """There is no response that could confirm it."""
    it = Lagging(tmp_path, PoolLimits())
    it.late.send(send(b"b"))
    it.late.disconnect()
    it.catch_up()
    assert (it.sends.pool.pending, it.sends.store.max_offset("T", 0)) == (0, 1)
    it.sends.store.close()


async def test_a_failed_disk_ends_the_wait(tmp_path: Path) -> None:
    """Waiting sends are refused as by a read-only store."""
    it = Lagging(tmp_path, PoolLimits())
    it.late.send(send(b"b"))
    it.sends.store._durability.log._give_up(OSError(5, "gone"))
    assert [response.code for response in it.late.take()] == [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert it.late.transport.reading
    it.disk.syncs.set()
    it.sends.store.close()


async def test_a_pool_without_buffers_refuses_at_once(tmp_path: Path) -> None:
    """With fastFailIfNoBufferInStorePool a send is SYSTEM_BUSY while every buffer waits for the disk."""
    sends = Sends(
        tmp_path,
        mapped_file_size_commit_log=4_096,
        transient_store_pool_enable=True,
        transient_store_pool_size=2,
        fast_fail_if_no_buffer_in_store_pool=True,
        wake_commit_when_put_message=False,
        commit_interval_commit_log=600_000,
    )
    assert [sends.call(b"x" * 3_000).code for _ in range(2)] == [ResponseCode.SUCCESS] * 2
    busy = sends.call(b"x" * 3_000)
    remark = "[REJECTREQUEST]system busy, start flow control for a while"
    assert (busy.code, busy.remark) == (ResponseCode.SYSTEM_BUSY, remark)
    sends.store.close()


async def test_a_topic_that_stores_its_limit_refuses_sends(sends: Sends) -> None:
    """One byte below the limit a send is stored, at the limit it is refused with 14; other topics are not affected;
    without the attribute the topic accepts sends again."""

    def limit(most: int) -> None:
        sends.topics.update(TopicConfig("T", 4, 4, attributes={"retention.bytes": str(most)}))

    def stored() -> int:
        counted: list[int] = []
        now_ms = NOW
        while not counted:
            now_ms += 1_000
            sends.store.step(now_ms)
            counted += filter(None, [sends.store.stored_bytes.of("T")])
        return counted[0]

    for _ in range(3):
        assert sends.call(queue_id=1).code == 0
    assert sends.store.stored_bytes.of("T") is None
    size = stored()
    limit(size + 1)
    assert sends.call(queue_id=2).code == 0
    refused = sends.call(queue_id=2)
    total = size // 3 * 4
    assert (refused.code, refused.remark) == (
        14,
        f"service not available now, topic[T] stores {total} bytes, retention.bytes={size + 1}",
    )
    assert sends.call(topic="Other").code == 0
    assert sends.store.stored_bytes.of("T") == total
    limit(total)
    assert sends.call().code == 14
    limit(total + 1)
    assert sends.call().code == 0
    sends.topics.update(TopicConfig("T", 4, 4))
    assert sends.call().code == 0
