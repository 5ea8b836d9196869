"""Request sources: a request's client, as the parts that serve the request see it.

    RequestSource    for processors, gates and parked pulls: address and certificate, time of arrival, response
    PausableSource   for the dispatcher and its pools: a source whose next requests can wait
    ClientChannel    for sessions, notifications and calls to clients: requests of the broker to a client

A `Connection` is all three. Another kind of call can be served in its place: processors, deliveries, tables and access
control use only the members below. Sources and channels are compared and hashed by identity. A source whose client is
gone is passed to the close listeners (`ConnectionRegistry.on_close`).
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

from skylarkmq.broker.remoting.sendfile import FileRegion
from skylarkmq.protocol.command import RemotingCommand


class ClientChannel(Hashable, Protocol):
    """A client that is connected, to which the broker can send requests."""

    peer: str  # host:port
    paused: bool  # its requests are not read, because it does not read its responses

    @property
    def closed(self) -> bool:
        """Return whether the client is gone or being disconnected."""

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that the client has not taken yet."""

    @property
    def calls(self) -> int:
        """Return the number of requests of the broker that wait for a response."""

    def write(self, data: bytes | memoryview) -> None:
        """Write an encoded oneway request."""

    def push(self, command: RemotingCommand) -> None:
        """Send a oneway request."""

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and return its response. Raises TimeoutError or ConnectionError if none arrives."""

    def close(self) -> None:
        """Write the remaining output, then disconnect the client."""

    def abort(self) -> None:
        """Disconnect the client at once, without writing the remaining output."""


class RequestSource(Hashable, Protocol):
    """The client of a request, to which the response is written."""

    peer: str  # host:port
    host: str
    peer_host: bytes  # host and port as stored in messages
    certificate_subject: str | None  # of the verified client certificate
    arrived_s: float  # time.monotonic at the arrival of the request; code that resumes a request restores it

    @property
    def closed(self) -> bool:
        """Return whether the client is gone or being disconnected."""

    @property
    def output_bytes(self) -> int:
        """Return all bytes that were written to this source."""

    @property
    def client(self) -> ClientChannel:
        """Return the channel for requests of the broker to this client."""

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Write the response to a request in its header dialect, unless the request is oneway or the client is gone."""

    def write(self, data: bytes | memoryview) -> None:
        """Write encoded responses; they are dropped if the client is gone."""

    def write_regions(self, regions: Sequence[FileRegion], head: bytes = b"") -> None:
        """Write the encoded response that consists of `head` and the regions after it."""

    def pause_reads(self) -> None:
        """Read no further requests until reads of all paused sources are resumed; responses are still written."""

    def busy_poll(self, times: int = 1) -> int:
        """Poll for an expected event before the event loop sleeps (`busy_polling.py`); return the limit in µs."""


class PausableSource(RequestSource, Protocol):
    """A source whose next requests can wait."""

    active_s: float  # the loop's time of the last read or write

    def hold(self, wait_s: float) -> None:
        """Read no further requests for `wait_s` seconds, then serve the deferred ones."""

    def defer(self, commands: list[RemotingCommand]) -> None:
        """Keep requests until the source can continue; no later request overtakes them."""

    def close(self) -> None:
        """Write the remaining output, then disconnect the client."""
