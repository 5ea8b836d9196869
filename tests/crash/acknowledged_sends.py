"""Producers of the SDK that record every response: the id of the message, its place in the log, and the time."""

import asyncio
import time
from collections import Counter
from itertools import count, pairwise
from typing import Final, NamedTuple

from skylarkmq import BrokerError, Client, ClientError, Message, Producer, ProducerSettings, SendStatus
from skylarkmq.protocol.message_id import decode_offset_id

TOPIC: Final = "Faults"
SENDERS: Final = 8
PAUSE_S: Final = 0.02
"""Between the response to a message and the next one, of each sender."""
BODY_BYTES: Final = 1_024
STEADY: Final = 50


class Acknowledged(NamedTuple):
    """A message whose send was acknowledged with OK. `at_ns`: when, by CLOCK_MONOTONIC."""

    body: bytes
    offset: int
    at_ns: int


class Unacknowledged(NamedTuple):
    """A send with another result: the response code, or the name of the SDK's error."""

    result: str
    at_ns: int


class Load:
    """Sends from `start` to `stop`. Nothing is sent again: each send is one request."""

    def __init__(self, namesrv: str, pause_s: float) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.others: list[Unacknowledged] = []
        self._namesrv = namesrv
        self._pause_s = pause_s
        self._is_over = False
        self._is_steady = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Load acknowledged={len(self.acknowledged)} others={len(self.others)}>"

    async def start(self) -> None:
        """Begin, and wait until messages are acknowledged."""
        self._task = asyncio.create_task(self._run())
        steady = asyncio.create_task(self._is_steady.wait())
        await asyncio.wait((self._task, steady), return_when=asyncio.FIRST_COMPLETED)
        steady.cancel()
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Send nothing more, and wait for all responses."""
        self._is_over = True
        if self._task is not None:
            await self._task

    def longest_pause_s(self, begin_ns: int, end_ns: int) -> float:
        """Return the longest time without an acknowledgement, of those that overlap this time."""
        inside = [one.at_ns for one in self.acknowledged if begin_ns <= one.at_ns <= end_ns]
        before = [one.at_ns for one in self.acknowledged if one.at_ns < begin_ns]
        times = sorted((max(before, default=begin_ns), *inside, end_ns))
        return max(later - sooner for sooner, later in pairwise(times)) / 1e9

    def results(self, begin_ns: int, end_ns: int) -> Counter[str]:
        """Return how often each other result arrived in this time."""
        return Counter(one.result for one in self.others if begin_ns <= one.at_ns <= end_ns)

    async def _run(self) -> None:
        async with Client(self._namesrv) as client:
            settings = ProducerSettings(retries=0)
            async with Producer("faults", client=client, settings=settings) as producer:
                await asyncio.gather(*(self._send_repeatedly(producer, number) for number in range(SENDERS)))

    async def _send_repeatedly(self, producer: Producer, sender: int) -> None:
        for number in count():
            if self._is_over:
                return
            body = f"{sender}-{number} ".encode().ljust(BODY_BYTES, b".")
            await self._send(producer, body)
            await asyncio.sleep(self._pause_s)

    async def _send(self, producer: Producer, body: bytes) -> None:
        try:
            result = await producer.send(Message(TOPIC, body))
        except BrokerError as error:
            self.others.append(Unacknowledged(str(error.code), time.monotonic_ns()))
        except ClientError as error:
            self.others.append(Unacknowledged(type(error).__name__, time.monotonic_ns()))
        else:
            at_ns = time.monotonic_ns()
            if result.status is not SendStatus.OK:
                self.others.append(Unacknowledged(result.status.name, at_ns))
                return
            self.acknowledged.append(Acknowledged(body, decode_offset_id(result.offset_msg_id)[2], at_ns))
            if len(self.acknowledged) >= STEADY:
                self._is_steady.set()
