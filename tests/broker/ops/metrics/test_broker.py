"""/metrics of a running broker: names, labels and values after known traffic."""

import asyncio
import errno
import logging
import socket
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from skylarkmq.broker.app.daemon import Broker
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import Machine, load_broker
from skylarkmq.broker.ops.catalogue import CATALOGUE, Kind, Scope
from skylarkmq.broker.store import message_store
from skylarkmq.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from skylarkmq.protocol.codes import VERSION, RequestCode
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.message import BatchRecord, encode_batch
from tests.harness.broker_parts import consumer
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw_peer import RawPeer
from tests.harness.scraped import Scraped, scrape
from tests.harness.stores import TestDisk

pytestmark = pytest.mark.daemon

SEND = {"a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": False}
PULL = {
    "consumerGroup": "CG", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "commitOffset": 0,
    "sysFlag": 4, "suspendTimeoutMillis": 0, "subVersion": 1, "subscription": "*",
}  # fmt: skip
NOT_ALWAYS = ("skylark_archive_", "skylark_replication_")
NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "h"}


class Running(NamedTuple):
    broker: Broker
    port: int
    page_port: int

    async def scrape(self, **asked: str) -> Scraped:
        return await scrape(self.page_port, **asked)


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def disk() -> TestDisk:
    return TestDisk()


@pytest.fixture
def start(tmp_path: Path, disk: TestDisk, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.setattr(message_store, "Disk", lambda: disk)

    @asynccontextmanager
    async def start(**settings: object) -> AsyncIterator[Running]:
        ports = dict(zip(("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort"), free_ports(3), strict=True))
        small = {"mappedFileSizeCommitLog": 65_536, "maxHashSlotNum": 100, "maxIndexNum": 400}
        chosen = {"storePathRootDir": tmp_path / "store", **small, **ports, **settings}
        machine = Machine(host_name="h", address=LOOPBACK, home=tmp_path, resolve=lambda host: host)
        broker = Broker(load_broker([Given(key, str(text), "test") for key, text in chosen.items()], machine).config)
        await broker.start()
        try:
            yield Running(broker, ports["listenPort"], ports["metricsPromExporterPort"])
        finally:
            await broker.stop()

    return start


async def send(peer: RawPeer, *bodies: bytes, topic: str = "T", queue_id: int = 0) -> None:
    for body in bodies:
        response = await peer.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": topic, "e": queue_id}, body)
        assert response.code == 0, response


async def join(peer: RawPeer, group: str = "CG", topic: str = "T") -> None:
    """Send a heartbeat of a consumer and a producer."""
    members = [consumer(subscribe(topic, "*", 1), group=group)]
    body = HeartbeatData("c1", [ProducerData("PG")], members).encode()
    peer.send_request(RequestCode.HEART_BEAT, body=body, language="JAVA", version=VERSION)
    while not (await peer.receive()).header["flag"] & 1:
        """Receive the response, after the group's notification."""


async def test_traffic_is_counted_by_topic_and_group(start: Start) -> None:
    """Messages and bytes in by topic and message type, out by topic and group, with RocketMQ's labels."""
    async with start() as running, await RawPeer.connect(running.port) as peer:
        await send(peer, b"a", b"b" * 2_000, b"c" * 10)
        response = await peer.call(RequestCode.PULL_MESSAGE, PULL)
        page = await running.scrape()
        labels = {"topic": "T", "message_type": "normal", "is_system": "false"}
        assert page.samples("rocketmq_messages_in_total", topic="T") == [(NODE | labels, 3)]
        assert page.value("rocketmq_throughput_in_total", topic="T") == len(response.body)
        assert page.value("rocketmq_message_size_bucket", topic="T", le="1024.0") == 2
        assert page.value("rocketmq_message_size_bucket", topic="T", le="+Inf") == 3
        assert page.value("rocketmq_message_size_sum", topic="T") == len(response.body)
        labels = {"topic": "T", "consumer_group": "CG", "is_system": "false"}
        assert page.samples("rocketmq_messages_out_total", topic="T") == [(NODE | labels, 3)]
        assert page.value("rocketmq_throughput_out_total", topic="T") == len(response.body)
        assert page.value("rocketmq_producer_offset", topic="T") == 3
        assert page.value("rocketmq_producer_tps", topic="T") > 0
        assert page.value("rocketmq_consumer_tps", topic="T", group="CG") > 0


async def test_ordered_messages_count_as_fifo(start: Start) -> None:
    """Messages with a sharding key, single or in a batch; all others count as normal."""
    async with start() as running, await RawPeer.connect(running.port) as peer:
        normal, ordered = "UNIQ_KEY\x01A\x02", "UNIQ_KEY\x01B\x02__SHARDINGKEY\x01k\x02"
        for properties in (normal, ordered, ordered, "X__SHARDINGKEY\x01k\x02" + normal):
            assert (await peer.call(RequestCode.SEND_MESSAGE_V2, SEND | {"i": properties}, b"abc")).code == 0
        batch = encode_batch(BatchRecord(0, b"abc", properties.encode()) for properties in (ordered, normal, ordered))
        assert (await peer.call(RequestCode.SEND_BATCH_MESSAGE, SEND | {"m": True}, batch)).code == 0
        page = await running.scrape()
        assert page.value("rocketmq_messages_in_total", topic="T", message_type="normal") == 3
        assert page.value("rocketmq_messages_in_total", topic="T", message_type="fifo") == 4
        sizes = [value for _, value in page.samples("rocketmq_throughput_in_total", topic="T")]
        assert sum(sizes) == running.broker.parts.store.max_physical_offset


async def test_requests_that_set_a_topic_are_timed(start: Start) -> None:
    """Until the topic is saved and announced; refused requests are counted separately."""
    topic = {
        "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
    }  # fmt: skip
    async with start() as running, await RawPeer.connect(running.port) as peer:
        for name, code in (("new", 0), ("new", 0), ("TBW102", 29)):
            response = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic | {"topic": name})
            assert response.code == code
        page = await running.scrape()
        name = "rocketmq_topic_create_execution_time_milliseconds_count"
        assert page.value(name, invocation_status="success", is_system="false") == 2
        assert page.value(name, invocation_status="failure", is_system="true") == 1


