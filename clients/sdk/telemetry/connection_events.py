"""Connections that a client opens and loses, as its observers see them (clients/sdk/telemetry/hooks.py)."""

import logging
from typing import Protocol

import msgspec

log = logging.getLogger(__name__)


class ConnectionEvent(msgspec.Struct, frozen=True):
    """A connection that was opened or lost. `reason` is empty for an opened one."""

    address: str  # host:port
    is_name_server: bool
    client_id: str
    reason: str = ""


class ConnectionObserver(Protocol):
    """Is called about the connections of a client. Calls must not block."""

    def connected(self, event: ConnectionEvent) -> None:
        """A connection was opened, for the first time or again."""

    def disconnected(self, event: ConnectionEvent) -> None:
        """A connection was lost, or closed by this client. It is opened again when a request needs it."""


class ConnectionObservers:
    """The observers of one client, each once. An exception of an observer is logged."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._observers: list[ConnectionObserver] = []

    def __repr__(self) -> str:
        return f"<ConnectionObservers {self._observers}>"

    def add(self, observer: ConnectionObserver | None) -> None:
        """Add an observer, unless it is None or was added before."""
        if observer is not None and observer not in self._observers:
            self._observers.append(observer)

    def connected(self, address: str, *, is_name_server: bool) -> None:
        """Notify all observers of an opened connection."""
        event = ConnectionEvent(address, is_name_server, self._client_id)
        for observer in self._observers:
            try:
                observer.connected(event)
            except Exception:
                log.exception("hook failed after a connect peer=%s", address)

    def disconnected(self, address: str, reason: str, *, is_name_server: bool) -> None:
        """Notify all observers of a lost or closed connection."""
        event = ConnectionEvent(address, is_name_server, self._client_id, reason)
        for observer in self._observers:
            try:
                observer.disconnected(event)
            except Exception:
                log.exception("hook failed after a disconnect peer=%s", address)
