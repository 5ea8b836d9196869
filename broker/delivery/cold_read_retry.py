"""Cold-read retry: run a lookup, fetch the bytes that it missed, and run it again from the start.

A lookup that finds its data in memory is a plain call. One that raises ColdRead waits until a thread has read the
missing bytes, while other work goes on. It must not change any state before it has read everything that it needs.

    looked_up        lookups of the broker itself: transactions, timers
    serve_cold_reads handlers of requests; a request that waits keeps its slot in its pool

Source: docs/architecture.md, "Hot and cold data".
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.command import RemotingCommand

T = TypeVar("T")


async def looked_up(store: MessageStore, lookup: Callable[[], T]) -> T:
    """Return the result of `lookup`, run again after each ColdRead once `store` has fetched the missing bytes."""
    while True:
        try:
            return lookup()
        except ColdRead as cold:
            missed = cold
        await asyncio.shield(store.reader.fetch(missed))


def serve_cold_reads(store: MessageStore, handler: Processor) -> Processor:
    """Return a handler that runs `handler`, and becomes a coroutine if `handler` raises ColdRead."""

    def run(
        source: RequestSource, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        try:
            return handler(source, command)
        except ColdRead as cold:
            return run_again(source, command.detached(), cold, source.arrived_s)

    async def run_again(
        source: RequestSource, command: RemotingCommand, missed: ColdRead, arrived_s: float
    ) -> RemotingCommand | None:
        def again() -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
            source.arrived_s = arrived_s
            return handler(source, command)

        await asyncio.shield(store.reader.fetch(missed))
        response = await looked_up(store, again)
        return await response if inspect.isawaitable(response) else response

    return run
