"""Calls of a consumer's handler: which ones run, since when, and how long they may take.

A call that runs longer than `limit_s` is canceled, and its message counts as failed. The message is sent back after the
handler has ended, so two members never work on it at the same time. A handler may delay its cancellation to clean up;
a result that it returns then is honored. A thread cannot be canceled: a handler with `thread=True` runs on in its
thread while its message is sent back.

All calls have the same limit and are kept in the order of their start. So the first one is always the next to expire,
and a message needs no timer. Operators get the running calls with the line where each one waits
(GET_CONSUMER_RUNNING_INFO, 307).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.consuming.consume_rates import ConsumeRates
from skylarkmq.clients.sdk.consuming.handlers import MessageHandler
from skylarkmq.clients.sdk.consuming.later import Later
from skylarkmq.clients.sdk.consuming.received_message import Deserializer, ReceivedMessage, prepare
from skylarkmq.clients.sdk.consuming.stack_dump import stack_of

log = logging.getLogger(__name__)


class HandlerTimeout(ClientError):
    """The handler took too long, and was canceled."""


class InvalidResult(ClientError):
    """The handler returned something else than None or a `Later`."""


class Call(msgspec.Struct, eq=False):
    """A running call. `begun_s` is a time of the clock, `cancelling` the number of cancellations before it expired."""

    task: asyncio.Task[Any]
    message: ReceivedMessage
    begun_s: float
    expired: bool = False
    cancelling: int = 0


class HandlerCalls:
    """The calls of one consumer. `limit_s` None: no limit. `timed_out` is a total. `clock` returns seconds."""

    def __init__(
        self,
        handler: MessageHandler,
        rates: ConsumeRates,
        limit_s: float | None,
        deserializer: Deserializer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_s = limit_s
        self.timed_out = 0
        self._handler = handler
        self._deserializer = deserializer
        self._totals = rates.totals
        self._clock = clock
        self._running: dict[asyncio.Task[Any], Call] = {}

    def __repr__(self) -> str:
        return f"<HandlerCalls {len(self._running)} running, {self.timed_out} timed out>"

    async def call(self, message: ReceivedMessage, task: asyncio.Task[Any] | None = None) -> Later | None:
        """Call the handler with a message and return its result. `task`: the current task, if the caller has it.

        Raises HandlerTimeout, InvalidResult, InvalidBody if the handler cannot be called, and whatever it raises.
        """
        task = task or asyncio.current_task()
        assert task is not None
        tracker = message.tracker
        tracker.begun_s = begun_s = self._clock()
        call = self._running[task] = Call(task, message, begun_s)
        succeeded = False
        try:
            if self._deserializer is not None or message.error is not None:
                prepare(message, self._deserializer)
            result = await self._handler(message)
            if result is None:
                succeeded = True
            elif type(result) is not Later:
                raise invalid_result(result)
            return result
        except asyncio.CancelledError:
            if not call.expired or task.cancelling() - 1 > call.cancelling:
                raise
            raise HandlerTimeout(f"the handler took longer than consume_timeout_s={self.limit_s:g}") from None
        finally:
            del self._running[task]
            if call.expired:
                task.uncancel()
            totals = self._totals[tracker.queue.topic]
            totals.calls += 1
            totals.call_s += self._clock() - begun_s
            if succeeded:
                totals.succeeded += 1
            else:
                totals.failed += 1

    async def enforce(self) -> float | None:
        """Cancel the calls that exceed the limit. Return the seconds until the next one may."""
        now_s, limit_s = self._clock(), self.limit_s
        assert limit_s is not None
        for call in self._running.values():
            left_s = call.begun_s + limit_s - now_s
            if left_s > 0:
                return left_s
            if not call.expired:
                self._expire(call)
        return limit_s

    def stacks(self) -> Iterable[str]:
        """Return a text for each running call, oldest first: its message, and the line where it waits."""
        now_s = self._clock()
        for call in self._running.values():
            message, queue = call.message, call.message.tracker.queue
            head = f"{call.task.get_name()} msg_id={message.msg_id} queue={queue}"
            yield f"{head} running_s={now_s - call.begun_s:.3f}\n{stack_of(call.task)}"

    def _expire(self, call: Call) -> None:
        log.warning(
            "handler canceled, it took too long msg_id=%s queue=%s limit_s=%s",
            call.message.msg_id,
            call.message.tracker.queue,
            self.limit_s,
        )
        self.timed_out += 1
        call.expired, call.cancelling = True, call.task.cancelling()
        call.task.cancel()


def invalid_result(result: object) -> InvalidResult:
    """Return the error for a handler's result that is neither None nor a `Later`."""
    return InvalidResult(
        f"the handler returned {result!r:.100}: return None to acknowledge the message, or a Later to have it "
        "redelivered"
    )
