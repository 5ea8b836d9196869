"""`scan_topic`: bounds, filters, errors, and the release of connections."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.compute as pc
import pytest

from skylarkmq import Credentials, MessageQueue, Sql92
from skylarkmq.arrow import RECORD_COLUMNS, InvalidBounds, scan_topic
from skylarkmq.clients.arrow.topic import range_reader
from skylarkmq.clients.arrow.topic.pull_connection import PullConnection
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageHeader
from tests.clients.cluster import Cluster, pulled, running_cluster
from tests.clients.peer import PeerConnection, silence

COUNT = 200


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Two brokers with two queues each, and 200 messages in each queue."""
    async with running_cluster(2) as running:
        addresses = {broker.name: BrokerData("c", broker.name, {0: broker.address}) for broker in running.brokers}
        info = ClusterInfo(broker_addr_table=addresses).encode()
        running.name_server.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=info))
        for broker in running.brokers:
            for number in range(COUNT):
                for queue_id in range(2):
                    broker.store("T", queue_id, b"%d" % number, f"TAGS\x01{number % 3}\x02KEYS\x01k{number}\x02")
        yield running


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[PullConnection]:
    """The connections for pulls that the test opens."""
    opened: list[PullConnection] = []

    def opening(*arguments: Any) -> PullConnection:
        opened.append(PullConnection(*arguments))
        return opened[-1]

    monkeypatch.setattr(range_reader, "PullConnection", opening)
    return opened


def is_open(connection: PullConnection) -> bool:
    return connection._socket.fileno() >= 0


async def read(cluster: Cluster, **arguments: Any) -> list[dict[str, Any]]:
    """Return the rows of topic T."""
    return await asyncio.to_thread(lambda: scan_topic(cluster.namesrv, "T", **arguments).read_all().to_pylist())


async def test_all_messages_of_all_queues_are_read(cluster: Cluster) -> None:
    """Queue by queue and broker by broker, each in its order."""
    rows = await read(cluster, columns=["brokerName", "queueId", "queueOffset", "body"])
    expected = [(broker.name, queue, n) for broker in cluster.brokers for queue in range(2) for n in range(COUNT)]
    assert [(row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows] == expected
    assert all(row["body"] == b"%d" % row["queueOffset"] for row in rows)


async def test_the_range_is_fixed_by_the_call(cluster: Cluster) -> None:
    """Messages that arrive later are not read."""
    reader = await asyncio.to_thread(scan_topic, cluster.namesrv, "T", columns=["queueOffset"])
    cluster.broker.store("T", 0, b"late")
    table = await asyncio.to_thread(reader.read_all)
    assert table.num_rows == 4 * COUNT


async def test_offsets_and_times_are_bounds(cluster: Cluster) -> None:
    """Queues without an offset are read completely."""
    first = MessageQueue("T", "broker-a", 0)
    rows = await read(cluster, start={first: 50}, end={first: 60}, columns=["brokerName", "queueId", "queueOffset"])
    offsets = [row["queueOffset"] for row in rows if (row["brokerName"], row["queueId"]) == ("broker-a", 0)]
    assert offsets == list(range(50, 60))
    assert len(rows) == 10 + 3 * COUNT
    assert await read(cluster, start="latest") == []
    hour = timedelta(hours=1)
    for broker in cluster.brokers:
        broker.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, nearest(broker.queues["T", 0]))
    now = datetime.now(UTC)
    assert await read(cluster, start=now + hour) == []
    assert len(await read(cluster, start=now - hour, end=now + hour)) == 4 * COUNT


def nearest(records: list[bytes]) -> Callable[..., RemotingCommand]:
    """Return a broker's search by time that always finds the last message; the client corrects it."""
    ext = {"offset": str(len(records) - 1)}
    return lambda *_: RemotingCommand.response(ext=ext)


async def test_subscription_and_filter_select_messages(cluster: Cluster) -> None:
    """Tags are compared as text, although the column is not returned; an Sql92 is sent to the broker."""
    rows = await read(cluster, subscription="0 || 2", columns=["queueOffset"])
    assert sorted({row["queueOffset"] % 3 for row in rows}) == [0, 2]
    rows = await read(cluster, filter=pc.field("key") == "k7", columns=["body"])
    assert rows == [{"body": b"7"}] * 4
    received: list[PullMessageHeader] = []
    usual = cluster.broker.handlers[RequestCode.PULL_MESSAGE]

    def recording(connection: PeerConnection, request: RemotingCommand) -> Any:
        received.append(request.header(PullMessageHeader))
        return usual(connection, request)

    cluster.broker.on(RequestCode.PULL_MESSAGE, recording)
    assert len(await read(cluster, subscription=Sql92("a > 1"), group="g")) == 4 * COUNT
    assert {(one.subscription, one.expression_type, one.consumer_group) for one in received} == {
        ("a > 1", "SQL92", "g")
    }


