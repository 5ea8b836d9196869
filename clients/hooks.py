"""What may look on while messages are sent and handled: for traces and metrics; costs nothing where there are none.

    Producer(..., hooks=hooks)        sending: around a send, from its call to its result
    PushConsumer(..., hooks=hooks)    processing: around each call of the handler

clients/telemetry has two: spans for OpenTelemetry and metrics for Prometheus. `Several` puts hooks together.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

import msgspec

from clients.sends import SendResult
from protocol.message import Message, MessageExt


class ObservedSend(msgspec.Struct):
    """A send: hooks may replace the message on the way in, and find the result on the way out, if there is one."""

    message: Message
    result: SendResult | None = None


class ObservedProcess(msgspec.Struct):
    """A call of a handler; `succeeded` False: it raised, or the message shall come again."""

    message: MessageExt
    succeeded: bool = False


class Hooks(Protocol):
    """One observer. `client_id` names the client that sends, or that received."""

    def sending(self, message: Message, client_id: str) -> AbstractContextManager[ObservedSend]:
        """Around a send. An exception that passes is the send's."""

    def processing(self, message: MessageExt, group: str, client_id: str) -> AbstractContextManager[ObservedProcess]:
        """Around a call of the handler. An exception that passes is the handler's."""

    def consuming(self, group: str, client_id: str, cached: Callable[[], tuple[int, int]]) -> None:
        """A consumer has started; `cached` tells at any time how many messages, and bytes of them, it holds."""


class Several:
    """Hooks one inside the other, the first outermost."""

    def __init__(self, *hooks: Hooks) -> None:
        self._hooks = hooks

    def __repr__(self) -> str:
        return f"<Several {self._hooks}>"

    @contextmanager
    def sending(self, message: Message, client_id: str) -> Iterator[ObservedSend]:
        """All of them around a send."""
        observed = ObservedSend(message)
        inner: list[ObservedSend] = []
        with ExitStack() as stack:
            for hooks in self._hooks:
                inner.append(stack.enter_context(hooks.sending(observed.message, client_id)))
                observed.message = inner[-1].message
            try:
                yield observed
            finally:
                for each in inner:
                    each.result = observed.result

    @contextmanager
    def processing(self, message: MessageExt, group: str, client_id: str) -> Iterator[ObservedProcess]:
        """All of them around a call."""
        observed = ObservedProcess(message)
        with ExitStack() as stack:
            inner = [stack.enter_context(hooks.processing(message, group, client_id)) for hooks in self._hooks]
            try:
                yield observed
            finally:
                for each in inner:
                    each.succeeded = observed.succeeded

    def consuming(self, group: str, client_id: str, cached: Callable[[], tuple[int, int]]) -> None:
        """All of them are told."""
        for hooks in self._hooks:
            hooks.consuming(group, client_id, cached)
