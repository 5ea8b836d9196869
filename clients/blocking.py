"""The SDK for scripts and threads: the same classes with calls that block, on one event loop in a thread behind them.

    with blocking.Producer("shop", namesrv="127.0.0.1:9876") as producer:
        producer.send(Message("Orders", b"one coffee"))

Nothing is decided here: each call runs its namesake of the asyncio class on the background loop and waits for it, so
any thread may call, and arguments, results and errors are those of the namesake. Handlers, checkers and transactions
are plain functions, and run in threads: a handler in one of `concurrency` threads of its consumer. Each object has a
client of its own. The loop starts with the first object and ends with the process. Objects made before a fork raise
ClientClosed in the child; new ones work there, on a loop of the child's own.

An interrupt (Ctrl-C) ends the call that waits, and at the end of its `with` block each object stops in order.
"""

import asyncio
import os
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack

from skylarkmq.clients.admin import admin
from skylarkmq.clients.connection.participant import Participant
from skylarkmq.clients.consuming import pull_consumer, push_consumer
from skylarkmq.clients.consuming.allocation import Allocation
from skylarkmq.clients.consuming.group_member import ConsumeFrom
from skylarkmq.clients.errors import ClientClosed
from skylarkmq.clients.hooks import Hooks
from skylarkmq.clients.producing import producer, transactions
from skylarkmq.clients.producing.sends import SendResult
from skylarkmq.clients.producing.transactions import TransactionResult, TransactionState
from skylarkmq.clients.settings import ConsumerSettings, ProducerSettings, TlsSettings
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import Message, MessageExt

LOOP_CHECK_S: Final = 1.0
"""How often a call that waits looks whether the loop still runs."""

T = TypeVar("T")
P = TypeVar("P", bound=Participant)
Arguments = ParamSpec("Arguments")


class ConnectionOptions(TypedDict, total=False):
    """What `clients.Admin` takes; all but `client`, which would belong to another loop."""

    namesrv: str | None
    tls: TlsSettings | ssl.SSLContext | None


class ProducerOptions(ConnectionOptions, total=False):
    """What `clients.Producer` takes besides."""

    settings: ProducerSettings | None
    namespace: str
    hooks: Hooks | None
    trace: bool


class ReaderOptions(ConnectionOptions, total=False):
    """What both consumers take besides."""

    consume_from: ConsumeFrom | datetime
    allocation: Allocation
    settings: ConsumerSettings | None
    namespace: str
    hooks: Hooks | None


class PullConsumerOptions(ReaderOptions, total=False):
    """What `clients.PullConsumer` takes."""

    auto_commit: bool


class PushConsumerOptions(ReaderOptions, total=False):
    """What `clients.PushConsumer` takes besides its handler."""

    orderly: bool
    broadcast: bool
    instance_name: str
    offsets_path: Path | None
    trace: bool


class LoopThread:
    """An event loop that runs in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="skylark-clients", daemon=True)
        self.thread.start()

    def __repr__(self) -> str:
        return f"<LoopThread {self.thread.name} {'runs' if self.thread.is_alive() else 'ended'}>"


@cache
def _loop_thread() -> LoopThread:
    return LoopThread()


os.register_at_fork(after_in_child=_loop_thread.cache_clear)


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the one loop of this process; a child of a fork gets its own with its first object."""
    return _loop_thread().loop


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the coroutine's result, from any thread but the loop's own. ClientClosed if the loop has ended."""
    runner = _loop_thread()
    future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, runner.loop)
    try:
        while True:
            try:
                return future.result(LOOP_CHECK_S)
            except TimeoutError:
                if future.done():
                    return future.result()  # it ended meanwhile, or the error is the coroutine's own
                if not runner.thread.is_alive():
                    raise ClientClosed("the loop of skylarkmq.blocking has ended: nothing runs here") from None
    except BaseException:
        future.cancel()  # what interrupted the caller ends the call too
        raise


class Blocking(Generic[P]):
    """A participant on the background loop: `with`, or `start` and `stop`."""

    def __init__(self, make: Callable[[], P]) -> None:
        async def made() -> P:
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
        """As the participant's."""
        run(self.participant.start())

    def stop(self) -> None:
        """As the participant's."""
        run(self.participant.stop())

    def wait_stopped(self) -> None:
        """Wait until another thread has stopped it, or an interrupt comes."""
        run(self.participant.wait_stopped())


def _waits(
    method: Callable[Concatenate[P, Arguments], Awaitable[T]],
) -> Callable[Concatenate[Blocking[P], Arguments], T]:
    """The method with its signature, blocking."""

    @wraps(method)
    def call(blocking: Blocking[P], /, *args: Arguments.args, **options: Arguments.kwargs) -> T:
        async def called() -> T:
            return await method(blocking.participant, *args, **options)

        return run(called())

    return call


def _at_once(method: Callable[Concatenate[P, Arguments], T]) -> Callable[Concatenate[Blocking[P], Arguments], T]:
    """A method that is no coroutine, called on the loop, where nothing else happens meanwhile."""

    @wraps(method)
    def call(blocking: Blocking[P], /, *args: Arguments.args, **options: Arguments.kwargs) -> T:
        async def called() -> T:
            return method(blocking.participant, *args, **options)

        return run(called())

    return call


