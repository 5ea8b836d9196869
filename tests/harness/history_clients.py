"""The clients of a history: processes that send or consume with the SDK, and tell what they do.

    produce(...)     plain messages, alone and in batches, with and without an answer; message groups; delay levels and
                     timers; transactions, some of which end with their process
    consume(...)     one member of a group: its handler takes its time, fails as often as the plan says, and is killed
                     in the middle like everything else

A process ends when it gets SIGTERM (gracefully: exit code 0), when it is killed, or with what went wrong. SIGUSR1 ends
the sending, but not the process: the broker may have to ask how transactions ended.
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from clients import (
    BrokerError,
    Client,
    ClientError,
    ClientSettings,
    ConsumeFrom,
    ConsumerSettings,
    Later,
    Message,
    MessageExt,
    Producer,
    ProducerSettings,
    PullConsumer,
    PushConsumer,
    SendResult,
    SendStatus,
    Sql92,
    TransactionProducer,
    TransactionState,
)
from clients.handling import FAILED
from protocol.message import PropertyName
from tests.harness.history_events import (
    BY_ITSELF,
    Decided,
    Done,
    Got,
    Journal,
    Process,
    Ready,
    Sending,
    Sent,
    Threw,
    Unsent,
    Warned,
    Wish,
    body_of,
    crc_of,
    id_of,
)
from tests.harness.history_plan import (
    BARGAINS,
    FARTHEST_MS,
    KEYED,
    LEVELS_MS,
    PLAIN,
    PRICES,
    TAGS,
    Consuming,
    Mode,
    failures,
    fate,
    goes_to_dead_letters,
)

PRICE: Final = "price"
PAUSE_S: Final = 0.06
AGAIN_S: Final = 0.2
CLIENT: Final = ClientSettings(heartbeat_s=5.0, route_refresh_s=5.0, backoff_max_s=1.0)
_PR_SET_PDEATHSIG: Final = 1

log = logging.getLogger(__name__)


def produce(name: str, namesrv: str, directory: Path, seed: int) -> None:
    """The process of a producer."""
    _live(name, directory, lambda journal, ends: Sender(journal, Random(f"{seed} {name}"), ends).run(namesrv))


def consume(name: str, namesrv: str, directory: Path, plan: Consuming, slot: str) -> None:
    """The process of a member; `slot` names the place that it fills."""
    _live(name, directory, lambda journal, ends: Member(journal, plan, slot).run(namesrv, directory, ends.stop))


class Ends:
    """`quiet`: send no more; `stop`: end."""

    def __init__(self) -> None:
        self.quiet, self.stop = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self.quiet.set)
        loop.add_signal_handler(signal.SIGTERM, self._stop)

    def _stop(self) -> None:
        self.quiet.set()
        self.stop.set()


Life = Callable[[Journal, Ends], Awaitable[None]]


def _live(name: str, directory: Path, life: Life) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody stays behind when a run is given up
    journal = Journal(directory, name)
    logging.basicConfig(
        filename=directory / f"{name}.log", level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    logging.getLogger().addHandler(Warnings(journal))
    sys.excepthook = lambda *error: log.critical("ended", exc_info=error)
    asyncio.run(_until_stopped(journal, life))


async def _until_stopped(journal: Journal, life: Life) -> None:
    await life(journal, Ends())


class Warnings(logging.Handler):
    """The SDK's warnings, as events."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg != FAILED:  # which is told already, and no trouble
            self._journal.tell(Warned(text=f"{record.levelname} {record.getMessage()}"))


# ---------------------------------------------------------------------------------------------------------- producers


