"""The SDK for scripts and threads: the same classes with blocking calls, on one event loop in a background thread.

    with blocking.connect("127.0.0.1:9876") as mq, mq.producer("shop") as producer:
        producer.send(Message("Orders", b"one coffee"))

Each call runs the method of the same name of the asyncio class on the background loop
(clients/sdk/base/background_loop.py) and waits for its result. Any thread may call. Arguments, results and errors are
the same as for the asyncio method. Handlers, checkers and local transactions are plain functions and run in threads:
handlers in the `concurrency` threads of their consumer. `client=` takes only a client that runs on the background loop.

Objects made before a fork raise ClientClosed in the child; new objects work there, on a loop of the child.

An interrupt (Ctrl-C) ends the waiting call, and each object stops in order at the end of its `with` block.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import cached_property, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from skylarkmq.clients.sdk import message_queue_client
from skylarkmq.clients.sdk.admin import admin, blocking_sections
from skylarkmq.clients.sdk.base.arguments import check_callable
from skylarkmq.clients.sdk.base.background_loop import background_loop, clean_up, run
from skylarkmq.clients.sdk.connection.client import ClientStatistics
from skylarkmq.clients.sdk.connection.options import ConnectOptions, StandaloneOptions, lists_options
from skylarkmq.clients.sdk.connection.participant import Participant
from skylarkmq.clients.sdk.consuming import consumer, pull_consumer, push_consumer, received_message
from skylarkmq.clients.sdk.consuming.blocking_message import ReceivedMessage, blocking_message, callbacks_in_threads
from skylarkmq.clients.sdk.consuming.handlers import BlockingHandler, MessageHandler
from skylarkmq.clients.sdk.consuming.options import (
    PullConsumerOptions,
    PushConsumerOptions,
    StandalonePullConsumerOptions,
    StandalonePushConsumerOptions,
)
from skylarkmq.clients.sdk.messages.send_result import SendResult
from skylarkmq.clients.sdk.producing import producer, transactions
from skylarkmq.clients.sdk.producing.options import ProducerOptions, StandaloneProducerOptions
from skylarkmq.clients.sdk.producing.transactions import TransactionResult, TransactionState
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import Message, MessageExt

T = TypeVar("T")
P_co = TypeVar("P_co", bound=Participant, covariant=True)
C_co = TypeVar("C_co", bound=consumer.Consumer, covariant=True)
Arguments = ParamSpec("Arguments")


class Blocking(Generic[P_co]):
    """A producer, consumer or Admin on the background loop: use it with `with`, or `start` and `stop`."""

    def __init__(self, make: Callable[[], P_co]) -> None:
        async def made() -> P_co:
            return make()

        self.participant = run(made())

    def __repr__(self) -> str:
        return f"<Blocking {self.participant}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Join the group, as `start` of the asyncio class."""
        run(self.participant.start())

    def stop(self) -> None:
        """Leave the group, as `stop` of the asyncio class."""
        run(self.participant.stop())

    def wait_stopped(self, *, timeout_s: float | None = None) -> None:
        """Wait until another thread has stopped the object. An interrupt ends the wait; RequestTimeout in time."""
        run(self.participant.wait_stopped(timeout_s=timeout_s))


def _waits(
    method: Callable[Concatenate[P_co, Arguments], Awaitable[T]],
) -> Callable[Concatenate[Blocking[P_co], Arguments], T]:
    """Return a blocking method with the signature of a coroutine method."""

    @wraps(method)
    def call(blocking: Blocking[P_co], /, *args: Arguments.args, **options: Arguments.kwargs) -> T:
        async def called() -> T:
            return await method(blocking.participant, *args, **options)

        return run(called())

    return call


def _calls(method: Callable[Concatenate[P_co, Arguments], T]) -> Callable[Concatenate[Blocking[P_co], Arguments], T]:
    """Return a blocking method that calls a plain method on the loop, where nothing else runs meanwhile."""

    @wraps(method)
    def call(blocking: Blocking[P_co], /, *args: Arguments.args, **options: Arguments.kwargs) -> T:
        async def called() -> T:
            return method(blocking.participant, *args, **options)

        return run(called())

    return call


class Producer(Blocking[producer.Producer]):
    """`skylarkmq.Producer`, blocking."""

    @lists_options
    def __init__(self, group: str, **options: Unpack[StandaloneProducerOptions]) -> None:
        super().__init__(lambda: producer.Producer(group, **options))

    send = _waits(producer.Producer.send)
    send_batch = _waits(producer.Producer.send_batch)
    send_oneway = _waits(producer.Producer.send_oneway)
    request = _waits(producer.Producer.request)
    recall = _waits(producer.Producer.recall)
    publish_queues = _waits(producer.Producer.publish_queues)
    message = _calls(producer.Producer.message)
    statistics = _calls(producer.Producer.statistics)

    def send_nowait(
        self, message: Message, *, message_group: str | None = None, timeout_s: float | None = None
    ) -> Future[SendResult]:
        """Begin a send and return a future of its result. Sends begin in the order of the calls."""

        async def send() -> SendResult:
            return await self.participant.send_nowait(message, message_group=message_group, timeout_s=timeout_s)

        return asyncio.run_coroutine_threadsafe(send(), background_loop())


