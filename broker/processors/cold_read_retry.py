"""Requests that read what may be cold: run, and run again once it is in memory.

What is in memory is answered at once, by a plain call. Only a request that meets a cold place becomes something to be
awaited, holds its place in its pool, and lets everyone else go on. Handlers that are wrapped here change nothing before
they have read everything.
"""

import asyncio
import inspect
from collections.abc import Awaitable

from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.cold_reads import ColdRead
from skylarkmq.protocol.command import RemotingCommand


def patient(store: MessageStore, handler: Processor) -> Processor:
    """`handler`, run again each time that `store` has fetched what it missed."""

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
