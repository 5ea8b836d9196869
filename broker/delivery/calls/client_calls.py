"""Requests of the broker to clients that need a response, over the connection that the client opened.

Clients of some languages never respond to request codes that they do not support, connections close, and an operator's
tool may query thousands of clients at once. So a call costs one entry until its response, the end of its connection or
its timeout, whichever comes first. A later response is dropped. Two limits apply, and calls beyond them fail at once:
`MOST_FOR_ONE` calls may wait for one client, `MOST` for all clients together. A client that does not read its
connection gets no calls.

One-way requests, CHECK_TRANSACTION_STATE (39), NOTIFY_CONSUMER_IDS_CHANGED (40) and RESET_CONSUMER_CLIENT_OFFSET (220),
use `ClientChannel.push`. Source: docs/reference/wire.md, "Calls to clients".
"""

from typing import Final

import msgspec

from skylarkmq.broker.remoting.request_source import ClientChannel
from skylarkmq.protocol.command import RemotingCommand

MOST_FOR_ONE: Final = 1_024
MOST: Final = 16_384


class CallFailed(Exception):
    """There is no response; the text is the reason."""


class CallTimeout(CallFailed):
    """There was no response in time."""


class ClientCallsStatistics(msgspec.Struct, frozen=True):
    """`waiting` now; the others are totals since the start. `refused`: calls that were not sent."""

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
        """Return the current figures."""
        return ClientCallsStatistics(self._waiting, self._answered, self._timed_out, self._failed, self._refused)

    async def call(self, channel: ClientChannel, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request to a client and return its response, whatever its code. Raises CallTimeout, CallFailed."""
        refusal = self._refusal(channel)
        if refusal is not None:
            self._refused += 1
            raise CallFailed(refusal)
        self._waiting += 1
        try:
            response = await channel.invoke(command, timeout_s)
        except TimeoutError:
            self._timed_out += 1
            raise CallTimeout(f"no response from {channel.peer} within {timeout_s * 1000:.0f} ms") from None
        except ConnectionError as error:
            self._failed += 1
            raise CallFailed(str(error)) from None
        finally:
            self._waiting -= 1
        self._answered += 1
        return response

    def _refusal(self, channel: ClientChannel) -> str | None:
        """Return why a call is not sent; None if it is sent."""
        if channel.paused:
            return f"{channel.peer} does not read its connection"
        if channel.calls >= self._most_for_one:
            return f"{channel.calls} calls wait for {channel.peer} already"
        if self._waiting >= self._most:
            return f"{self._waiting} calls wait for clients already"
        return None