class TransactionProducer(Producer):
    """`skylarkmq.TransactionProducer`, blocking; `checker` is a plain function."""

    participant: transactions.TransactionProducer

    @lists_options
    def __init__(
        self,
        group: str,
        *,
        checker: Callable[[MessageExt], TransactionState],
        **options: Unpack[StandaloneProducerOptions],
    ) -> None:
        check_callable("checker", checker)

        async def check(message: MessageExt) -> TransactionState:
            return await asyncio.to_thread(checker, message)

        Blocking.__init__(self, lambda: transactions.TransactionProducer(group, checker=check, **options))

    def send_in_transaction(
        self, message: Message, local: Callable[[str], TransactionState], *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Send in a transaction, as `TransactionProducer` of `skylarkmq` does; `local` is a plain function."""
        check_callable("local", local)

        async def run_local(transaction_id: str) -> TransactionState:
            return await asyncio.to_thread(local, transaction_id)

        return run(self.participant.send_in_transaction(message, run_local, timeout_s=timeout_s))


class Consumer(Blocking[C_co]):
    """The calls that both consumers have, blocking."""

    subscribe = _waits(consumer.Consumer.subscribe)
    unsubscribe = _waits(consumer.Consumer.unsubscribe)
    position = _waits(consumer.Consumer.position)
    committed = _waits(consumer.Consumer.committed)
    reply = _waits(consumer.Consumer.reply)

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that this member reads now."""
        return self.participant.assignment


class PullConsumer(Consumer[pull_consumer.PullConsumer]):
    """`skylarkmq.PullConsumer`, blocking."""

    @lists_options
    def __init__(self, group: str, **options: Unpack[StandalonePullConsumerOptions]) -> None:
        callbacks_in_threads(options)
        super().__init__(lambda: pull_consumer.PullConsumer(group, **options))

    queues = _waits(pull_consumer.PullConsumer.queues)
    assign = _waits(pull_consumer.PullConsumer.assign)
    poll = _waits(pull_consumer.PullConsumer.poll)
    commit = _waits(pull_consumer.PullConsumer.commit)
    seek = _calls(pull_consumer.PullConsumer.seek)
    seek_to_begin = _waits(pull_consumer.PullConsumer.seek_to_begin)
    seek_to_end = _waits(pull_consumer.PullConsumer.seek_to_end)
    seek_to_time = _waits(pull_consumer.PullConsumer.seek_to_time)
    pause = _calls(pull_consumer.PullConsumer.pause)
    resume = _calls(pull_consumer.PullConsumer.resume)
    statistics = _calls(pull_consumer.PullConsumer.statistics)

    def __iter__(self) -> Iterator[received_message.ReceivedMessage]:
        return _messages(self.participant)


class PushConsumer(Consumer[push_consumer.PushConsumer]):
    """`skylarkmq.PushConsumer`, blocking. `handler` is a plain function, and runs in threads (`thread=True`).

    A thread cannot be canceled: a handler that exceeds `consume_timeout_s` runs on while its message is sent back.
    """

    @lists_options
    def __init__(
        self,
        group: str,
        *,
        handler: MessageHandler | BlockingHandler | None = None,
        **options: Unpack[StandalonePushConsumerOptions],
    ) -> None:
        options.setdefault("thread", handler is not None)
        callbacks_in_threads(options)
        super().__init__(lambda: push_consumer.PushConsumer(group, handler=handler, **options))

    commit = _waits(push_consumer.PushConsumer.commit)
    statistics = _calls(push_consumer.PushConsumer.statistics)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return map(blocking_message, _messages(self.participant))


class Admin(Blocking[admin.Admin]):
    """`skylarkmq.Admin`, blocking, with the same sections and shortcuts."""

    @lists_options
    def __init__(self, **options: Unpack[StandaloneOptions]) -> None:
        super().__init__(lambda: admin.Admin(**options))

    @cached_property
    def brokers(self) -> blocking_sections.Brokers:
        """The brokers of a cluster; state, settings, statistics and files of one broker."""
        return blocking_sections.Brokers(self.participant.brokers)

    @cached_property
    def topic_config(self) -> blocking_sections.TopicConfigs:
        """Topics on brokers and in name servers: configuration, routes, queues, offsets and statistics."""
        return blocking_sections.TopicConfigs(self.participant.topic_config)

    @cached_property
    def group_config(self) -> blocking_sections.GroupConfigs:
        """Consumer groups, and the clients of groups."""
        return blocking_sections.GroupConfigs(self.participant.group_config)

    @cached_property
    def offsets(self) -> blocking_sections.Offsets:
        """Progress of consumer groups, commits, resets and copies of offsets."""
        return blocking_sections.Offsets(self.participant.offsets)

    @cached_property
    def messages(self) -> blocking_sections.Messages:
        """Messages by id, key, time, queue and offset; their traces and consumption."""
        return blocking_sections.Messages(self.participant.messages)

    @cached_property
    def access(self) -> blocking_sections.Access:
        """Users, policies and accounts of one broker."""
        return blocking_sections.Access(self.participant.access)

    @cached_property
    def name_servers(self) -> blocking_sections.NameServerAdmin:
        """Requests to name servers: settings, keys and values, write permission of brokers."""
        return blocking_sections.NameServerAdmin(self.participant.name_servers)

    cluster = _waits(admin.Admin.cluster)
    masters = _waits(admin.Admin.masters)
    broker_addresses = _waits(admin.Admin.broker_addresses)
    topics = _waits(admin.Admin.topics)
    create_topic = _waits(admin.Admin.create_topic)
    delete_topic = _waits(admin.Admin.delete_topic)
    queues = _waits(admin.Admin.queues)
    topic_offsets = _waits(admin.Admin.topic_offsets)
    groups = _waits(admin.Admin.groups)
    create_group = _waits(admin.Admin.create_group)
    delete_group = _waits(admin.Admin.delete_group)
    members = _waits(admin.Admin.members)
    group_offsets = _waits(admin.Admin.group_offsets)
    lag = _waits(admin.Admin.lag)
    set_offset = _waits(admin.Admin.set_offset)
    reset_offsets = _waits(admin.Admin.reset_offsets)
    messages_of_key = _waits(admin.Admin.messages_of_key)
    message_of_id = _waits(admin.Admin.message_of_id)
    earliest = _waits(admin.Admin.earliest)

    def messages_between(
        self, topic: str, since: datetime, until: datetime, *, timeout_s: float | None = None
    ) -> list[MessageExt]:
        """Return the messages that were stored in [since, until). The same as `messages.between`."""
        return self.messages.between(topic, since, until, timeout_s=timeout_s)


class MessageQueueClient:
    """`skylarkmq.MessageQueueClient`, blocking; handlers and checkers are plain functions."""

    @lists_options
    def __init__(self, namesrv: str | Sequence[str], **options: Unpack[ConnectOptions]) -> None:
        async def made() -> message_queue_client.MessageQueueClient:
            return message_queue_client.MessageQueueClient(namesrv, **options)

        self._original = run(made())
        self.client = self._original.client
        self.shared = self._original.shared

    def __repr__(self) -> str:
        return f"<Blocking {self._original}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Connect to a name server. Errors as of `skylarkmq.MessageQueueClient.start`."""
        run(self._original.start())

    def close(self) -> None:
        """Stop the objects that still run, and close all connections."""
        run(self._original.close())

    def statistics(self) -> ClientStatistics:
        """Return the figures of the shared client now."""
        return self._original.statistics()

    @lists_options
    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a blocking producer; use it with `with`."""
        options = self.shared.complete(options, ProducerOptions, "producer")
        return Producer(group, client=self.client, **options)

    @lists_options
    def transaction_producer(
        self, group: str, *, checker: Callable[[MessageExt], TransactionState], **options: Unpack[ProducerOptions]
    ) -> TransactionProducer:
        """Return a blocking producer of transactions; `checker` is a plain function."""
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
        """Return a blocking push consumer; `handler` is a plain function, called in threads."""
        options = self.shared.complete(options, PushConsumerOptions, "consumer")
        return PushConsumer(group, handler=handler, client=self.client, **options)

    @lists_options
    def pull_consumer(self, group: str, **options: Unpack[PullConsumerOptions]) -> PullConsumer:
        """Return a blocking pull consumer."""
        options = self.shared.complete(options, PullConsumerOptions, "pull_consumer")
        return PullConsumer(group, client=self.client, **options)

    def admin(self) -> Admin:
        """Return a blocking Admin."""
        return Admin(client=self.client)


@lists_options
def connect(namesrv: str | Sequence[str], **options: Unpack[ConnectOptions]) -> MessageQueueClient:
    """Return a blocking client of a cluster; arguments and errors are the same as for `skylarkmq.connect`."""
    return MessageQueueClient(namesrv, **options)


def _messages(
    consumer: pull_consumer.PullConsumer | push_consumer.PushConsumer,
) -> Iterator[received_message.ReceivedMessage]:
    """Yield the messages of the asyncio loop, until the consumer stops."""
    messages: Any = aiter(consumer)

    async def following() -> received_message.ReceivedMessage | None:
        return await anext(messages, None)

    try:
        while (message := run(following())) is not None:
            yield message
    finally:
        clean_up(messages.aclose())
