"""Retry of requests that need data which is not in memory.

A request that finds its data in memory is served at once, by a plain call. A request that raises ColdRead becomes a
coroutine: it keeps its slot in its pool, waits until a thread has read the data, and runs again from the start, while
other requests go on. A handler that is wrapped here must not change any state before it has read everything it needs.
"""

import asyncio
import inspect
from collections.abc import Awaitable

from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.store.cold_reads import ColdRead
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.command import RemotingCommand


def with_cold_read_retry(store: MessageStore, handler: Processor) -> Processor:
    """Return a handler that runs `handler`, and runs it again each time `store` has fetched the data that it missed."""

    def run(
        connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        try:
            return handler(connection, command)
        except ColdRead as cold:
            return run_again(connection, command.detached(), cold, connection.arrived_s)

    async def run_again(
        connection: Connection, command: RemotingCommand, missed: ColdRead, arrived_s: float
    ) -> RemotingCommand | None:
        while True:
            await asyncio.shield(store.fetch(missed))
            connection.arrived_s = arrived_s
            try:
                response = handler(connection, command)
            except ColdRead as cold:
                missed = cold
                continue
            return await response if inspect.isawaitable(response) else response

    return run
