"""Calls of a consumer's handler: which run, since when, and how long they may.

A call that runs longer than `limit_s` is cancelled, and its message has failed: it goes back to the broker when the
handler has ended, so nobody else works on it at the same time. A handler may hold up its cancellation to clean up, and
if it returns after all, what it returns counts. A thread cannot be cancelled: the handlers of `clients.blocking` run on
in theirs, while the message goes back.

All calls have the same limit and are kept in the order of their begin, so the first is always the next to expire, and
a message costs no timer. What runs is told to operators (307), with the place where it waits.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from skylarkmq.clients.consuming.consume_rates import ConsumeRates
from skylarkmq.clients.consuming.offset_tracker import Progress
from skylarkmq.clients.consuming.send_back import Later
from skylarkmq.clients.consuming.stack_dump import stack_of
from skylarkmq.protocol.message import MessageExt

log = logging.getLogger(__name__)

MessageHandler = Callable[[MessageExt], Awaitable[object]]
"""Works on one message. It comes again if this raises, or returns a `Later`; any other result says that it is done."""


class HandlerTimeout(Exception):
    """The handler took too long, and was cancelled."""


class Call(msgspec.Struct, eq=False):
    """One that runs; `begun_s` is of the clock. `cancelling`: how often its task was cancelled before it expired."""

    task: asyncio.Task[Any]
    message: MessageExt
    progress: Progress
    begun_s: float
    expired: bool = False
    cancelling: int = 0


class HandlerCalls:
    """The calls of one consumer. `limit_s` None: they may take as long as they do. `timed_out` is a total; `clock`
    counts seconds.
    """

    def __init__(
        self,
        handler: MessageHandler,
        rates: ConsumeRates,
        limit_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_s = limit_s
        self.timed_out = 0
        self._handler = handler
        self._totals = rates.totals
        self._clock = clock
        self._running: dict[asyncio.Task[Any], Call] = {}

    def __repr__(self) -> str:
        return f"<HandlerCalls {len(self._running)} running, {self.timed_out} timed out>"

    async def call(self, message: MessageExt, progress: Progress, task: asyncio.Task[Any] | None = None) -> object:
        """What the handler returns. HandlerTimeout, or what it raises. `task`: the one that runs, to who knows it."""
        task = task or asyncio.current_task()
        assert task is not None
        progress.begun_s = begun_s = self._clock()
        call = self._running[task] = Call(task, message, progress, begun_s)
        succeeded = False
        try:
            result = await self._handler(message)
            succeeded = type(result) is not Later
            return result
        except asyncio.CancelledError:
            if not call.expired or task.cancelling() - 1 > call.cancelling:
                raise
            raise HandlerTimeout(f"the handler took longer than consume_timeout_s={self.limit_s:g}") from None
        finally:
            del self._running[task]
            if call.expired:
                task.uncancel()
            totals = self._totals[progress.queue.topic]
            totals.calls += 1
            totals.call_s += self._clock() - begun_s
            if succeeded:
                totals.succeeded += 1
            else:
                totals.failed += 1

    async def enforce(self) -> float | None:
        """Cancel what has run too long; returns how many seconds until the next may have."""
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
        """What runs and where it waits, a text for each call, oldest first."""
        now_s = self._clock()
        for call in self._running.values():
            head = f"{call.task.get_name()} msg_id={call.message.msg_id} queue={call.progress.queue}"
            yield f"{head} running_s={now_s - call.begun_s:.3f}\n{stack_of(call.task)}"

    def _expire(self, call: Call) -> None:
        log.warning(
            "handler cancelled, it took too long msg_id=%s queue=%s limit_s=%s",
            call.message.msg_id,
            call.progress.queue,
            self.limit_s,
        )
        self.timed_out += 1
        call.expired, call.cancelling = True, call.task.cancelling()
        call.task.cancel()