class Sender:
    """Everything that one process sends."""

    def __init__(self, journal: Journal, rng: Random, ends: Ends) -> None:
        self._journal = journal
        self._rng = rng
        self._ends = ends
        self._count = 0
        self._asked: Counter[str] = Counter()

    async def run(self, namesrv: str) -> None:
        """Send until it is enough, then answer what the broker asks."""
        settings = ProducerSettings(send_timeout_s=self._rng.choice((0.5, 3.0)), retries=self._rng.choice((0, 2, 5)))
        async with Client(namesrv, CLIENT) as client:
            plain = Producer("producers", client=client, settings=settings)
            ending = TransactionProducer("enders", client=client, settings=settings, checker=self._check)
            async with plain, ending:
                self._plain, self._ending = plain, ending
                self._journal.tell(Ready())
                rows = [self._single, self._single, self._batch, self._oneway, self._level, self._timer]
                rows += [self._transaction, self._transaction]
                keys = [f"{self._journal.name}/{n}" for n in range(4)]
                await asyncio.gather(*map(self._repeat, rows), *map(self._row, keys))
                await self._ends.stop.wait()

    async def _repeat(self, send: Callable[[], Awaitable[None]]) -> None:
        while not self._ends.quiet.is_set():
            await send()
            await asyncio.sleep(self._rng.expovariate(1 / PAUSE_S))

    async def _row(self, key: str) -> None:
        """One message group: the next one when the last has been answered."""
        number = 0
        while not self._ends.quiet.is_set():
            message, sending = self._new(KEYED, key=key, number=number)
            await self._send(sending, partial(self._plain.send, message, message_group=key))
            number += 1
            await asyncio.sleep(self._rng.expovariate(1 / PAUSE_S))

    async def _single(self) -> None:
        message, sending = self._new(PLAIN)
        await self._send(sending, lambda: self._plain.send(message))

    async def _batch(self) -> None:
        pairs = [self._new(PLAIN) for _ in range(self._rng.randint(1, 4))]
        for _, sending in pairs:
            self._journal.tell(sending)
        try:
            (result,) = await self._plain.send_batch([message for message, _ in pairs])
        except ClientError as error:
            for _, sending in pairs:
                self._unsent(sending, error)
            return
        for n, (_, sending) in enumerate(pairs):
            self._sent(sending, result, n)

    async def _oneway(self) -> None:
        message, sending = self._new(PLAIN)
        self._journal.tell(sending)
        try:
            await self._plain.send_oneway(message)
        except ClientError as error:
            self._unsent(sending, error)

    async def _level(self) -> None:
        level = self._rng.randint(1, len(LEVELS_MS))
        message, sending = self._new(PLAIN, not_before_ms=_now_ms() + LEVELS_MS[level - 1])
        await self._send(sending, lambda: self._plain.send(message, delay_level=level))

    async def _timer(self) -> None:
        due_ms = _now_ms() + self._rng.randint(500, FARTHEST_MS)
        message, sending = self._new(PLAIN, not_before_ms=due_ms)
        when = datetime.fromtimestamp(due_ms / 1000, UTC)
        await self._send(sending, lambda: self._plain.send(message, deliver_at=when))

    async def _transaction(self) -> None:
        message, sending = self._new(BARGAINS, transaction=True)
        self._journal.tell(sending)
        try:
            await self._ending.send_in_transaction(message, lambda _: self._local(sending.id))
        except ClientError as error:
            self._unsent(sending, error)

    async def _local(self, message_id: str) -> TransactionState:
        self._journal.tell(Sent(id=message_id))
        if self._rng.random() < 0.003:
            self._journal.tell(Process(name=self._journal.name, state="killing", why=BY_ITSELF))
            os.kill(os.getpid(), signal.SIGKILL)
        state = fate(message_id) if self._rng.random() < 0.7 else TransactionState.UNKNOWN
        self._journal.tell(Decided(id=message_id, state=state.name, by="local"))
        return state

    async def _check(self, message: MessageExt) -> TransactionState:
        message_id = id_of(message.payload())
        self._asked[message_id] += 1
        state = (
            fate(message_id) if self._asked[message_id] > 1 or self._rng.random() < 0.7 else TransactionState.UNKNOWN
        )
        self._journal.tell(Decided(id=message_id, state=state.name, by="checker"))
        return state

    def _new(self, topic: str, **more: Any) -> tuple[Message, Sending]:
        rng = self._rng
        new_id = f"{self._journal.name}-{self._count}"
        self._count += 1
        size = rng.choice((0, 30, rng.randint(0, 600), rng.randint(0, 600), rng.randint(4_000, 7_000)))
        body = body_of(new_id, rng.randbytes(size) if rng.random() < 0.5 else b"x" * size)
        tag, price = rng.choice(TAGS), rng.randrange(PRICES)
        message = Message(topic, body, tags=tag, keys=new_id, properties={PRICE: str(price)})
        return message, Sending(id=new_id, topic=topic, crc=crc_of(body), tag=tag, price=price, **more)

    async def _send(self, sending: Sending, send: Callable[[], Awaitable[SendResult]]) -> None:
        self._journal.tell(sending)
        try:
            result = await send()
        except ClientError as error:
            self._unsent(sending, error)
        else:
            self._sent(sending, result)

    def _sent(self, sending: Sending, result: SendResult, nth: int = 0) -> None:
        if result.status is not SendStatus.OK:
            self._journal.tell(Unsent(id=sending.id, why=result.status.name))
        elif sending.not_before_ms:
            self._journal.tell(Sent(id=sending.id))
        else:
            self._journal.tell(Sent(id=sending.id, queue_id=result.queue.queue_id, offset=result.queue_offset + nth))

    def _unsent(self, sending: Sending, error: ClientError) -> None:
        code = f" {error.code}" if isinstance(error, BrokerError) else ""
        self._journal.tell(Unsent(id=sending.id, why=f"{type(error).__name__}{code}"))