async def test_latencies_have_codes_and_outcome(start: Start) -> None:
    """Requests by their lower-case names; sends and pulls count when their response is written."""
    async with start() as running, await RawPeer.connect(running.port) as peer:
        await send(peer, b"a", b"b")
        await peer.call(RequestCode.PULL_MESSAGE, PULL)
        await peer.call(RequestCode.PULL_MESSAGE, PULL | {"topic": "nobody's"})
        page = await running.scrape()

        def count(request: str, response: str) -> float:
            name = "rocketmq_rpc_latency_milliseconds_count"
            return page.value(name, request_code=request, response_code=response, protocol_type="remoting")

        assert count("send_message_v2", "success") == 2
        assert count("pull_message", "success") == 1
        assert count("pull_message", "topic_not_exist") == 1
        (labels, _), *_ = page.samples("rocketmq_rpc_latency_milliseconds_bucket", request_code="pull_message")
        assert labels.keys() == {*CATALOGUE["rocketmq_rpc_latency_milliseconds"].all_labels, "le"}


async def test_lag_of_a_group(start: Start) -> None:
    """For groups with members: lag from the committed offset, in-flight up to the pulled offset, ready after it, with
    ages."""
    async with start() as running, await RawPeer.connect(running.port) as peer:
        await send(peer, b"a", b"b", b"c")
        await join(peer)
        await peer.call(RequestCode.PULL_MESSAGE, PULL | {"maxMsgNums": 2})
        running.broker.parts.tables.offsets.commit("CG", "T", 0, 1)
        page = await running.scrape()
        labels = {"consumer_group": "CG", "topic": "T", "is_retry": "false", "is_system": "false"}
        assert page.samples("rocketmq_consumer_lag_messages") == [(NODE | labels, 2)]
        assert page.value("rocketmq_consumer_inflight_messages", topic="T") == 1
        assert page.value("rocketmq_consumer_ready_messages", topic="T") == 1
        assert 0 <= page.value("rocketmq_consumer_lag_latency_milliseconds", topic="T") < 60_000
        assert page.value("rocketmq_consumer_offset", topic="T", group="CG") == 1
        assert page.value("rocketmq_group_diff", group="CG", countOfOnlineConsumers="1", msgModel="1") == 2
        running.broker.parts.tables.offsets.commit("CG", "T", 0, 3)
        page = await running.scrape()
        assert page.value("rocketmq_consumer_lag_messages", topic="T") == 0
        assert page.value("rocketmq_consumer_lag_latency_milliseconds", topic="T") == 0
        assert page.value("rocketmq_group_get_latency_by_storetime", topic="T", group="CG") == 0


async def test_connections_are_counted_by_language_and_version(start: Start) -> None:
    """Connections, not clients; the labels have no address and no client id."""
    async with start() as running, await RawPeer.connect(running.port) as peer:
        await join(peer)
        page = await running.scrape()
        kind = {"language": "java", "version": "v5_3_3", "protocol_type": "remoting"}
        assert page.samples("rocketmq_producer_connections") == [(NODE | kind, 1)]
        member = kind | {"consumer_group": "CG", "consume_mode": "push", "is_system": "false"}
        assert page.samples("rocketmq_consumer_connections") == [(NODE | member, 1)]
        assert page.value("rocketmq_group_count", group="CG", caddr="", localaddr="") == 1
        assert page.value("rocketmq_producer_count", group="PG") == 1
        assert "c1" not in page.text
        assert peer.address not in page.text


