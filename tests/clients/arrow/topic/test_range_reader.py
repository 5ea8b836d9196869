"""Reads of an executor, from a broker whose responses are late, out of order, small, or missing."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pyarrow as pa
import pytest

from skylarkmq.clients.arrow.topic import range_reader
from skylarkmq.clients.arrow.topic.data_loss import DataLoss
from skylarkmq.clients.arrow.topic.pull_frames import PullFrames
from skylarkmq.clients.arrow.topic.range_reader import ConnectionBroken, RangeReader, ReaderStatistics, Work
from skylarkmq.clients.arrow.topic.splitting import Range
from skylarkmq.clients.sdk.base.errors import BrokerError
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.spark.base.options import parse
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS, SourceOptions
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.serialize import decode_command
from tests.clients.cluster import Broker, Cluster, pulled, running_cluster
from tests.clients.peer import PeerConnection, refuse, silence

QUEUES = [MessageQueue("T", "broker-a", n) for n in range(2)]
COUNT = 500


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster() as running:
        running.name_server.on(
            RequestCode.GET_BROKER_CLUSTER_INFO,
            lambda *_: RemotingCommand.response(
                body=ClusterInfo(
                    broker_addr_table={"broker-a": BrokerData("c", "broker-a", {0: running.broker.address})}
                ).encode()
            ),
        )
        yield running
    for connection in range_reader._idle.values():
        connection.close()
    range_reader._idle.clear()


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    for number in range(COUNT):
        for queue in QUEUES:
            cluster.broker.store("T", queue.queue_id, b"%d-%d" % (queue.queue_id, number), f"TAGS\x01{number % 3}\x02")
    return cluster.broker


def options(cluster: Cluster, **given: str) -> SourceOptions:
    quick = {"pullTimeoutMs": "300", "brokerTimeoutMs": "2000", "fetchOffset.retryIntervalMs": "1"}
    return parse(SOURCE_OPTIONS, {"nameServer": cluster.namesrv, "subscribe": "T"} | quick | given)


async def read(
    cluster: Cluster, *ranges: Range, address: str | None = "", **given: str
) -> dict[MessageQueue, list[int]]:
    """Return the offsets read of each queue, in the order of the rows."""
    address = cluster.broker.address if address == "" else address
    work = Work("broker-a", address, ranges)

    def batches() -> list[pa.RecordBatch]:
        return list(RangeReader(options(cluster, **given), work).batches())

    offsets: dict[MessageQueue, list[int]] = {}
    for batch in await asyncio.to_thread(batches):
        for row in batch.to_pylist():
            queue = MessageQueue(row["topic"], row["brokerName"], row["queueId"])
            assert row["body"] == b"%d-%d" % (row["queueId"], row["queueOffset"])
            offsets.setdefault(queue, []).append(row["queueOffset"])
    return offsets


def everything(*ranges: Range) -> dict[MessageQueue, list[int]]:
    return {each.queue: list(range(each.begin, each.end)) for each in ranges}


BOTH = tuple(Range(queue, 3, COUNT - 5) for queue in QUEUES)


def found(broker: Broker, request: RemotingCommand, most: int = COUNT) -> RemotingCommand:
    """Return the immediate response of a broker with up to `most` messages."""
    header = request.header(PullMessageHeader)
    at = header.queue_offset
    records = broker.queues[header.topic, header.queue_id][at : at + min(most, header.max_msg_nums)]
    return RemotingCommand.response(ext=pulled(at + len(records), COUNT), body=b"".join(records))


async def test_ranges_are_read_in_order(cluster: Cluster, broker: Broker) -> None:
    """Each range is read from its begin to its end, and nothing else."""
    assert await read(cluster, *BOTH) == everything(*BOTH)


async def test_the_template_equals_the_typed_header(cluster: Cluster) -> None:
    """The template is filled at the right positions, signed or not."""
    made = options(cluster, subExpression="a || b%d", groupId="g")
    for credentials in (None, Credentials("k", "s")):
        frames = PullFrames(made, QUEUES[1], credentials)
        (frame,) = FrameDecoder().feed(memoryview(frames.frame(123, 7, 99)))
        command = decode_command(frame)
        assert command is not None
        assert (command.code, command.opaque) == (RequestCode.PULL_MESSAGE, 99)
        assert command.header(PullMessageHeader) == frames.header(123, 7)
        assert frames.header(123, 7).subscription == "a || b%d"


async def test_responses_out_of_order_are_reordered(cluster: Cluster, broker: Broker) -> None:
    """A multithreaded broker responds in any order; after small and empty responses the rest is requested."""
    chance = random.Random(5)

    async def late(connection: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(chance.random() * 0.004)
        return found(broker, request, chance.randrange(1, 33))

    broker.on(RequestCode.PULL_MESSAGE, late)
    assert await read(cluster, *BOTH) == everything(*BOTH)


async def test_a_connection_that_breaks_is_opened_again(cluster: Cluster, broker: Broker) -> None:
    """The connection breaks repeatedly; the requests in flight are repeated."""
    count = 0

    def breaking(connection: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        nonlocal count
        count += 1
        if count % 17 == 0:
            connection.transport.abort()
        return found(broker, request)

    broker.on(RequestCode.PULL_MESSAGE, breaking)
    assert await read(cluster, *BOTH) == everything(*BOTH)


async def test_a_broker_with_a_new_address_is_found_by_its_name(cluster: Cluster, broker: Broker) -> None:
    """The address is looked up, also if the task was planned without one."""
    assert await read(cluster, *BOTH, address="127.0.0.1:1") == everything(*BOTH)
    assert await read(cluster, *BOTH, address=None) == everything(*BOTH)


async def test_a_task_may_run_in_a_thread_with_an_event_loop(cluster: Cluster, broker: Broker) -> None:
    """As in a notebook: the lookup of the address uses the loop of the blocking SDK, not a new one."""

    async def cell() -> int:
        reader = RangeReader(options(cluster), Work("broker-a", None, BOTH))
        return sum(batch.num_rows for batch in reader.batches())

    assert await asyncio.to_thread(asyncio.run, cell()) == 2 * (COUNT - 8)


async def test_a_broker_that_does_not_respond_fails_the_task(cluster: Cluster, broker: Broker) -> None:
    """The task fails after the timeout; the error contains the broker's name."""
    broker.on(RequestCode.PULL_MESSAGE, silence)
    with pytest.raises(ConnectionBroken, match=r"broker broker-a at .* timed out"):
        await read(cluster, *BOTH, brokerTimeoutMs="500", pullTimeoutMs="200")