class Producer(Blocking[producer.Producer]):
    """`clients.Producer`, blocking."""

    def __init__(self, group: str, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(lambda: producer.Producer(group, **options))

    send = _waits(producer.Producer.send)
    send_batch = _waits(producer.Producer.send_batch)
    send_oneway = _waits(producer.Producer.send_oneway)
    request = _waits(producer.Producer.request)
    recall = _waits(producer.Producer.recall)
    publish_queues = _waits(producer.Producer.publish_queues)
    statistics = _at_once(producer.Producer.statistics)

    def send_nowait(self, message: Message, *, message_group: str | None = None) -> Future[SendResult]:
        """As `send`, begun soon, in the order of the calls: the future holds its result."""

        async def send() -> SendResult:
            return await self.participant.send_nowait(message, message_group=message_group)

        return asyncio.run_coroutine_threadsafe(send(), background_loop())


class TransactionProducer(Producer):
    """`clients.TransactionProducer`, blocking; `checker` is a plain function."""

    participant: transactions.TransactionProducer

    def __init__(
        self, group: str, *, checker: Callable[[MessageExt], TransactionState], **options: Unpack[ProducerOptions]
    ) -> None:
        async def check(message: MessageExt) -> TransactionState:
            return await asyncio.to_thread(checker, message)

        Blocking.__init__(self, lambda: transactions.TransactionProducer(group, checker=check, **options))

    def send_in_transaction(
        self, message: Message, local: Callable[[str], TransactionState], *, timeout_s: float | None = None
    ) -> TransactionResult:
        """As `clients.TransactionProducer.send_in_transaction`; `local` is a plain function."""

        async def run_local(transaction_id: str) -> TransactionState:
            return await asyncio.to_thread(local, transaction_id)

        return run(self.participant.send_in_transaction(message, run_local, timeout_s=timeout_s))


class PullConsumer(Blocking[pull_consumer.PullConsumer]):
    """`clients.PullConsumer`, blocking."""

    def __init__(self, group: str, **options: Unpack[PullConsumerOptions]) -> None:
        super().__init__(lambda: pull_consumer.PullConsumer(group, **options))

    subscribe = _waits(pull_consumer.PullConsumer.subscribe)
    unsubscribe = _waits(pull_consumer.PullConsumer.unsubscribe)
    queues = _waits(pull_consumer.PullConsumer.queues)
    assign = _waits(pull_consumer.PullConsumer.assign)
    poll = _waits(pull_consumer.PullConsumer.poll)
    commit = _waits(pull_consumer.PullConsumer.commit)
    committed = _waits(pull_consumer.PullConsumer.committed)
    seek = _at_once(pull_consumer.PullConsumer.seek)
    seek_to_begin = _waits(pull_consumer.PullConsumer.seek_to_begin)
    seek_to_end = _waits(pull_consumer.PullConsumer.seek_to_end)
    seek_to_time = _waits(pull_consumer.PullConsumer.seek_to_time)
    pause = _at_once(pull_consumer.PullConsumer.pause)
    resume = _at_once(pull_consumer.PullConsumer.resume)
    reply = _waits(pull_consumer.PullConsumer.reply)
    statistics = _at_once(pull_consumer.PullConsumer.statistics)

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """What is read now."""
        return self.participant.assignment

    def __iter__(self) -> Iterator[MessageExt]:
        return _messages(self.participant)


class PushConsumer(Blocking[push_consumer.PushConsumer]):
    """`clients.PushConsumer`, blocking; `handler` is a plain function, called in threads.

    A handler that takes longer than `consume_timeout_s` cannot be ended: its message goes back while it still runs.
    """

    def __init__(
        self,
        group: str,
        *,
        handler: Callable[[MessageExt], object] | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        concurrency = (options.get("settings") or ConsumerSettings()).concurrency
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=f"handler-{group}")

        async def handle(message: MessageExt) -> object:
            assert handler is not None
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, copy_context().run, handler, message)

        super().__init__(
            lambda: push_consumer.PushConsumer(group, handler=None if handler is None else handle, **options)
        )

    subscribe = _waits(push_consumer.PushConsumer.subscribe)
    unsubscribe = _waits(push_consumer.PushConsumer.unsubscribe)
    reply = _waits(push_consumer.PushConsumer.reply)
    statistics = _at_once(push_consumer.PushConsumer.statistics)

    def stop(self) -> None:
        """As the participant's; a handler that does not end in time is left to itself."""
        try:
            super().stop()
        finally:
            self._threads.shutdown(wait=False)

    def __iter__(self) -> Iterator[MessageExt]:
        return _messages(self.participant)


class Admin(Blocking[admin.Admin]):
    """`clients.Admin`, blocking."""

    def __init__(self, **options: Unpack[ConnectionOptions]) -> None:
        super().__init__(lambda: admin.Admin(**options))

    cluster = _waits(admin.Admin.cluster)
    masters = _waits(admin.Admin.masters)
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

    def messages_between(self, topic: str, since: datetime, until: datetime) -> list[MessageExt]:
        """As `clients.Admin.messages_between`, all of them at once."""

        async def collect() -> list[MessageExt]:
            return [message async for message in self.participant.messages_between(topic, since, until)]

        return run(collect())


def _messages(consumer: pull_consumer.PullConsumer | push_consumer.PushConsumer) -> Iterator[MessageExt]:
    """Messages until the consumer is stopped; each is finished when the next is asked for."""
    messages: Any = aiter(consumer)

    async def following() -> MessageExt | None:
        return await anext(messages, None)

    try:
        while (message := run(following())) is not None:
            yield message
    finally:
        run(messages.aclose())