async def test_every_sample_is_in_the_catalogue(start: Start) -> None:
    """Names, kinds and label names equal the catalogue's; metrics without labels of their own are present,
    except those of `archiveHold` and of replication."""
    suffixes = {Kind.HISTOGRAM: ("_bucket", "_count", "_sum")}
    async with start() as running, await RawPeer.connect(running.port) as peer:
        await send(peer, b"a")
        await join(peer)
        await peer.call(RequestCode.PULL_MESSAGE, PULL)
        running.broker.parts.tables.offsets.commit("CG", "T", 0, 0)
        page = await running.scrape()
    expected = {name + suffix: row for name, row in CATALOGUE.items() for suffix in suffixes.get(row.kind, ("",))}
    found = [family for family in page.families if family.name.startswith(("rocketmq_", "skylark_"))]
    for family in found:
        for sample in family.samples:
            row = expected[sample.name]
            assert family.type == row.kind.value, family
            assert sample.labels.keys() - {"le"} == set(row.all_labels), sample
    always = {name for name, row in expected.items() if not row.labels and not name.startswith(NOT_ALWAYS)}
    assert always <= page.names()
    assert {"process_resident_memory_bytes", "python_gc_collections_total", "python_info"} <= page.names()


async def test_a_deleted_topic_loses_its_series(start: Start) -> None:
    """At once; a new topic with that name starts at 0."""
    async with start() as running, await RawPeer.connect(running.port) as peer:
        await send(peer, b"a", b"b", topic="gone")
        await peer.call(RequestCode.PULL_MESSAGE, PULL | {"topic": "gone"})
        running.broker.parts.tables.offsets.commit("CG", "gone", 0, 1)
        page = await running.scrape()
        assert page.samples("rocketmq_messages_in_total", topic="gone")
        assert page.samples("rocketmq_consumer_offset", topic="gone")
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "gone"})).code == 0
        assert '"gone"' not in (await running.scrape()).text
        await send(peer, b"a", topic="gone")
        page = await running.scrape()
        assert page.value("rocketmq_messages_in_total", topic="gone") == 1
        assert not page.samples("rocketmq_messages_out_total", topic="gone")


async def test_retries_and_dead_letters_belong_to_their_group(start: Start) -> None:
    """They do not count as traffic of topics; retries, offsets and dead letters are exported by group."""
    async with start() as running, await RawPeer.connect(running.port) as peer:
        running.broker.parts.tables.topics.create_for_group("%DLQ%CG")
        await send(peer, b"a", b"b", topic="%RETRY%CG")
        retried = SEND | {"b": "%RETRY%CG", "j": 20, "l": 16}
        assert (await peer.call(RequestCode.SEND_MESSAGE_V2, retried, b"c", version=VERSION)).code == 0
        page = await running.scrape()
        assert not page.samples("rocketmq_messages_in_total", topic="%RETRY%CG")
        assert page.value("rocketmq_send_back_nums", topic="%RETRY%CG", group="CG") == 2
        assert page.value("rocketmq_topic_retry_offset", topic="%RETRY%CG") == 2
        assert page.value("rocketmq_group_retrydiff", group="CG") == 2
        assert page.value("rocketmq_topic_dlq_offset", group="CG") == 1
        assert page.value("rocketmq_group_dlqdiff", group="CG") == 1
        assert page.value("rocketmq_send_to_dlq_messages_total", consumer_group="CG", topic="%RETRY%CG") == 1


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=1.0.0", "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"),
        (
            "application/openmetrics-text;version=1.0.0",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
        ),
    ],
)
async def test_a_scraper_gets_the_requested_format(start: Start, accept: str, content_type: str) -> None:
    """Prometheus's text format unless OpenMetrics is requested; the parsers accept both."""
    async with start() as running:
        page = await running.scrape(accept=accept)
        assert page.headers["content-type"] == content_type
        assert page.value("rocketmq_broker_permission") == 6
        assert page.text.endswith("# EOF\n") == ("openmetrics" in accept)
        assert page.text.count("# EOF") == ("openmetrics" in accept)


async def test_gzip_is_used_if_accepted(start: Start) -> None:
    """The same text, compressed."""
    async with start() as running:
        page = await running.scrape(encoding="deflate, gzip;q=0.8")
        assert page.headers["content-encoding"] == "gzip"
        assert int(page.headers["content-length"]) < len(page.text) / 4
        assert page.value("rocketmq_broker_permission") == 6
        assert "content-encoding" not in (await running.scrape(encoding="identity")).headers