async def test_pulls_are_retried_while_the_broker_is_busy(cluster: Cluster, broker: Broker) -> None:
    """One pause covers all busy responses; the task fails if the broker stays busy."""
    left = 100

    def busy(connection: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        nonlocal left
        left -= 1
        return found(broker, request) if left < 0 else RemotingCommand.response(ResponseCode.SYSTEM_BUSY, "too much")

    broker.on(RequestCode.PULL_MESSAGE, busy)
    assert await read(cluster, *BOTH) == everything(*BOTH)
    left = 1 << 60
    with pytest.raises(ConnectionBroken, match="the broker stays busy: too much"):
        await read(cluster, *BOTH, brokerTimeoutMs="200")


async def test_a_rejected_pull_fails_with_its_remark(cluster: Cluster, broker: Broker) -> None:
    """A permanent error is not retried."""
    broker.on(RequestCode.PULL_MESSAGE, refuse(ResponseCode.NO_PERMISSION, "not you"))
    with pytest.raises(BrokerError, match=r"NO_PERMISSION \(16\): not you"):
        await read(cluster, *BOTH)


def answering(code: ResponseCode, below: int, following: int) -> Callable[..., object]:
    """Responses of a broker without messages below an offset."""

    def answer(broker: Broker) -> Callable[..., object]:
        usual = broker.handlers[RequestCode.PULL_MESSAGE]

        def pull(connection: PeerConnection, request: RemotingCommand) -> object:
            if request.header(PullMessageHeader).queue_offset < below:
                return RemotingCommand.response(code, ext=pulled(following))
            return usual(connection, request)

        return pull

    return answer


@pytest.mark.parametrize("code", [ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY])
async def test_deleted_messages_count_as_lost(cluster: Cluster, broker: Broker, code: ResponseCode) -> None:
    """The error contains the whole missing range; without failOnDataLoss, reading continues after it."""
    broker.on(RequestCode.PULL_MESSAGE, answering(code, 100, 100)(broker))  # type: ignore[arg-type]
    with pytest.raises(DataLoss, match=r"T@broker-a:0 from offset 3 to 100 \(excluded\): deleted"):
        await read(cluster, BOTH[0])
    assert await read(cluster, BOTH[0], failOnDataLoss="false") == everything(Range(QUEUES[0], 100, COUNT - 5))


async def test_a_gap_in_a_response_counts_as_lost(
    cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Every offset of a range is accounted for."""
    for number in (40, 41, 45):
        broker.queues["T", 0][number] = b""
    with pytest.raises(DataLoss, match=r"from offset 40 to 42 \(excluded\)"):
        await read(cluster, BOTH[0])
    rest = await read(cluster, BOTH[0], failOnDataLoss="false")
    assert rest == {QUEUES[0]: [n for n in range(3, COUNT - 5) if n not in (40, 41, 45)]}
    assert caplog.text.count("messages lost") == 2


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.PULL_NOT_FOUND])
async def test_a_missing_queue_counts_as_lost_after_retries(
    cluster: Cluster, broker: Broker, code: ResponseCode
) -> None:
    """Only after several responses that agree."""
    count = 0

    def gone(connection: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        nonlocal count
        count += 1
        return RemotingCommand.response(code, ext=pulled(request.header(PullMessageHeader).queue_offset))

    broker.on(RequestCode.PULL_MESSAGE, gone)
    one = Range(QUEUES[0], 0, 20)
    with pytest.raises(DataLoss, match=r"from offset 0 to 20"):
        await read(cluster, one)
    assert count == 4
    assert await read(cluster, one, failOnDataLoss="false") == {}


async def test_tags_are_compared_as_text(cluster: Cluster, broker: Broker) -> None:
    """The peer returns all messages, like a broker whose tags have equal hashes."""
    chosen = await read(cluster, *BOTH, subExpression="0 || 2")
    assert chosen == {q: [n for n in range(3, COUNT - 5) if n % 3 != 1] for q in QUEUES}


async def test_filtered_pulls_are_in_flight_together(
    cluster: Cluster, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several slots of a range at once: rows are in order and unique, although responses reach into the next slots."""
    monkeypatch.setattr(range_reader, "FILTERED_STEP", 50)
    together: list[int] = []
    under_way = 0

    async def filtered(connection: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        nonlocal under_way
        under_way += 1
        together.append(under_way)
        await asyncio.sleep(0)
        under_way -= 1
        at = request.header(PullMessageHeader).queue_offset
        wanted = [n for n in range(at, COUNT) if n % 3 != 1][:20]
        records = [broker.queues["T", request.header(PullMessageHeader).queue_id][n] for n in wanted]
        return RemotingCommand.response(ext=pulled(wanted[-1] + 1, COUNT), body=b"".join(records))

    broker.on(RequestCode.PULL_MESSAGE, filtered)
    chosen = await read(cluster, *BOTH, subExpression="0 || 2")
    assert chosen == {q: [n for n in range(3, COUNT - 5) if n % 3 != 1] for q in QUEUES}
    assert max(together) > 1


async def test_connections_are_kept_for_the_next_task(cluster: Cluster, broker: Broker) -> None:
    """One connection serves both tasks; a canceled task closes its own."""
    await read(cluster, *BOTH)
    await read(cluster, *BOTH)
    assert len(broker.connections) == 1
    reader = RangeReader(options(cluster), Work("broker-a", broker.address, BOTH))
    batches = reader.batches()
    await asyncio.to_thread(lambda: (next(batches), batches.close()))  # type: ignore[attr-defined]
    assert not range_reader._idle
    assert reader.statistics() == ReaderStatistics(rows=2 * (COUNT - 8), batches=1, pulls=32, breaks=0)


@pytest.mark.parametrize("size", [700 * 1024, 5 * 1024 * 1024])
async def test_the_buffer_grows_for_large_responses(cluster: Cluster, broker: Broker, size: int) -> None:
    """A response may be larger than the buffer."""
    body = bytes(size)
    for _ in range(9):
        broker.store("L", 0, body)
    broker.on(RequestCode.PULL_MESSAGE, lambda _, request: found(broker, request, 1))
    work = Work("broker-a", broker.address, (Range(MessageQueue("L", "broker-a", 0), 0, 9),))

    def bodies() -> list[bytes]:
        return [bytes(b) for batch in RangeReader(options(cluster), work).batches() for b in batch["body"].to_pylist()]

    assert await asyncio.to_thread(bodies) == [body] * 9
