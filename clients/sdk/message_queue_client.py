"""`connect`: one client for all producers and consumers of a program.

    async with connect("ns1:9876;ns2:9876", namespace="team-a") as mq:
        async with mq.producer("order-service") as producer, mq.consumer("billing", handler=handle) as consumer: ...

All objects made by `mq` share its connections, routes and heartbeats. A broker distinguishes the members of a
consumer group by their client, so one `mq` makes at most one running member of each group.
"""

from collections.abc import Sequence
from typing import Self, Unpack

from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.namespaces import Namespace
from skylarkmq.clients.sdk.connection.client import Client, ClientStatistics
from skylarkmq.clients.sdk.connection.options import ConnectOptions, SharedOptions, check_options, lists_options
from skylarkmq.clients.sdk.connection.participant import client_settings
from skylarkmq.clients.sdk.consuming.handlers import BlockingHandler, MessageHandler
from skylarkmq.clients.sdk.consuming.options import PullConsumerOptions, PushConsumerOptions
from skylarkmq.clients.sdk.consuming.pull_consumer import PullConsumer
from skylarkmq.clients.sdk.consuming.push_consumer import PushConsumer
from skylarkmq.clients.sdk.producing.options import ProducerOptions
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.clients.sdk.producing.transactions import TransactionChecker, TransactionProducer


@lists_options
def connect(namesrv: str | Sequence[str], **options: Unpack[ConnectOptions]) -> "MessageQueueClient":
    """Return a client of the cluster that registers with these name servers; use it with `async with`.

    `namesrv` is "host:port;host:port", or a list of "host:port". The options: `skylarkmq.options.ConnectOptions`.
    InvalidArgument if an argument is invalid. Entering the block raises ConnectFailed if no name server can be reached.
    """
    return MessageQueueClient(namesrv, **options)


class MessageQueueClient:
    """Makes producers, consumers and an Admin that share one client. `async with`, or `start` and `close`."""

    @lists_options
    def __init__(self, namesrv: str | Sequence[str], **options: Unpack[ConnectOptions]) -> None:
        check_options(options, ConnectOptions, "connect")
        self.client = Client(namesrv, client_settings(options, options.get("settings")))
        self.shared = SharedOptions(Namespace(options.get("namespace", "")).name, options.get("hooks"))
        self.client.observers.add(self.shared.hooks)

    def __repr__(self) -> str:
        return f"<MessageQueueClient {self.client}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to a name server. ConnectFailed if none can be reached, ClientClosed after a stop."""
        await self.client.start()
        try:
            await self.client.routes.name_servers.connect()
        except BaseException:
            await self.client.close()
            raise

    async def close(self) -> None:
        """Stop the objects that still run, in the reverse order of their starts, and close all connections."""
        await self.client.close()

    def statistics(self) -> ClientStatistics:
        """Return the figures of the shared client now."""
        return self.client.statistics()

    @lists_options
    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a producer; use it with `async with`. Its options: `skylarkmq.options.ProducerOptions`."""
        options = self.shared.complete(options, ProducerOptions, "producer")
        return Producer(group, client=self.client, **options)

    @lists_options
    def transaction_producer(
        self, group: str, *, checker: TransactionChecker, **options: Unpack[ProducerOptions]
    ) -> TransactionProducer:
        """Return a producer of transactions; `checker` returns how a transaction ended (`TransactionChecker`)."""
        options = self.shared.complete(options, ProducerOptions, "transaction_producer")
        return TransactionProducer(group, checker=checker, client=self.client, **options)

    @lists_options
    def consumer(
        self,
        group: str,
        *,
        handler: MessageHandler | BlockingHandler | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> PushConsumer:
        """Return a push consumer: it calls `handler`, or is read by `async for`.

        Its options: `skylarkmq.options.PushConsumerOptions`.
        """
        options = self.shared.complete(options, PushConsumerOptions, "consumer")
        return PushConsumer(group, handler=handler, client=self.client, **options)

    @lists_options
    def pull_consumer(self, group: str, **options: Unpack[PullConsumerOptions]) -> PullConsumer:
        """Return a consumer that fetches messages with `poll`. Its options: `skylarkmq.options.PullConsumerOptions`."""
        options = self.shared.complete(options, PullConsumerOptions, "pull_consumer")
        return PullConsumer(group, client=self.client, **options)

    def admin(self) -> Admin:
        """Return an Admin. It uses the full names of topics and groups, as brokers do; it adds no namespace."""
        return Admin(client=self.client)
