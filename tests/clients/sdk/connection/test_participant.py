"""Start and stop: no task is left, however an object ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from skylarkmq import (
    Admin,
    Client,
    ClientClosed,
    ClientError,
    ConsumeFrom,
    ConsumerSettings,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from skylarkmq.clients.sdk.connection.participant import Participant
from skylarkmq.protocol.codes import RequestCode
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import silence, until

FAST = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.02, rebalance_interval_s=0.05, stop_timeout_s=60)


async def checker(_: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


async def handle(_: MessageExt) -> None: ...


Make = Callable[[Cluster], Participant]
KINDS: dict[str, Make] = {
    "producer": lambda cluster: Producer("p", namesrv=cluster.namesrv, trace=True),
    "transactions": lambda cluster: TransactionProducer("p", namesrv=cluster.namesrv, checker=checker),
    "loop": lambda cluster: PushConsumer("g", namesrv=cluster.namesrv, settings=FAST),
    "handler": lambda cluster: PushConsumer("g", namesrv=cluster.namesrv, handler=handle, settings=FAST, trace=True),
    "orderly": lambda cluster: PushConsumer("g", namesrv=cluster.namesrv, handler=handle, orderly=True, settings=FAST),
    "pull": lambda cluster: PullConsumer("g", namesrv=cluster.namesrv, settings=FAST),
    "admin": lambda cluster: Admin(namesrv=cluster.namesrv),
}


@asynccontextmanager
async def nothing_left() -> AsyncIterator[Cluster]:
    """Yield a cluster; afterwards there are no more tasks than before."""
    before = asyncio.all_tasks()
    async with running_cluster() as cluster:
        cluster.topics |= {"T": 2, "%RETRY%g": 1, "RMQ_SYS_TRACE_TOPIC": 1}
        yield cluster
        named = [task for task in asyncio.all_tasks() - before if not task.get_name().startswith("Task-")]
        assert named == []  # the others may be those of the cluster, which ends next
    await until(lambda: asyncio.all_tasks() == before)


async def use(participant: Participant) -> None:
    """Make a call that leaves tasks and connections open for a while."""
    if isinstance(participant, TransactionProducer | Producer):
        await participant.send(Message("T", b"x"))
    elif isinstance(participant, PushConsumer | PullConsumer):
        await participant.subscribe("T")
        await until(lambda: participant.statistics().queues)
    else:
        assert isinstance(participant, Admin)
        assert len(await participant.queues("T")) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_no_task_is_left_after_a_stop(kind: str) -> None:
    """Also after a second one."""
    async with nothing_left() as cluster:
        participant = KINDS[kind](cluster)
        await participant.stop()  # it was not started
        async with participant:
            await use(participant)
            with pytest.raises(ClientClosed, match="runs already"):
                await participant.start()
        await participant.stop()
        with pytest.raises(ClientClosed, match="make another one"):
            await participant.start()


@pytest.mark.parametrize("kind", KINDS)
async def test_no_task_is_left_after_a_cancellation(kind: str) -> None:
    """A KeyboardInterrupt cancels the block in the same way, and so the stop begins."""
    async with nothing_left() as cluster:
        inside = asyncio.Event()

        async def service() -> None:
            async with KINDS[kind](cluster) as participant:
                await use(participant)
                inside.set()
                await asyncio.Event().wait()

        running = asyncio.create_task(service())
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_canceled_stop_waits_for_no_handler() -> None:
    """Handlers are canceled, acknowledged messages are committed, and the client is unregistered."""
    ended: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        if message.body == b"1":
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(message.body)

    async with nothing_left() as cluster:
        cluster.topics["T"] = 1
        for n in range(2):
            cluster.broker.store("T", 0, b"%d" % n)
        settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=3600, stop_timeout_s=60)
        consumer = PushConsumer(
            "g", namesrv=cluster.namesrv, handler=handler, consume_from=ConsumeFrom.FIRST, settings=settings
        )
        await consumer.start()
        await consumer.subscribe("T")
        await until(lambda: consumer.statistics().handled == 1 and consumer.statistics().unfinished == 1)
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0.01)
        assert not stopping.done()
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert ended == [b"1"]
        assert cluster.broker.committed("g", "T") == {0: 1}
        assert cluster.broker.requests_of(RequestCode.UNREGISTER_CLIENT)


async def test_a_stop_waits_for_sends_in_flight_unless_canceled() -> None:
    """A canceled stop abandons them."""
    async with nothing_left() as cluster:
        producer = Producer("p", namesrv=cluster.namesrv)
        await producer.start()
        await producer.send(Message("T", b"x"))
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, silence)
        send = producer.send_nowait(Message("T", b"x"))
        await cluster.broker.wait_requests(RequestCode.SEND_MESSAGE_V2, 2)
        stopping = asyncio.create_task(producer.stop())
        await asyncio.sleep(0.01)
        assert not stopping.done()
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert send.cancelled()


async def test_a_failed_start_leaves_no_task(tmp_path: Path) -> None:
    """An own client is closed; a shared one is not."""
    path = tmp_path / "offsets.json"
    path.write_bytes(b"\x00")
    async with nothing_left() as cluster:
        consumer = PushConsumer("g", namesrv=cluster.namesrv, broadcast=True, offsets_path=path)
        with pytest.raises(ClientError, match="Remove it"):
            await consumer.start()
        async with Client(cluster.namesrv) as client:
            with pytest.raises(ClientError, match="Remove it"):
                await PushConsumer("g", client=client, broadcast=True, offsets_path=path).start()
            async with Producer("p", client=client) as producer:
                await producer.send(Message("T", b"x"))


async def test_a_second_member_on_one_client_is_refused(tmp_path: Path) -> None:
    """It leaves no task, and its offsets file is free for another member. The first member continues."""
    path = tmp_path / "offsets.json"
    async with nothing_left() as cluster, Client(cluster.namesrv) as client:
        async with PushConsumer("g", client=client, handler=handle, settings=FAST) as first:
            second = PushConsumer("g", client=client, broadcast=True, offsets_path=path, trace=True)
            with pytest.raises(ValueError, match="give each member its own client"):
                await second.start()
            await second.stop()
            await use(first)
        async with PushConsumer("g", client=client, broadcast=True, offsets_path=path):
            pass
