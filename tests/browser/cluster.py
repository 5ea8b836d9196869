"""A broker with its console, and with something to see on every page.

    with filled_cluster(directory) as cluster:
        cluster.console                             "http://127.0.0.1:43210"
        cluster.run(cluster.admin.groups())         requests of the test, in the loop of the clients

The clients have an event loop in a thread of their own, since Playwright's blocking API needs the test's thread.

Topics: Orders with messages, 60 others, and one with the longest name. Groups: `billing` has a member and a lag,
`shipping` committed offsets without a member, `returns` 60 dead letters. One message waits for a delay level, one for a
time; one transaction has no decision.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from skylarkmq.broker.app.in_process import InProcessBroker, free_ports, loop_in_a_thread, running, wait
from skylarkmq.clients.console.app.embedded import embedded_console
from skylarkmq.clients.sdk import (
    Client,
    ConsumeFrom,
    ConsumerSettings,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    TransactionProducer,
    TransactionState,
)
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.message import MessageExt, PropertyName

T = TypeVar("T")

LONGEST_TOPIC: Final = "a-topic-with-the-longest-name-" + "x" * 97
LETTERS: Final = 60
HOUR: Final = timedelta(hours=1)
ORDER: Final = {"order": 4711, "items": [{"sku": "B-17", "count": 2}], "note": "<b>handle with care</b>"}
SETTINGS: Final[Mapping[str, object]] = {
    "recallMessageEnable": "true",
    "traceTopicEnable": "true",
    "transactionCheckInterval": 600_000,
}


class Content(NamedTuple):
    """The content of the broker: its clients, a message with JSON, and one with bytes that are no text."""

    admin: Admin
    producer: Producer
    order: SendResult
    binary: SendResult


class FilledCluster:
    """A broker with content: the addresses of its console and of the broker itself, and clients."""

    def __init__(self, console: str, broker: str, loop: asyncio.AbstractEventLoop, content: Content) -> None:
        self.console = console
        self.broker = broker
        self.admin = content.admin
        self.producer = content.producer
        self.content = content
        self._loop = loop

    def __repr__(self) -> str:
        return f"<FilledCluster {self.console}>"

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a request."""
        return wait(self._loop, coroutine)


@contextmanager
def filled_cluster(directory: Path) -> Iterator[FilledCluster]:
    """Yield a cluster of one broker with content."""
    with served_broker(directory, **SETTINGS) as (broker, console), loop_in_a_thread() as loop:
        clients = content_of(broker)
        content = wait(loop, clients.__aenter__())
        try:
            yield FilledCluster(console, broker.address, loop, content)
        finally:
            wait(loop, clients.__aexit__(None, None, None))


@contextmanager
def served_broker(directory: Path, **settings: object) -> Iterator[tuple[InProcessBroker, str]]:
    """Yield a broker with these settings, and the address of its console."""
    (port,) = free_ports(1)
    with running(directory, {"consolePort": port, **settings}, embedded_console) as broker:
        yield broker, f"http://127.0.0.1:{port}"


@asynccontextmanager
async def content_of(broker: InProcessBroker) -> AsyncIterator[Content]:
    """Fill a broker, and yield its clients, which stay connected."""
    async with Client(broker.namesrv) as client, Admin(client=client) as admin:
        await create_topics_and_groups(admin)
        async with (
            Producer("orders-api", client=client, trace=True) as producer,
            TransactionProducer("payments-api", checker=undecided, client=client) as payments,
            PushConsumer(
                "billing", handler=never_done, client=client, topics="Orders", consume_from=ConsumeFrom.FIRST,
                settings=ConsumerSettings(stop_timeout_s=0.1),
            ),
        ):  # fmt: skip
            order, binary = await send_orders(producer)
            await send_letters(producer)
            await producer.send(Message("Later", b"a reminder"), delay=HOUR)
            await producer.send(Message("Later", b"a slow reminder"), delay_level=18)
            await payments.send_in_transaction(Message("Payments", b'{"amount": 12.50}', keys="payment-1"), unknown)
            await admin.set_offset("shipping", MessageQueue("Orders", "broker-a", 0), 1)
            yield Content(admin, producer, order, binary)


async def create_topics_and_groups(admin: Admin) -> None:
    for topic in ("Orders", "Later", "Payments", "Returns", LONGEST_TOPIC, *(f"Topic-{n:02}" for n in range(60))):
        await admin.create_topic(topic, queues=2)
    for group in ("shipping", "returns"):
        await admin.create_group(SubscriptionGroupConfig(group))
    for topic in ("%DLQ%returns", "%RETRY%returns"):
        await admin.create_topic(topic, queues=1)


async def send_orders(producer: Producer) -> tuple[SendResult, SendResult]:
    """Send 120 messages, and return the results of one with JSON and one with bytes that are no text."""
    binary = await producer.send(Message("Orders", bytes(range(256)), keys="binary-1"))
    for number in range(118):
        await producer.send(Message("Orders", f"order {number}".encode(), keys=f"order-{number}", tags="new"))
    properties = {"customer": "ada", "a-very-long-property": "value-" * 40}
    body = json.dumps(ORDER).encode()
    order = await producer.send(Message("Orders", body, keys=["order-4711", "ada"], tags="paid", properties=properties))
    return order, binary


async def send_letters(producer: Producer) -> None:
    origin = {PropertyName.RETRY_TOPIC: "Returns"}
    for number in range(LETTERS):
        body = f"return {number} was not handled".encode()
        await producer.send(Message("%DLQ%returns", body, keys=f"return-{number}", properties=origin))


async def never_done(message: ReceivedMessage) -> None:
    """Keep a message, so that the group has a lag until the consumer stops."""
    await asyncio.Event().wait()


async def undecided(message: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


async def unknown(transaction_id: str) -> TransactionState:
    return TransactionState.UNKNOWN