async def test_a_read_only_store_can_be_scraped(start: Start, disk: TestDisk) -> None:
    """The metrics show that the broker refuses messages."""
    async with start() as running, await RawPeer.connect(running.port) as peer:
        await send(peer, b"a")
        assert (await running.scrape()).value("skylark_store_writable") == 1

        def refuse(call: str, path: str) -> None:
            if call == "pwrite" and "/commitlog/" in path:
                raise OSError(errno.ENOSPC, "full")

        disk.refuse = refuse
        assert (await peer.call(RequestCode.SEND_MESSAGE_V2, SEND, b"b")).code == 14
        page = await running.scrape()
        assert page.value("skylark_store_writable") == 0
        assert page.value("skylark_check", check="store") == 0
        assert page.value("skylark_store_failed_batches_total") == 1
        assert page.value("rocketmq_messages_in_total", topic="T") == 1
        failed = {"request_code": "send_message_v2", "response_code": "service_not_available"}
        assert page.value("rocketmq_rpc_latency_milliseconds_count", **failed) == 1


def status_of(address: str) -> int:
    with urllib.request.urlopen(address, timeout=WAIT_LIMIT_S) as response:
        status: int = response.status
        return status


async def test_metrics_can_be_turned_off(start: Start) -> None:
    """DISABLE removes the page and keeps the health pages."""
    async with start(metricsExporterType="DISABLE") as running:
        assert (await running.scrape()).status == 404
        assert await asyncio.to_thread(status_of, f"http://{LOOPBACK}:{running.page_port}/healthz") == 200


async def test_groups_of_metrics_can_be_turned_off_and_labels_added(start: Start) -> None:
    """RocketMQ's settings hide native metrics; metricsLabel adds labels to native metrics, not to the exporter's."""
    settings = {"enableRequestMetrics": "false", "metricsLabel": "zone:a,rack:7", "enableStatsMetrics": "false"}
    async with start(**settings) as running, await RawPeer.connect(running.port) as peer:
        await send(peer, b"a")
        page = await running.scrape()
        names = page.names()
        assert not {"rocketmq_messages_in_total", "rocketmq_message_size_count", "rocketmq_topic_number"} & names
        ((labels, _),) = page.samples("rocketmq_storage_size_bytes")
        assert (labels["zone"], labels["rack"]) == ("a", "7")
        ((labels, _),) = page.samples("rocketmq_producer_offset", topic="T")
        assert set(labels) == {*Scope.EXPORTER.labels, "topic"}


async def test_topics_beyond_the_limit_are_aggregated(start: Start) -> None:
    """The first keep their series; the others are added up in an overflow series, and counted."""
    async with start(metricsOtelCardinalityLimit=2) as running, await RawPeer.connect(running.port) as peer:
        for number in range(4):
            await send(peer, *[b"x"] * (number + 1), topic=f"T{number}")
        page = await running.scrape()
        counts = {labels["topic"]: value for labels, value in page.samples("rocketmq_messages_in_total")}
        assert counts == {"T0": 1, "T1": 2, "__overflow__": 7}
        again = await running.scrape()
        assert again.value("skylark_scrape_folded_total", metric="rocketmq_messages_in_total") == 2


async def test_a_scraper_that_does_not_read_blocks_nothing(start: Start) -> None:
    """Its text is kept; sends and other scrapes continue."""
    async with start() as running, await RawPeer.connect(running.port) as peer:
        with socket.create_connection((LOOPBACK, running.page_port)) as deaf:
            deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 8)
            await send(peer, b"a")
            for _ in range(3):
                assert (await running.scrape()).value("rocketmq_messages_in_total", topic="T") == 1


async def test_a_second_broker_of_a_host_uses_the_next_free_port(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker whose port of the health pages is not set starts although the default port is in use."""
    caplog.set_level(logging.INFO)
    machine = Machine(host_name="h", address=LOOPBACK, home=tmp_path, resolve=lambda host: host)
    settings = zip(("listenPort", "embeddedNamesrvPort"), map(str, free_ports(2)), strict=True)
    given = [Given(key, text, "test") for key, text in [*settings, ("storePathRootDir", str(tmp_path / "store"))]]
    config = load_broker(given, machine).config
    port = free_ports(1, beside=[1])[0]
    broker = Broker(msgspec.structs.replace(config, ops=msgspec.structs.replace(config.ops, port=port)), alone=False)
    with socket.socket() as taken:
        taken.bind((LOOPBACK, port))
        taken.listen()
        await broker.start()
        try:
            assert "skylark_store_writable" in (await scrape(port + 1)).text
        finally:
            await broker.stop()
    assert f"health pages url=http://{LOOPBACK}:{port + 1}/readyz" in caplog.text
