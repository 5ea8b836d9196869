"""Calls to clients: what the broker asks a client over the connection that the client opened, and waits for.

Clients of some languages never answer what they do not know, connections end meanwhile, and an operator's tool may ask
about thousands of clients at once. So a call costs one entry, until its answer, the end of its connection or its
timeout, whichever comes first; an answer that comes later finds nobody and is dropped. Two bounds, and no waiting for a
place: `MOST_FOR_ONE` calls wait for one client, `MOST` for all together. A client that does not read is asked nothing.

What is only told, and not asked (40, 39, 220), is `Connection.push`. Source: docs/formats.md, "Calls to clients".
"""

from typing import Final

import msgspec

from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol.command import RemotingCommand

MOST_FOR_ONE: Final = 1_024
MOST: Final = 16_384


class CallFailed(Exception):
    """There is no answer, and why."""


class CallTimeout(CallFailed):
    """There was none in time."""


class ClientCallsStatistics(msgspec.Struct, frozen=True):
    """`waiting` now; the others are totals since the start. `refused`: not even sent."""

    waiting: int
    answered: int
    timed_out: int
    failed: int
    refused: int


class ClientCalls:
    """Calls of one broker to its clients."""

    def __init__(self, most: int = MOST, most_for_one: int = MOST_FOR_ONE) -> None:
        self._most = most
        self._most_for_one = most_for_one
        self._waiting = 0
        self._answered = 0
        self._timed_out = 0
        self._failed = 0
        self._refused = 0

    def __repr__(self) -> str:
        return f"<ClientCalls waiting={self._waiting} answered={self._answered}>"

    def statistics(self) -> ClientCallsStatistics:
        """The figures now."""
        return ClientCallsStatistics(self._waiting, self._answered, self._timed_out, self._failed, self._refused)

    async def call(self, connection: Connection, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Ask a client and wait for what it answers, whatever its code. CallTimeout, CallFailed."""
        refusal = self._refusal(connection)
        if refusal is not None:
            self._refused += 1
            raise CallFailed(refusal)
        self._waiting += 1
        try:
            answer = await connection.invoke(command, timeout_s)
        except TimeoutError:
            self._timed_out += 1
            raise CallTimeout(f"no answer from {connection.peer} within {timeout_s * 1000:.0f} ms") from None
        except ConnectionError as error:
            self._failed += 1
            raise CallFailed(str(error)) from None
        finally:
            self._waiting -= 1
        self._answered += 1
        return answer

    def _refusal(self, connection: Connection) -> str | None:
        """Why a client is not asked; None: it is."""
        if connection.paused:
            return f"{connection.peer} does not read what it is sent"
        if connection.calls >= self._most_for_one:
            return f"{connection.calls} calls wait for {connection.peer} already"
        if self._waiting >= self._most:
            return f"{self._waiting} calls wait for clients already"
        return None
