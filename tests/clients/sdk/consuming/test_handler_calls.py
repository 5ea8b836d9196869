"""Calls of a handler: time limits, results, statistics, and which functions are accepted."""

import asyncio
import json
import re
import threading
from contextvars import ContextVar
from functools import partial
from unittest.mock import AsyncMock

import pytest

from skylarkmq import (
    LATER,
    BlockingHandler,
    InvalidArgument,
    InvalidBody,
    InvalidMessage,
    InvalidResult,
    Later,
    MessageHandler,
    ReceivedMessage,
)
from skylarkmq.clients.sdk.consuming.consume_rates import ConsumeRates
from skylarkmq.clients.sdk.consuming.handler_calls import HandlerCalls, HandlerTimeout
from skylarkmq.clients.sdk.consuming.handlers import HandlerThreads, checked_handler
from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.received_message import received
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
    """The calls of a handler with a limit of 10 s, and a clock that a test advances."""

    def __init__(self, handler: MessageHandler) -> None:
        self.clock, self.rates = Clock(), ConsumeRates()
        self.tracker = OffsetTracker(0, queue=QUEUE)
        self.calls = HandlerCalls(handler, self.rates, 10.0, clock=self.clock)

    async def begin(self) -> "asyncio.Task[object]":
        task = asyncio.create_task(self.calls.call(received(message(), self.tracker)), name="work/0")
        await asyncio.sleep(0)
        return task


async def forever(_: MessageExt) -> None:
    await asyncio.Event().wait()


async def test_a_call_that_exceeds_the_limit_is_canceled() -> None:
    """Not earlier. It counts as failed, and its task continues."""
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


async def test_a_result_during_the_cancellation_is_honored() -> None:
    """The handler finished its work, and no other member had the message."""

    async def finishes(_: MessageExt) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)

    calls = Calls(finishes)
    task = await calls.begin()
    calls.clock.now_s += 11
    await calls.calls.enforce()
    await calls.calls.enforce()  # a second call has no effect
    assert await task is None
    assert (task.cancelling(), calls.rates.totals["T"].succeeded) == (0, 1)


async def test_a_cancellation_of_the_task_is_not_a_timeout() -> None:
    """Whether the limit has expired or not."""
    for expires in (False, True):
        calls = Calls(forever)
        task = await calls.begin()
        if expires:
            calls.clock.now_s += 11
            await calls.calls.enforce()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_the_limit_is_checked_when_the_next_call_may_expire() -> None:
    """Calls that begin later expire later."""
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


async def test_stacks_show_where_a_call_waits() -> None:
    """Message, queue, running time, and the frames of the awaited coroutines."""

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


async def test_results_are_counted() -> None:
    """`LATER` and exceptions are failures. The tracker has the start of the last call."""
    outcomes: list[Later | Exception | None] = [None, LATER, ValueError("bad")]

    async def handler(_: MessageExt) -> Later | None:
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
    assert calls.tracker.begun_s == calls.clock.now_s


@pytest.mark.parametrize("result", [True, False, "done", Later])
async def test_any_other_result_is_an_error_that_names_it(result: object) -> None:
    """Neither True nor False means success or failure; the class `Later` is not a `Later`."""

    async def handler(_: ReceivedMessage) -> Later | None:
        return result  # type: ignore[return-value]  # as an untyped program does

    calls = Calls(handler)
    with pytest.raises(InvalidResult, match=rf"returned {re.escape(repr(result))}: return None"):
        await (await calls.begin())
    assert (calls.rates.totals["T"].succeeded, calls.rates.totals["T"].failed) == (0, 1)


async def test_a_handler_gets_the_deserialized_value() -> None:
    """A deserializer that raises is an InvalidBody, and the handler is not called."""
    values: list[object] = []

    async def handler(received: ReceivedMessage) -> None:
        values.append(received.value)

    calls = HandlerCalls(handler, ConsumeRates(), None, json.loads)
    tracker = OffsetTracker(0, queue=QUEUE)
    good, bad = (received(message(), tracker) for _ in range(2))
    good.body = b'{"price": 4}'
    await calls.call(good)
    with pytest.raises(InvalidBody, match=r"queue_offset=7 .*: the deserializer failed: JSONDecodeError"):
        await calls.call(bad)
    assert values == [{"price": 4}]


async def test_a_message_of_a_handler_is_acknowledged_by_the_result_only() -> None:
    """`ack` and `nack` are for loops."""

    async def handler(received: ReceivedMessage) -> None:
        await received.ack()

    with pytest.raises(InvalidMessage, match="result of the handler"):
        await (await Calls(handler).begin())


def plain(_: ReceivedMessage) -> None:
    """A plain function."""


class AsyncHandler:
    async def __call__(self, _: ReceivedMessage) -> None:
        """An object with an async `__call__`."""


@pytest.mark.parametrize("handler", [forever, partial(forever), AsyncHandler(), AsyncMock()])
def test_async_handlers_are_accepted(handler: MessageHandler) -> None:
    """Functions, partials, objects, and mocks."""
    assert checked_handler(handler) is handler


@pytest.mark.parametrize("handler", [plain, print, 5])
def test_other_handlers_are_rejected(handler: object) -> None:
    """The error names both remedies."""
    with pytest.raises(InvalidArgument, match=r"not an `async def` function.*thread=True"):
        checked_handler(handler)


async def test_a_plain_function_runs_in_a_thread() -> None:
    """With the context variables of the consumer; its result counts."""
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("set")
    seen: list[tuple[str, bool]] = []

    def handler(_: ReceivedMessage) -> Later:
        seen.append((variable.get(), threading.current_thread() is threading.main_thread()))
        return LATER

    threads = HandlerThreads(handler, 1, "g")
    assert await (await Calls(threads.handle).begin()) is LATER
    assert seen == [("set", False)]
    threads.stop()


@pytest.mark.parametrize("handler", [forever, AsyncHandler(), None])
def test_threads_take_plain_functions_only(handler: BlockingHandler) -> None:
    """An `async def` function in a thread would do nothing."""
    with pytest.raises(InvalidArgument, match="not a plain function"):
        HandlerThreads(handler, 1, "g")
