"""What producers and consumers have in common: a client, and when they take part.

    start      the client, if it is their own -> join
    stop       leave -> the client, if it is their own

A participant either makes a client of its own, from the addresses of name servers, or is given one that is started and
closed by its owner.

A stop that is cancelled is a stop in a hurry: it waits for nothing that the application runs, and leaves
nothing behind. Stopping what does not run does nothing. In the child of a fork an inherited participant raises
ClientClosed, and its `stop` does nothing (clients/connection/fork_safety.py).
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from typing import Self

from skylarkmq.clients.connection.client import Client, client_of
from skylarkmq.clients.connection.fork_safety import made_before_fork, register
from skylarkmq.clients.errors import ClientClosed
from skylarkmq.clients.settings import TlsSettings


class Participant(ABC):
    """A member of a group as applications see it: `async with`, or `start` and `stop`."""

    def __init__(self, namesrv: str | None, client: Client | None, tls: TlsSettings | ssl.SSLContext | None) -> None:
        self.client, self._owns_client = client_of(namesrv, client, tls)
        self._has_joined = False
        self._stopped = asyncio.Event()
        self._is_inherited = False
        register(self._forked)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Join the group; connections open when they are needed. ClientClosed if it was started before."""
        self._check_process()
        if self._has_joined:
            raise ClientClosed(f"{self!r} runs already")
        if self._owns_client:
            await self.client.start()
        try:
            await self._join()
        except BaseException:
            if self._owns_client:
                await self.client.close()
            raise
        self._has_joined = True

    async def stop(self) -> None:
        """Finish what is under way, leave the group, and close the client if it is this participant's own."""
        if not self._has_joined:
            return
        self._has_joined = False
        try:
            await self._leave()
        finally:
            if self._owns_client:
                await self.client.close()
            self._stopped.set()

    async def wait_stopped(self) -> None:
        """Wait until somebody has stopped it: what a service does whose work is done in handlers."""
        self._check_process()
        await self._stopped.wait()

    def _check_process(self) -> None:
        """ClientClosed if this process was forked since the participant was made."""
        if self._is_inherited:
            raise made_before_fork(f"this {type(self).__name__}")

    def _forked(self) -> None:
        """Belong to the parent, in the child of a fork: whatever is asked fails, and `stop` does nothing."""
        self._is_inherited = True
        self._has_joined = False

    @abstractmethod
    async def _join(self) -> None:
        """Become a member of the group; the client is started."""

    @abstractmethod
    async def _leave(self) -> None:
        """Finish what is under way, and leave the group."""