# ---------------------------------------------------------------------------------------------------------- consumers


class Member:
    """One member of a group."""

    def __init__(self, journal: Journal, plan: Consuming, slot: str) -> None:
        self._journal = journal
        self._plan = plan
        self._group = group_of(plan, slot)
        self._slot = slot
        self._rng = Random(journal.name)
        self._calls = 0

    async def run(self, namesrv: str, directory: Path, stop: asyncio.Event) -> None:
        """Consume until `stop`."""
        plan = self._plan
        async with Client(namesrv, CLIENT) as client:
            if plan.mode is Mode.PULL:
                reader = PullConsumer(
                    plan.group, client=client, consume_from=ConsumeFrom.FIRST, settings=_settings_of(plan)
                )
                async with reader:
                    await self._subscribe(reader, stop)
                    await self._poll(reader, stop)
                return
            consumer = PushConsumer(
                plan.group,
                client=client,
                handler=self._handle,
                orderly=plan.mode is Mode.ORDERLY,
                broadcast=plan.mode is Mode.BROADCAST,
                consume_from=ConsumeFrom.FIRST,
                offsets_path=directory / f"{self._slot}.offsets" if plan.mode is Mode.BROADCAST else None,
                settings=_settings_of(plan),
            )
            async with consumer:
                await self._subscribe(consumer, stop)
                await stop.wait()

    async def _subscribe(self, consumer: PushConsumer | PullConsumer, stop: asyncio.Event) -> None:
        for topic, wish in self._plan.topics.items():
            while not stop.is_set():
                try:
                    await consumer.subscribe(topic, _expression(wish))
                    break
                except ClientError as error:
                    log.warning("not subscribed, trying again topic=%s error=%s", topic, error)
                    await asyncio.sleep(AGAIN_S)
        self._journal.tell(Ready())

    async def _poll(self, reader: PullConsumer, stop: asyncio.Event) -> None:
        while not stop.is_set():
            messages = await reader.poll(self._rng.randint(1, 40), timeout_s=0.3)
            for call in [self._got(message) for message in messages]:
                self._journal.tell(Done(call=call))

    async def _handle(self, message: MessageExt) -> object:
        call = self._got(message)
        await self._work()
        which, plan = id_of(message.body), self._plan
        if goes_to_dead_letters(which, plan.mode):
            return self._later(call, -1)
        if message.reconsume_times < failures(which, plan.group, plan.mode, plan.max_times):
            if self._rng.random() < 0.3:
                return self._later(call, self._rng.choice((0, 1)))
            self._journal.tell(Threw(call=call))
            raise RuntimeError(f"planned failure of {which}")
        self._journal.tell(Done(call=call))
        return None

    def _later(self, call: int, level: int) -> Later:
        self._journal.tell(Threw(call=call, level=level))
        return Later(level)

    async def _work(self) -> None:
        dice = self._rng.random()
        if dice < 0.02 and self._plan.mode is not Mode.ORDERLY:
            await asyncio.sleep(self._rng.uniform(0.1, 1.0))
        elif dice < 0.3:
            await asyncio.sleep(self._rng.uniform(0.0, 0.02))

    def _got(self, message: MessageExt) -> int:
        self._calls += 1
        self._journal.tell(
            Got(
                group=self._group,
                call=self._calls,
                topic=message.topic,
                queue_id=message.queue_id,
                offset=message.queue_offset,
                id=id_of(message.body),
                crc=crc_of(message.body),
                tag=message.tags,
                price=int(message.properties.get(PRICE, -1)),
                times=message.reconsume_times,
                retried=PropertyName.RETRY_TOPIC in message.properties,
            )
        )
        return self._calls


def group_of(plan: Consuming, slot: str) -> str:
    """A group as the history sees it: a broadcasting member is one by itself."""
    return f"{plan.group}/{slot}" if plan.mode is Mode.BROADCAST else plan.group


def _settings_of(plan: Consuming) -> ConsumerSettings:
    return ConsumerSettings(
        concurrency=plan.concurrency,
        commit_interval_s=plan.commit_interval_s,
        pull_batch=plan.pull_batch,
        max_reconsume_times=plan.max_times,
        rebalance_interval_s=3.0,
        suspend_s=5.0,
        pull_timeout_s=8.0,
        retry_pause_s=0.3,
        suspend_pause_s=0.1,
        lock_renewal_s=0.4,
        lock_life_s=plan.lock_life_s,
        stop_timeout_s=10.0,
    )


def _expression(wish: Wish) -> str | Sql92:
    if wish.above is not None:
        return Sql92(f"{PRICE} > {wish.above}")
    return " || ".join(wish.tags) or "*"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
