"""The common part of producers, consumers and Admin: a client, and its start and stop.

    start      the client, if it is their own -> join the group
    stop       leave the group -> the client, if it is their own

A participant either makes its own client, from the addresses of name servers, or uses a client that its owner starts
and closes.

A stop that is canceled does not wait for handlers of the application, and leaves no task behind. `stop` on a
participant that does not run does nothing. In the child of a fork an inherited participant raises ClientClosed, and its
`stop` does nothing (clients/sdk/connection/fork_safety.py).
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Self

import msgspec

from skylarkmq.clients.sdk.base.arguments import check_timeout, check_type, settings_of
from skylarkmq.clients.sdk.base.errors import ClientClosed, InvalidArgument
from skylarkmq.clients.sdk.base.settings import ClientSettings, TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.base.timeouts import within
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.connection.fork_safety import made_before_fork, register
from skylarkmq.clients.sdk.connection.options import SecurityOptions, StandaloneOptions
from skylarkmq.clients.sdk.telemetry.connection_events import ConnectionObserver


class Participant(ABC):
    """A producer, consumer or Admin: use it with `async with`, or `start` and `stop`."""

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
        """Join the group; connections open when they are needed. ClientClosed if it runs, or its client is closed."""
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
        """Finish running calls and handlers, leave the group, and close the client if it is this participant's own."""
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

    async def wait_stopped(self, *, timeout_s: float | None = None) -> None:
        """Wait until `stop` is complete: a service waits here while its handlers run.

        RequestTimeout after `timeout_s`; None waits without a limit.
        """
        self._check_process()
        check_timeout(timeout_s)
        async with within(timeout_s, "the wait for the stop"):
            await self._stopped.wait()

    def _observe_connections(self, observer: ConnectionObserver | None) -> None:
        """Notify the observer of the connections of this participant's own client. A shared client has its own."""
        if self._owns_client:
            self.client.observers.add(observer)

    def _check_process(self) -> None:
        """Raise ClientClosed if this process was forked after the participant was made."""
        if self._is_inherited:
            raise made_before_fork(f"this {type(self).__name__}")

    def _within(self, timeout_s: float | None, call: str) -> AbstractAsyncContextManager[None]:
        """Limit the time of a call, by default to `ClientSettings.call_timeout_s`. ClientClosed as `_check_process`."""
        self._check_process()
        check_timeout(timeout_s)
        return within(timeout_s or self.client.settings.call_timeout_s, call)

    def _check_running(self) -> None:
        """Raise ClientClosed unless the participant runs."""
        self._check_process()
        if not self._has_joined:
            raise ClientClosed(f"{self!r} is not running: use it inside `async with`, or call start()")

    def _forked(self) -> None:
        """Mark the participant as the parent's, in the child of a fork: calls fail, and `stop` does nothing."""
        self._is_inherited = True
        self._has_joined = False
        self.client.running.clear()

    @abstractmethod
    async def _join(self) -> None:
        """Join the group; the client is started."""

    @abstractmethod
    async def _leave(self) -> None:
        """Finish running calls and handlers, and leave the group."""


def client_settings(options: SecurityOptions, settings: ClientSettings | None = None) -> ClientSettings:
    """Return the settings with `tls` and `credentials` of the options. InvalidArgument if both name one of them."""
    settings = settings_of(settings, ClientSettings)
    for name, kinds in (("tls", (TlsSettings, ssl.SSLContext)), ("credentials", (Credentials,))):
        check_type(name, options.get(name), *kinds, type(None))
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
    check_type("client", client, Client)
    if any(options.get(name) is not None for name in ("namesrv", "tls", "credentials")):
        raise InvalidArgument("namesrv, tls and credentials belong to the client: leave them out where client is given")
    return client
