"""Hooks: callbacks of an application's observer, for traces, metrics and connection events. Without hooks they cost
nothing.

    Producer(..., hooks=hooks)        sending       around each send, batch and oneway send, from its start to its end
                                      ended         after the end of a transaction was sent to the broker
    PushConsumer(..., hooks=hooks)    processing    around each call of the handler
                                      received      a message that a loop received
    PullConsumer(..., hooks=hooks)    received      messages that `poll` returned, or that a loop received
    both consumers                    consuming     a consumer has started
    connect(..., hooks=hooks)         connected     a connection was opened
    all that have a client of their   disconnected  a connection was lost or closed
    own

Subclass `Hooks` and override the callbacks that you need. clients/sdk/telemetry has two: spans for OpenTelemetry and
metrics for Prometheus; clients/sdk/producing/tracing.py has the message traces of RocketMQ. `Several` combines hooks.

`Observer.around` wraps every send of a producer, also those that are not awaited: the hook is entered when the send
starts and left when its result is there, both in the same context (contextvars), so a span can be current inside. An
exception of a hook is logged, and the send continues.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import Context, copy_context
from typing import TypeVar

import msgspec

from skylarkmq.clients.sdk.messages.send_result import SendResult
from skylarkmq.clients.sdk.telemetry.connection_events import ConnectionEvent
from skylarkmq.protocol.message import Message, MessageExt

T = TypeVar("T")

log = logging.getLogger(__name__)


class ObservedSend(msgspec.Struct):
    """A send: one message, or the messages of a batch. Hooks may replace messages before it starts.

    `results` has one entry for each request at the end, and none if the send failed or is oneway.
    """

    messages: list[Message]
    group: str
    client_id: str
    namespace: str = ""
    oneway: bool = False
    results: Sequence[SendResult] = ()


class ObservedEnd(msgspec.Struct, frozen=True):
    """The end of a transaction, as it was sent to the broker. `state` is COMMIT or ROLLBACK. `by_checker`: it is the
    result of a transaction check."""

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
    """A call of a handler. `succeeded` is False at the end if it raised, or the message is redelivered."""

    message: MessageExt
    group: str
    client_id: str
    namespace: str = ""
    broadcast: bool = False
    succeeded: bool = False


class Received(msgspec.Struct, frozen=True):
    """Messages that the application received, and when it began to wait for them (Unix time, s)."""

    messages: Sequence[MessageExt]
    group: str
    client_id: str
    begun_s: float
    namespace: str = ""


class Hooks:
    """An observer whose methods do nothing."""

    def sending(self, send: ObservedSend) -> AbstractContextManager[None]:  # noqa: ARG002 - for subclasses
        """Return a context manager around a send. It sees the exception of a failed send."""
        return nullcontext()

    def ended(self, end: ObservedEnd) -> None:
        """The end of a transaction was sent to the broker."""

    def processing(self, process: ObservedProcess) -> AbstractContextManager[None]:  # noqa: ARG002 - as above
        """Return a context manager around a call of the handler. It sees the exception of the handler."""
        return nullcontext()

    def received(self, received: Received) -> None:
        """The application received messages, by `poll` or in a loop."""

    def consuming(self, group: str, client_id: str, cached: Callable[[], tuple[int, int]]) -> None:
        """A consumer has started. `cached` returns at any time how many messages it has in memory, and their bytes."""

    def connected(self, event: ConnectionEvent) -> None:
        """A connection was opened, for the first time or again."""

    def disconnected(self, event: ConnectionEvent) -> None:
        """A connection was lost, or closed by this client. It is opened again when a request needs it."""


class Several(Hooks):
    """Several hooks as one. Context managers are nested, the first one outermost."""

    def __init__(self, *hooks: Hooks) -> None:
        self._hooks = hooks

    def __repr__(self) -> str:
        return f"<Several {self._hooks}>"

    @contextmanager
    def sending(self, send: ObservedSend) -> Iterator[None]:
        """Return a context manager that enters all of them."""
        with ExitStack() as stack:
            for hooks in self._hooks:
                stack.enter_context(hooks.sending(send))
            yield

    def ended(self, end: ObservedEnd) -> None:
        """Call all of them."""
        for hooks in self._hooks:
            hooks.ended(end)

    @contextmanager
    def processing(self, process: ObservedProcess) -> Iterator[None]:
        """Return a context manager that enters all of them."""
        with ExitStack() as stack:
            for hooks in self._hooks:
                stack.enter_context(hooks.processing(process))
            yield

    def received(self, received: Received) -> None:
        """Call all of them."""
        for hooks in self._hooks:
            hooks.received(received)

    def consuming(self, group: str, client_id: str, cached: Callable[[], tuple[int, int]]) -> None:
        """Call all of them."""
        for hooks in self._hooks:
            hooks.consuming(group, client_id, cached)

    def connected(self, event: ConnectionEvent) -> None:
        """Call all of them."""
        for hooks in self._hooks:
            hooks.connected(event)

    def disconnected(self, event: ConnectionEvent) -> None:
        """Call all of them."""
        for hooks in self._hooks:
            hooks.disconnected(event)


def joined(*hooks: Hooks | None) -> Hooks | None:
    """Return the hooks that are not None, as one; None if there are none."""
    given = [each for each in hooks if each is not None]
    return Several(*given) if len(given) > 1 else given[0] if given else None


class Observer:
    """Calls the hooks of one producer."""

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
        """Start a send with the messages as the hooks leave them. Return its future; at its end the hooks are left."""
        send = ObservedSend(messages, self._group, self._client_id, self._namespace, oneway)
        context = copy_context()
        return context.run(self._begin, send, begin, context)

    def ended(self, message: Message | MessageExt, ids: tuple[str, str, str], state: str, *, by_checker: bool) -> None:
        """Call the hooks after the end of a transaction. `ids`: message id, offset message id, transaction id."""
        end = ObservedEnd(message, self._group, self._client_id, *ids, state, by_checker, self._namespace)
        try:
            self.hooks.ended(end)
        except Exception:
            log.exception("hook failed after a transaction")

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
            log.exception("hook failed after a send")
