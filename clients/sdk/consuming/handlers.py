"""The handler of a consumer: which functions are accepted, and threads for blocking ones.

A handler is `async def handle(message)`. Its result decides about the message: None acknowledges it, a `Later` sends it
back. A plain function is rejected when the consumer is made, because a broker would redeliver its messages although
the work is done. With `thread=True` a plain function is right: it runs in a thread.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeAlias

from skylarkmq.clients.sdk.base.errors import InvalidArgument
from skylarkmq.clients.sdk.consuming.later import Later
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage

MessageHandler: TypeAlias = Callable[[ReceivedMessage], Awaitable[Later | None]]
"""Handles one message. If it raises, returns a `Later`, or returns anything else but None, the message is sent back."""

BlockingHandler: TypeAlias = Callable[[ReceivedMessage], Later | None]
"""The same as a plain function, for `thread=True`."""


def checked_handler(handler: Any) -> MessageHandler:
    """Return a handler that is `async def`, also as a method, a partial, or an object with an async `__call__`.

    Raises InvalidArgument for anything else.
    """
    if not _is_async(handler):
        raise InvalidArgument(
            f"handler={_name(handler)} is not an `async def` function. Make it one, or give thread=True to run a plain "
            "function in a thread."
        )
    accepted: MessageHandler = handler
    return accepted


class HandlerThreads:
    """Runs a plain function in up to `concurrency` threads, each call with the context variables of the consumer."""

    def __init__(self, handler: Any, concurrency: int, group: str) -> None:
        if not callable(handler) or _is_async(handler):
            raise InvalidArgument(
                f"handler={_name(handler)} with thread=True is not a plain function. Leave thread=True out to run an "
                "`async def` function."
            )
        self._handler: BlockingHandler = handler
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=f"handler-{group}")

    def __repr__(self) -> str:
        return f"<HandlerThreads {_name(self._handler)}>"

    async def handle(self, message: ReceivedMessage) -> Later | None:
        """Call the function in a thread and return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, copy_context().run, self._handler, message)

    def stop(self) -> None:
        """Start no more calls; a call that runs is not waited for."""
        self._threads.shutdown(wait=False)


def _is_async(handler: Any) -> bool:
    """Return whether `handler` is `async def`, or an object whose class has an async `__call__`."""
    call = inspect.getattr_static(type(handler), "__call__", None)
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def _name(handler: Any) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
