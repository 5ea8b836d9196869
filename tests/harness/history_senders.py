"""A producer process of a history, which uses all of the SDK's ways to send at once.

Ordinary messages, single and in batches, with and without a response; message groups; delay levels and timers;
transactions, some of which end with their process. It records an event before and after each step.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, Final

from skylarkmq import (
    BrokerError,
    Client,
    ClientError,
    Message,
    MessageExt,
    Producer,
    ProducerSettings,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from tests.harness.history_events import (
    KILLED_ITSELF,
    Decided,
    Journal,
    Process,
    Ready,
    Sending,
    Sent,
    Unsent,
    body_of,
    crc_of,
    id_of,
)
from tests.harness.history_plan import (
    BARGAINS,
    CLIENT,
    FARTHEST_MS,
    KEYED,
    LEVELS_MS,
    PLAIN,
    PRICE,
    PRICES,
    TAGS,
    transaction_outcome,
)

PAUSE_S: Final = 0.06


class StopSignals:
    """`quiet`: stop sending; `stop`: end."""

    def __init__(self) -> None:
        self.quiet, self.stop = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self.quiet.set)
        loop.add_signal_handler(signal.SIGTERM, self._stop)

    def _stop(self) -> None:
        self.quiet.set()
        self.stop.set()


class Sender:
    """Sends everything of one process."""

    def __init__(self, journal: Journal, rng: Random, ends: StopSignals) -> None:
        self._journal = journal
        self._rng = rng
        self._ends = ends
        self._count = 0
        self._checks: Counter[str] = Counter()

    async def run(self, namesrv: str) -> None:
        """Send until `quiet` is set, then respond to transaction checks until `stop` is set."""
        settings = ProducerSettings(send_timeout_s=self._rng.choice((0.5, 3.0)), retries=self._rng.choice((0, 2, 5)))
        async with Client(namesrv, CLIENT) as client:
            plain = Producer("producers", client=client, settings=settings)
            ending = TransactionProducer("enders", client=client, settings=settings, checker=self._check)
            async with plain, ending:
                self._plain, self._ending = plain, ending
                self._journal.record(Ready())
                rows = [self._single, self._single, self._batch, self._oneway, self._level, self._timer]
                rows += [self._transaction, self._transaction]
                keys = [f"{self._journal.name}/{n}" for n in range(4)]
                await asyncio.gather(*map(self._send_repeatedly, rows), *map(self._message_group, keys))
                await self._ends.stop.wait()

    async def _send_repeatedly(self, send: Callable[[], Awaitable[None]]) -> None:
        while not self._ends.quiet.is_set():
            await send()
            await asyncio.sleep(self._rng.expovariate(1 / PAUSE_S))

    async def _message_group(self, key: str) -> None:
        """Send messages of one message group, each after the response to the last one."""
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
            self._journal.record(sending)
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
        self._journal.record(sending)
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
        self._journal.record(sending)
        try:
            await self._ending.send_in_transaction(message, lambda _: self._local(sending.id))
        except ClientError as error:
            self._unsent(sending, error)

    async def _local(self, message_id: str) -> TransactionState:
        self._journal.record(Sent(id=message_id))
        if self._rng.random() < 0.003:
            self._journal.record(Process(name=self._journal.name, state="killing", why=KILLED_ITSELF))
            os.kill(os.getpid(), signal.SIGKILL)
        state = transaction_outcome(message_id) if self._rng.random() < 0.7 else TransactionState.UNKNOWN
        self._journal.record(Decided(id=message_id, state=state.name, by="local"))
        return state

    async def _check(self, message: MessageExt) -> TransactionState:
        message_id = id_of(message.payload())
        self._checks[message_id] += 1
        state = (
            transaction_outcome(message_id)
            if self._checks[message_id] > 1 or self._rng.random() < 0.7
            else TransactionState.UNKNOWN
        )
        self._journal.record(Decided(id=message_id, state=state.name, by="checker"))
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
        self._journal.record(sending)
        try:
            result = await send()
        except ClientError as error:
            self._unsent(sending, error)
        else:
            self._sent(sending, result)

    def _sent(self, sending: Sending, result: SendResult, nth: int = 0) -> None:
        if result.status is not SendStatus.OK:
            self._journal.record(Unsent(id=sending.id, why=result.status.name))
        elif sending.not_before_ms:
            self._journal.record(Sent(id=sending.id))
        else:
            self._journal.record(Sent(id=sending.id, queue_id=result.queue.queue_id, offset=result.queue_offset + nth))

    def _unsent(self, sending: Sending, error: ClientError) -> None:
        code = f" {error.code}" if isinstance(error, BrokerError) else ""
        self._journal.record(Unsent(id=sending.id, why=f"{type(error).__name__}{code}"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
