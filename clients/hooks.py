"""What may look on while messages are sent, received and handled: for traces and metrics; costs nothing without.

    Producer(..., hooks=hooks)        sending      around each send, batch and oneway send, from its begin to its end
                                      ended        a transaction's end was told
    PushConsumer(..., hooks=hooks)    processing   around each call of the handler
    PullConsumer(..., hooks=hooks)    received     what `poll` returned, or a loop got
                                      consuming    a consumer has started

A subclass of `Hooks` overrides what it wants to know of. clients/telemetry has two: spans for OpenTelemetry and metrics
for Prometheus; clients/tracing.py has RocketMQ's own traces. `Several` puts hooks together.

Every send of a producer goes through `Observer.around`, also those that nobody waits for: the hook is entered when the
send begins and left when its result is there, both in one context (contextvars), so a span may be current inside. A
hook that fails is logged, and the send goes on.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import Context, copy_context
from typing import TypeVar

import msgspec

from skylarkmq.clients.producing.sends import SendResult
from skylarkmq.protocol.message import Message, MessageExt

T = TypeVar("T")

log = logging.getLogger(__name__)


class ObservedSend(msgspec.Struct):
    """A send on its way: one message, or those of a batch. Hooks may replace messages before it begins.

    `results` are there at the end, one for each request, unless it failed or is oneway.
    """

    messages: list[Message]
    group: str
    client_id: str
    namespace: str = ""
    oneway: bool = False
    results: Sequence[SendResult] = ()


class ObservedEnd(msgspec.Struct, frozen=True):
    """A transaction of which a broker was told the end: `state` is COMMIT or ROLLBACK, `by_checker`: it had asked."""

    message: Message | MessageExt
    group: str
    client_id: str
    msg_id: str
    offset_msg_id: str
    transaction_id: str
    state: str
    by_checker: bool
    namespace: str = ""


class ObservedProcess(msgspec.Struct):
    """A call of a handler; `succeeded` False at its end: it raised, or the message shall come again."""

    message: MessageExt
    group: str
    client_id: str
    namespace: str = ""
    broadcast: bool = False
    succeeded: bool = False


class Received(msgspec.Struct, frozen=True):
    """Messages that were handed over, and when waiting for them began (Unix time, s)."""

    messages: Sequence[MessageExt]
    group: str
    client_id: str
    begun_s: float
    namespace: str = ""


class Hooks:
    """One observer; each method does nothing here."""

    def sending(self, send: ObservedSend) -> AbstractContextManager[None]:  # noqa: ARG002 - for those who override
        """Around a send. An exception that passes is the send's."""
        return nullcontext()

    def ended(self, end: ObservedEnd) -> None:
        """The end of a transaction was told."""

    def processing(self, process: ObservedProcess) -> AbstractContextManager[None]:  # noqa: ARG002 - as above
        """Around a call of the handler. An exception that passes is the handler's."""
        return nullcontext()

    def received(self, received: Received) -> None:
        """Messages were handed to the application, by `poll` or in a loop."""

    def consuming(self, group: str, client_id: str, cached: Callable[[], tuple[int, int]]) -> None:
        """A consumer has started; `cached` tells at any time how many messages, and bytes of them, it holds."""


class Several(Hooks):
    """Hooks one inside the other, the first outermost."""

    def __init__(self, *hooks: Hooks) -> None:
        self._hooks = hooks

    def __repr__(self) -> str:
        return f"<Several {self._hooks}>"

    @contextmanager
    def sending(self, send: ObservedSend) -> Iterator[None]:
        """All of them around a send."""
        with ExitStack() as stack:
            for hooks in self._hooks:
                stack.enter_context(hooks.sending(send))
            yield

    def ended(self, end: ObservedEnd) -> None:
        """All of them are told."""
        for hooks in self._hooks:
            hooks.ended(end)

    @contextmanager
    def processing(self, process: ObservedProcess) -> Iterator[None]:
        """All of them around a call."""
        with ExitStack() as stack:
            for hooks in self._hooks:
                stack.enter_context(hooks.processing(process))
            yield

    def received(self, received: Received) -> None:
        """All of them are told."""
        for hooks in self._hooks:
            hooks.received(received)

    def consuming(self, group: str, client_id: str, cached: Callable[[], tuple[int, int]]) -> None:
        """All of them are told."""
        for hooks in self._hooks:
            hooks.consuming(group, client_id, cached)


def joined(*hooks: Hooks | None) -> Hooks | None:
    """Those that are given, as one; None if there are none."""
    given = [each for each in hooks if each is not None]
    return Several(*given) if len(given) > 1 else given[0] if given else None


class Observer:
    """Hooks around the sends of one producer."""

    def __init__(self, hooks: Hooks, group: str, client_id: str, namespace: str = "") -> None:
        self.hooks = hooks
        self._group = group
        self._client_id = client_id
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<Observer {self._group} {self.hooks}>"

    def around(
        self, messages: list[Message], begin: Callable[[list[Message]], "asyncio.Future[T]"], *, oneway: bool = False
    ) -> "asyncio.Future[T]":
        """What `begin` makes of the messages as the hooks leave them, and they hear of its end."""
        send = ObservedSend(messages, self._group, self._client_id, self._namespace, oneway)
        context = copy_context()
        return context.run(self._begin, send, begin, context)

    def ended(self, message: Message | MessageExt, ids: tuple[str, str, str], state: str, *, by_checker: bool) -> None:
        """The hooks hear of a transaction's end; `ids` are those of message, place and transaction."""
        end = ObservedEnd(message, self._group, self._client_id, *ids, state, by_checker, self._namespace)
        try:
            self.hooks.ended(end)
        except Exception:
            log.exception("hook failed behind a transaction")

    def _begin(
        self, send: ObservedSend, begin: Callable[[list[Message]], "asyncio.Future[T]"], context: Context
    ) -> "asyncio.Future[T]":
        around = self._entered(send)
        try:
            future = begin(send.messages)
        except BaseException:
            _leave(around, sys.exc_info()[1])
            raise
        future.add_done_callback(lambda done: _ended(send, around, done), context=context)
        return future

    def _entered(self, send: ObservedSend) -> AbstractContextManager[None]:
        around = self.hooks.sending(send)
        try:
            around.__enter__()
        except Exception:
            log.exception("hook failed before a send")
            return nullcontext()
        return around


def _ended(send: ObservedSend, around: AbstractContextManager[None], done: "asyncio.Future[T]") -> None:
    if done.cancelled():
        _leave(around, asyncio.CancelledError())
        return
    error = done.exception()
    if error is None:
        result = done.result()
        send.results = (result,) if isinstance(result, SendResult) else result if isinstance(result, list) else ()
    _leave(around, error)


def _leave(around: AbstractContextManager[None], error: BaseException | None) -> None:
    try:
        around.__exit__(None if error is None else type(error), error, None if error is None else error.__traceback__)
    except Exception as failure:
        if failure is not error:
            log.exception("hook failed behind a send")
