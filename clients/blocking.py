"""The SDK for scripts and threads: the same classes with calls that block, on one event loop in a thread behind them.

    with blocking.Producer("shop", namesrv="127.0.0.1:9876") as producer:
        producer.send(Message("Orders", b"one coffee"))

Nothing is decided here: each call runs its namesake of the asyncio class on the background loop and waits for it, so
any thread may call. Handlers and transactions are plain functions, and run in threads of their own. The loop starts
with the first object and ends with the process.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import cache
from typing import Any, Generic, Self, TypeVar

from clients import admin, producer, pull_consumer, push_consumer, transactions
from clients.group_member import Sql92
from clients.participant import Participant
from clients.sends import SendResult
from clients.transactions import TransactionResult, TransactionState
from protocol.bodies.message_queue import MessageQueue
from protocol.message import Message, MessageExt

T = TypeVar("T")
P = TypeVar("P", bound=Participant)


@cache
def background_loop() -> asyncio.AbstractEventLoop:
    """The one loop, in a daemon thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="skylark-clients", daemon=True).start()
    return loop


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, from any thread but the loop's own."""
    future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, background_loop())
    try:
        return future.result()
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


class Producer(Blocking[producer.Producer]):
    """`clients.Producer`, blocking; same arguments."""

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(lambda: producer.Producer(group, **options))

    def send(self, message: Message, **options: Any) -> SendResult:
        """As `clients.Producer.send`."""
        return run(self.participant.send(message, **options))

    def send_batch(self, messages: Sequence[Message], **options: Any) -> list[SendResult]:
        """As `clients.Producer.send_batch`."""
        return run(self.participant.send_batch(messages, **options))

    def send_oneway(self, message: Message, **options: Any) -> None:
        """As `clients.Producer.send_oneway`."""
        run(self.participant.send_oneway(message, **options))

    def request(self, message: Message, **options: Any) -> MessageExt:
        """As `clients.Producer.request`."""
        return run(self.participant.request(message, **options))


class TransactionProducer(Blocking[transactions.TransactionProducer]):
    """`clients.TransactionProducer`, blocking; `checker` is a plain function."""

    def __init__(self, group: str, *, checker: Callable[[MessageExt], TransactionState], **options: Any) -> None:
        async def check(message: MessageExt) -> TransactionState:
            return await asyncio.to_thread(checker, message)

        super().__init__(lambda: transactions.TransactionProducer(group, checker=check, **options))

    def send_in_transaction(
        self, message: Message, local: Callable[[str], TransactionState], **options: Any
    ) -> TransactionResult:
        """As `clients.TransactionProducer.send_in_transaction`; `local` is a plain function."""

        async def run_local(transaction_id: str) -> TransactionState:
            return await asyncio.to_thread(local, transaction_id)

        return run(self.participant.send_in_transaction(message, run_local, **options))


class PullConsumer(Blocking[pull_consumer.PullConsumer]):
    """`clients.PullConsumer`, blocking; same arguments."""

    def __init__(self, group: str, **options: Any) -> None:
        super().__init__(lambda: pull_consumer.PullConsumer(group, **options))

    def subscribe(self, topic: str, expression: str | Sql92 = "*") -> None:
        """As `clients.PullConsumer.subscribe`."""
        run(self.participant.subscribe(topic, expression))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """As `clients.PullConsumer.queues`."""
        return run(self.participant.queues(topic))

    def assign(self, queues: Sequence[MessageQueue]) -> None:
        """As `clients.PullConsumer.assign`."""
        run(self.participant.assign(queues))

    def poll(self, max_messages: int = 32, timeout_s: float = 1.0) -> list[MessageExt]:
        """As `clients.PullConsumer.poll`."""
        return run(self.participant.poll(max_messages, timeout_s))

    def commit(self) -> None:
        """As `clients.PullConsumer.commit`."""
        run(self.participant.commit())

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """As `clients.PullConsumer.seek`."""

        async def seek() -> None:
            self.participant.seek(queue, offset)

        run(seek())

    def seek_to_time(self, queue: MessageQueue, when: datetime) -> int:
        """As `clients.PullConsumer.seek_to_time`."""
        return run(self.participant.seek_to_time(queue, when))

    def __iter__(self) -> Iterator[MessageExt]:
        """Messages for ever; each is finished when the next is asked for."""
        while True:
            yield from self.poll(1, 1.0)


class PushConsumer(Blocking[push_consumer.PushConsumer]):
    """`clients.PushConsumer`, blocking; `handler` is a plain function, called in threads."""

    def __init__(self, group: str, *, handler: Callable[[MessageExt], object], **options: Any) -> None:
        async def handle(message: MessageExt) -> object:
            return await asyncio.to_thread(handler, message)

        super().__init__(lambda: push_consumer.PushConsumer(group, handler=handle, **options))

    def subscribe(self, topic: str, expression: str | Sql92 = "*") -> None:
        """As `clients.PushConsumer.subscribe`."""
        run(self.participant.subscribe(topic, expression))

    def reply(self, message: MessageExt, body: bytes, properties: dict[str, str] | None = None) -> None:
        """As `clients.PushConsumer.reply`."""
        run(self.participant.reply(message, body, properties))


class Admin(Blocking[admin.Admin]):
    """`clients.Admin`, blocking: its coroutines by their names, and `messages_between` as a list."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda: admin.Admin(**options))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.participant, name)
        if not inspect.iscoroutinefunction(method):
            raise AttributeError(name)
        return lambda *args, **options: run(method(*args, **options))

    def messages_between(self, topic: str, since: datetime, until: datetime) -> list[MessageExt]:
        """As `clients.Admin.messages_between`."""

        async def collect() -> list[MessageExt]:
            return [message async for message in self.participant.messages_between(topic, since, until)]

        return run(collect())