async def test_all_fields_of_a_record_are_columns(cluster: Cluster) -> None:
    """The columns are those of `scan_store`."""
    rows = await read(cluster, columns=RECORD_COLUMNS, decode=False)
    assert list(rows[0]) == list(RECORD_COLUMNS)
    assert rows[7]["properties"] == "TAGS\x011\x02KEYS\x01k7\x02"
    assert rows[7]["bornHost"] == "127.0.0.1:10911"


async def test_requests_are_signed(cluster: Cluster) -> None:
    """Credentials sign the pulls."""
    keys: set[str | None] = set()
    usual = cluster.broker.handlers[RequestCode.PULL_MESSAGE]

    def recording(connection: PeerConnection, request: RemotingCommand) -> Any:
        keys.add(request.ext_fields().get("AccessKey"))
        return usual(connection, request)

    cluster.broker.on(RequestCode.PULL_MESSAGE, recording)
    await read(cluster, credentials=Credentials("reader", "secret"))
    assert keys == {"reader"}


async def test_connections_are_closed_after_the_last_batch(cluster: Cluster, connections: list[PullConnection]) -> None:
    """One connection to each broker; none is kept, although the reader is still referenced."""
    reader = await asyncio.to_thread(scan_topic, cluster.namesrv, "T")
    await asyncio.to_thread(reader.read_all)
    assert [connection.address for connection in connections] == [broker.address for broker in cluster.brokers]
    assert not any(map(is_open, connections))
    assert not {address for address, _ in range_reader._idle} & {broker.address for broker in cluster.brokers}


@pytest.mark.parametrize("end", ["close", "with", "del"])
async def test_connections_are_closed_with_the_reader(
    cluster: Cluster, connections: list[PullConnection], end: str
) -> None:
    """The reader is closed, left, or collected in the middle of a topic."""
    for queue_id in range(2):
        for _ in range(40):
            cluster.broker.store("T", queue_id, bytes(200_000))

    def run() -> None:
        reader = scan_topic(cluster.namesrv, "T")
        assert reader.read_next_batch().num_rows
        assert any(map(is_open, connections))
        if end == "close":
            reader.close()
        elif end == "with":
            with reader:
                pass
        else:
            del reader
            gc.collect()
        assert not any(map(is_open, connections))

    await asyncio.to_thread(run)


async def test_lost_messages_end_the_stream_with_an_error(cluster: Cluster, connections: list[PullConnection]) -> None:
    """The text contains the range; with fail_on_data_loss=False, reading continues after it."""
    usual = cluster.broker.handlers[RequestCode.PULL_MESSAGE]

    def deleted(connection: PeerConnection, request: RemotingCommand) -> Any:
        if request.header(PullMessageHeader).queue_offset < 100:
            return RemotingCommand.response(ResponseCode.PULL_OFFSET_MOVED, ext=pulled(100))
        return usual(connection, request)

    cluster.broker.on(RequestCode.PULL_MESSAGE, deleted)
    with pytest.raises(OSError, match=r"DataLoss.*T@broker-a:0 from offset 0 to 100.*failOnDataLoss"):
        await read(cluster)
    assert not any(map(is_open, connections))
    assert len(await read(cluster, fail_on_data_loss=False)) == 4 * COUNT - 200


async def test_a_broker_that_stays_away_ends_the_stream_with_an_error(cluster: Cluster) -> None:
    """After broker_timeout_s without progress."""
    cluster.broker.on(RequestCode.PULL_MESSAGE, silence)
    with pytest.raises(OSError, match=r"broker-a at .* timed out"):
        await read(cluster, broker_timeout_s=0.3, pull_timeout_s=0.1)


async def test_errors_of_the_call_have_their_own_type(cluster: Cluster) -> None:
    """Offsets of queues that do not exist, and wrong arguments."""
    with pytest.raises(InvalidBounds, match="names queues that do not exist: T@broker-x:0"):
        await read(cluster, start={MessageQueue("T", "broker-x", 0): 1})
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"start": "first"}, "start must be earliest, latest, a time"),
        ({"end": "earliest"}, "end must be latest, a time"),
        ({"columns": ["offset"]}, "no column offset: did you mean"),
        ({"filter": pc.field("x") == 1}, "does not fit the columns"),
    ]
    for arguments, text in wrong:
        with pytest.raises(ValueError, match=text):
            await read(cluster, **arguments)
