"""The owner of orderly queues is killed: the queues move when its locks expire, without a loss and in order."""

import asyncio
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest

from skylarkmq import Admin, ConsumeFrom, ConsumerSettings, Message, MessageExt, Producer, PushConsumer
from skylarkmq.broker.app.in_process import InProcessBroker, running
from tests.clients.peer import until

pytestmark = pytest.mark.daemon

QUEUES = 4
LOCK_MS = 1000
MEMBER = """
import asyncio, sys
from skylarkmq import ConsumeFrom, ConsumerSettings, PushConsumer

async def handle(message):
    print(message.queue_id, message.body.decode(), flush=True)

async def main():
    settings = ConsumerSettings(lock_renewal_s=0.2, lock_life_s=0.5, commit_interval_s=0.05)
    async with PushConsumer(
        "g", namesrv=sys.argv[1], handler=handle, orderly=True, consume_from=ConsumeFrom.FIRST, settings=settings
    ) as consumer:
        await consumer.subscribe("T")
        await consumer.wait_stopped()

asyncio.run(main())
"""


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker"), {"rebalanceLockMaxLiveTime": LOCK_MS}) as broker:
        yield broker


async def test_queues_of_a_killed_owner_continue_at_its_committed_offsets(broker: InProcessBroker) -> None:
    """Each queue continues without a gap and in order. Acknowledged messages above the committed offset may be
    redelivered."""
    seen: defaultdict[int, list[int]] = defaultdict(list)

    async def handle(message: MessageExt) -> None:
        seen[message.queue_id].append(int(message.body))

    settings = ConsumerSettings(lock_renewal_s=0.2, lock_life_s=0.5, rebalance_interval_s=0.2, commit_interval_s=0.05)
    async with Admin(namesrv=broker.namesrv) as admin, Producer("p", namesrv=broker.namesrv) as producer:
        await admin.create_topic("T", queues=QUEUES)
        queues = await producer.publish_queues("T")

        async def send(numbers: range) -> None:
            for n in numbers:
                await producer.send(Message("T", b"%d" % n), queue=queues[n % QUEUES])

        await send(range(40))
        owner = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MEMBER, broker.namesrv, stdout=asyncio.subprocess.PIPE
        )
        assert owner.stdout is not None
        before: defaultdict[int, list[int]] = defaultdict(list)
        for _ in range(40):
            queue, number = map(int, (await owner.stdout.readline()).split())
            before[queue].append(number)
        async with PushConsumer(
            "g", namesrv=broker.namesrv, handler=handle, orderly=True, consume_from=ConsumeFrom.FIRST, settings=settings
        ) as successor:
            await successor.subscribe("T")
            await until(lambda: owned(successor) == QUEUES // 2)
            owner.send_signal(signal.SIGKILL)
            await owner.wait()
            await send(range(40, 80))
            await until(lambda: owned(successor) == QUEUES)
            await until(lambda: all(seen[queue.queue_id][-1:] == [76 + queue.queue_id] for queue in queues))
    for queue in range(QUEUES):
        numbers = seen[queue]
        assert numbers == list(range(numbers[0], 80, QUEUES))
        assert numbers[0] <= before[queue][-1] + QUEUES


def owned(consumer: PushConsumer) -> int:
    """Return how many queues of the topic the consumer reads."""
    return sum(queue.topic == "T" for queue in consumer.statistics().queues)
