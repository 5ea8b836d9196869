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
from abc import ABC, abstractmethod
from typing import Self

import msgspec

from skylarkmq.clients.connection.client import Client
from skylarkmq.clients.connection.connection_events import ConnectionObserver
from skylarkmq.clients.connection.fork_safety import made_before_fork, register
from skylarkmq.clients.errors import ClientClosed, InvalidArgument
from skylarkmq.clients.options import SecurityOptions, StandaloneOptions
from skylarkmq.clients.settings import ClientSettings


class Participant(ABC):
    """A member of a group as applications see it: `async with`, or `start` and `stop`."""

    def __init__(self, options: StandaloneOptions) -> None:
        shared = options.get("client")
        self._owns_client = shared is None
        self.client = _own_client(options) if shared is None else _shared_client(shared, options)
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
        self.client.check_usable()
        try:
            await self._join()
        except BaseException:
            if self._owns_client:
                await self.client.close()
            raise
        self._has_joined = True
        self.client.running.append(self)

    async def stop(self) -> None:
        """Finish what is under way, leave the group, and close the client if it is this participant's own."""
        if not self._has_joined:
            return
        self._has_joined = False
        self.client.running.remove(self)
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

    def _observe_connections(self, observer: ConnectionObserver | None) -> None:
        """Notify the observer of the connections of this participant's own client. A shared client has its own."""
        if self._owns_client:
            self.client.observers.add(observer)

    def _check_process(self) -> None:
        """ClientClosed if this process was forked since the participant was made."""
        if self._is_inherited:
            raise made_before_fork(f"this {type(self).__name__}")

    def _forked(self) -> None:
        """Belong to the parent, in the child of a fork: whatever is asked fails, and `stop` does nothing."""
        self._is_inherited = True
        self._has_joined = False
        self.client.running.clear()

    @abstractmethod
    async def _join(self) -> None:
        """Become a member of the group; the client is started."""

    @abstractmethod
    async def _leave(self) -> None:
        """Finish what is under way, and leave the group."""


def client_settings(options: SecurityOptions, settings: ClientSettings | None = None) -> ClientSettings:
    """Return the settings with `tls` and `credentials` of the options. InvalidArgument if both name one of them."""
    settings = settings or ClientSettings()
    for name in ("tls", "credentials"):
        given = options.get(name)
        if given is not None and getattr(settings, name) is not None:
            raise InvalidArgument(f"{name} is given twice, as an option and in ClientSettings: leave one of them out")
    return msgspec.structs.replace(
        settings,
        tls=options.get("tls") or settings.tls,
        credentials=options.get("credentials") or settings.credentials,
    )


def _own_client(options: StandaloneOptions) -> Client:
    namesrv = options.get("namesrv")
    if namesrv is None:
        raise InvalidArgument("give either namesrv='host:port' or client=...")
    return Client(namesrv, client_settings(options))


def _shared_client(client: Client, options: StandaloneOptions) -> Client:
    if any(options.get(name) is not None for name in ("namesrv", "tls", "credentials")):
        raise InvalidArgument("namesrv, tls and credentials belong to the client: leave them out where client is given")
    return client
