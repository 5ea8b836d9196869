"""Calls of a handler: how long they may take, and what is told of those that run."""

import asyncio

import pytest

from skylarkmq import LATER
from skylarkmq.clients.consuming.consume_rates import ConsumeRates
from skylarkmq.clients.consuming.handler_calls import HandlerCalls, HandlerTimeout, MessageHandler
from skylarkmq.clients.consuming.offset_tracker import Progress
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import MessageExt

QUEUE = MessageQueue("T", "broker-a", 3)


def message() -> MessageExt:
    return MessageExt(
        topic="T",
        queue_id=3,
        queue_offset=7,
        physical_offset=0,
        body=b"x",
        properties={"UNIQ_KEY": "ID"},
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=("127.0.0.1", 1),
        store_timestamp=0,
        store_host=("127.0.0.1", 1),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
        size=100,
    )


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


class Calls:
    """A handler's calls with a limit of 10 s, on a clock that stands still."""

    def __init__(self, handler: MessageHandler) -> None:
        self.clock, self.rates = Clock(), ConsumeRates()
        self.progress = Progress(0, queue=QUEUE)
        self.calls = HandlerCalls(handler, self.rates, 10.0, self.clock)

    async def begin(self) -> "asyncio.Task[object]":
        task = asyncio.create_task(self.calls.call(message(), self.progress), name="work/0")
        await asyncio.sleep(0)
        return task


async def forever(_: MessageExt) -> None:
    await asyncio.Event().wait()


async def test_a_call_that_takes_too_long_is_cancelled() -> None:
    """Not before its time; it has failed, and its task goes on."""
    calls = Calls(forever)
    task = await calls.begin()
    calls.clock.now_s += 9
    assert await calls.calls.enforce() == 1
    await asyncio.sleep(0)
    assert not task.done()
    calls.clock.now_s += 1
    assert await calls.calls.enforce() == 10
    with pytest.raises(HandlerTimeout, match="consume_timeout_s=10"):
        await task
    assert calls.calls.timed_out == 1
    assert task.cancelling() == 0
    assert (calls.rates.totals["T"].calls, calls.rates.totals["T"].failed) == (1, 1)


async def test_what_a_handler_returns_behind_its_time_counts() -> None:
    """It was told, finished what it did, and nobody else had the message."""

    async def finishes(_: MessageExt) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "done"

    calls = Calls(finishes)
    task = await calls.begin()
    calls.clock.now_s += 11
    await calls.calls.enforce()
    await calls.calls.enforce()  # once is enough
    assert await task == "done"
    assert (task.cancelling(), calls.rates.totals["T"].succeeded) == (0, 1)


async def test_a_cancellation_by_others_stays_one() -> None:
    """A consumer that stops does not wait for retries, whether the limit has come too or not."""
    for expires in (False, True):
        calls = Calls(forever)
        task = await calls.begin()
        if expires:
            calls.clock.now_s += 11
            await calls.calls.enforce()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_the_next_to_expire_is_waited_for() -> None:
    """Calls that begin later expire later, and those without a limit never."""
    calls = Calls(forever)
    first = await calls.begin()
    calls.clock.now_s += 4
    second = await calls.begin()
    assert await calls.calls.enforce() == 6
    calls.clock.now_s += 6
    assert await calls.calls.enforce() == 4
    with pytest.raises(HandlerTimeout):
        await first
    assert not second.done()
    second.cancel()


async def test_what_runs_is_shown_with_the_place_where_it_waits() -> None:
    """Message, queue, since when, and the frames of what it awaits."""

    async def inner() -> None:
        await asyncio.Event().wait()

    async def handler(_: MessageExt) -> None:
        await inner()

    calls = Calls(handler)
    task = await calls.begin()
    calls.clock.now_s += 2
    (text,) = calls.calls.stacks()
    head, _, frames = text.partition("\n")
    assert head == f"work/0 msg_id=ID queue={QUEUE} running_s=2.000"
    assert frames.index("in handler") < frames.index("in inner") < frames.index("in wait")
    task.cancel()


async def test_results_are_counted_by_what_they_mean() -> None:
    """LATER and exceptions are failures; the queue knows when work on it last began."""
    outcomes: list[object] = [None, LATER, ValueError("bad")]

    async def handler(_: MessageExt) -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    calls = Calls(handler)
    assert await (await calls.begin()) is None
    assert await (await calls.begin()) is LATER
    with pytest.raises(ValueError, match="bad"):
        await (await calls.begin())
    totals = calls.rates.totals["T"]
    assert (totals.calls, totals.succeeded, totals.failed) == (3, 1, 2)
    assert calls.progress.begun_s == calls.clock.now_s
