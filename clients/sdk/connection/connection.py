"""One connection to one address: many requests in flight, responses in any order.

    invoke / submit -> _outgoing -> one write per event-loop iteration (or at once when FLUSH_BYTES are queued)
    data_received   -> CommandDecoder -> every frame of the read -> future of its opaque, or handler of its code

`_pending` maps the opaque of a request to the receiver of its response, mostly a future, and its deadline. No timer
exists per request: one periodic check scans the table while it has entries, so deadlines are accurate to
CHECK_INTERVAL_S. A future that its owner canceled stays in the table until the response or the deadline.

Each read has a `bytes` object of its own, and so do the joined frames of the decoder. So decoded bodies (views) stay
valid as long as they are referenced.

Back-pressure: `ready()` waits while the transport has more than its high-water mark to write, or while `max_in_flight`
requests have no response. `submit` itself never waits.

Requests use JSON until the peer announces a more compact dialect (`dialect`). Code that submits encoded frames reads
the attribute.

Both sides may send requests. A request of the peer is passed to the handler of its code; a code without a handler gets
REQUEST_CODE_NOT_SUPPORTED (3), unless the request is oneway. When the connection ends, pending requests fail with
ConnectionLost, and further requests are refused.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

import msgspec

from skylarkmq.clients.sdk.base.errors import ClientError, ConnectionLost, RequestTimeout, name_of, printable
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.connection.fork_safety import detach, register
from skylarkmq.protocol.codes import Flag, RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.stream import CommandDecoder

CHECK_INTERVAL_S: Final = 0.1
FLUSH_BYTES: Final = 64 * 1024
MAX_UNSENT_BYTES: Final = 16 * 1024 * 1024  # of responses that the peer does not read
CLOSE_TIMEOUT_S: Final = 3.0
MAX_IN_FLIGHT: Final = 8192

log = logging.getLogger(__name__)

Handler = Callable[["Connection", RemotingCommand], RemotingCommand | None]
"""Serves a request of the peer without waiting; None: no response, or a later one by `Connection.respond`."""


class Reply(Protocol):
    """The receiver of a response or an error: a future, or an object with the same methods."""

    def done(self) -> bool:
        """Return whether neither is needed any more."""

    def set_result(self, response: RemotingCommand, /) -> None:
        """Take the response, whatever its code."""

    def set_exception(self, error: ClientError, /) -> None:
        """Take the error of a request without a response: a RequestTimeout, or ConnectionLost."""


class ConnectionStatistics(msgspec.Struct, frozen=True):
    """The figures of a connection; the counters are totals since it was opened."""

    peer: str
    in_flight: int
    requests: int
    responses: int
    timeouts: int
    served: int
    sent_bytes: int
    received_bytes: int


class Connection(asyncio.Protocol):
    """The client's end of a connection. `handlers` serve the requests of the peer, by request code."""

    def __init__(
        self,
        peer: str,
        handlers: Mapping[int, Handler],
        on_closed: Callable[["Connection"], None],
        max_in_flight: int = MAX_IN_FLIGHT,
        credentials: Credentials | None = None,
    ) -> None:
        self.peer = peer
        self.dialect = JSON
        self.closed = False
        self.heard_s = 0.0
        self._handlers = handlers
        self._on_closed = on_closed
        self._max_in_flight = max_in_flight
        self._credentials = credentials
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = CommandDecoder()
        self._pending: dict[int, tuple[Reply, float]] = {}
        self._opaque = 0
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._flush_scheduled = False
        self._check: asyncio.TimerHandle | None = None
        self._writable = True
        self._waiters: list[asyncio.Future[None]] = []
        self._gone = self._loop.create_future()
        self._reason = "closed by this client"
        self._requests = self._responses = self._timeouts = self._served = 0
        self._sent_bytes = self._received_bytes = 0
        register(self.forked)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._pending)} in flight"
        return f"<Connection {self.peer} {state}>"

    @property
    def reason(self) -> str:
        """Why the connection is closed."""
        return self._reason

    def statistics(self) -> ConnectionStatistics:
        """Return the connection's figures now."""
        return ConnectionStatistics(
            peer=self.peer,
            in_flight=len(self._pending),
            requests=self._requests,
            responses=self._responses,
            timeouts=self._timeouts,
            served=self._served,
            sent_bytes=self._sent_bytes,
            received_bytes=self._received_bytes,
        )

    # ---------------------------------------------------------------------------------------------------- requests

    async def invoke(self, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and return its response, whatever its code. RequestTimeout, ConnectionLost."""

        def frame(opaque: int) -> bytes:
            request.opaque = opaque
            request.dialect = self.dialect
            return encode_command(request)

        return await self.exchange(request.code, frame, timeout_s)

    async def exchange(self, code: int, frame: Callable[[int], bytes], timeout_s: float) -> RemotingCommand:
        """Send the request that `frame` encodes for an opaque, and return its response. Errors as of `invoke`."""
        loop = self._loop
        deadline_s = loop.time() + timeout_s
        if self.busy:
            await self._ready_within(timeout_s)
        opaque = self.next_opaque()
        future: asyncio.Future[RemotingCommand] = loop.create_future()
        self.submit(opaque, frame(opaque), deadline_s, future)
        try:
            return await future
        except RequestTimeout as error:
            what = name_of(RequestCode, code)
            raise RequestTimeout(
                f"no response from {self.peer} to {what} within {timeout_s:g} s; the request may have been executed. "
                "Check the broker's load and the network, or allow more time.",
                broker=self.peer,
            ) from error

    async def send_oneway(self, request: RemotingCommand, timeout_s: float = 3.0) -> None:
        """Send a request without a response; return when it is passed to the transport. RequestTimeout."""
        if self.busy:
            await self._ready_within(timeout_s)
        request.opaque = self.next_opaque()
        request.dialect = self.dialect
        self.write(encode_command(request))

    def next_opaque(self) -> int:
        """Return the number of the next request: a 31-bit counter."""
        self._opaque = opaque = (self._opaque + 1) & 0x7FFF_FFFF
        return opaque

    def submit(self, opaque: int, frame: bytes, deadline_s: float, reply: Reply) -> None:
        """Send an encoded request at the end of this event-loop iteration; `reply` receives the response or an error.

        `deadline_s` is in the loop's time. Does not wait: see `ready`. ConnectionLost if the connection has ended.
        """
        self.write(frame)
        self._pending[opaque] = (reply, deadline_s)
        self._requests += 1
        if self._check is None:
            self._check = self._loop.call_later(CHECK_INTERVAL_S, self._check_deadlines)

    @property
    def busy(self) -> bool:
        """Return whether a caller should wait for `ready` before it sends more requests."""
        return not self._writable or len(self._pending) >= self._max_in_flight

    async def ready(self) -> None:
        """Wait until the connection accepts more requests. ConnectionLost if it ends before."""
        while self.busy:
            if self.closed:
                raise self._end()
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    async def _ready_within(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.ready()
        except TimeoutError as error:
            raise RequestTimeout(
                f"{self.peer} accepted no request for {timeout_s:g} s; nothing was sent. "
                "Check the broker's load and the network, or allow more time.",
                broker=self.peer,
            ) from error

    def write(self, frame: bytes) -> None:
        """Queue an encoded frame for the write at the end of this event-loop iteration."""
        if self.closed:
            raise self._end()
        if self._credentials is not None:
            frame = self._credentials.signed_frame(frame)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        if self._outgoing_bytes >= FLUSH_BYTES:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_scheduled_frames)

    def expire(self, now_s: float) -> None:
        """Fail the requests whose deadline (in the loop's time) has passed."""
        late = [opaque for opaque, (reply, deadline_s) in self._pending.items() if deadline_s <= now_s or reply.done()]
        for opaque in late:
            reply, _ = self._pending.pop(opaque)
            if not reply.done():
                self._timeouts += 1
                reply.set_exception(RequestTimeout(f"no response from {self.peer}", broker=self.peer))
        if late:
            self._wake()

    def close(self) -> None:
        """End the connection now; pending requests fail."""
        self._lost("closed by this client")
        if self._transport is not None:
            self._transport.abort()

    async def close_gracefully(self) -> None:
        """Write the queued frames, close, and wait for the end of the transport, at most CLOSE_TIMEOUT_S."""
        if self._transport is None or self.closed:
            self.close()
            return
        self._flush()
        self._transport.close()
        await asyncio.wait([self._gone], timeout=CLOSE_TIMEOUT_S)
        if not self._gone.done():
            self.close()

    def forked(self) -> None:
        """Give up the parent's socket, in the child of a fork."""
        if self._transport is not None and not self._transport.is_closing():
            detach(self._transport.get_extra_info("socket").fileno())
        self.closed = True
        self._reason = "opened by the parent, before this process was forked"
        self._pending.clear()
        self._waiters.clear()
        self._outgoing.clear()

    def _check_deadlines(self) -> None:
        self._check = None
        if self._pending:
            self.expire(self._loop.time())
            self._check = self._loop.call_later(CHECK_INTERVAL_S, self._check_deadlines)

    def _flush_scheduled_frames(self) -> None:
        self._flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        outgoing = self._outgoing
        if outgoing and self._transport is not None:
            self._outgoing = []
            self._sent_bytes += self._outgoing_bytes
            self._outgoing_bytes = 0
            self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _wake(self) -> None:
        if self._waiters and not self.busy:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # ------------------------------------------------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self.heard_s = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Process every frame that this read completes."""
        self._received_bytes += len(data)
        self.heard_s = self._loop.time()
        decoder = self._decoder
        try:
            for command in decoder.feed_commands(memoryview(data)):
                self._received(command)
            if decoder.failure is not None:
                raise decoder.failure
        except ProtocolError as error:
            log.warning("closing connection, its data cannot be decoded peer=%s error=%s", self.peer, error)
            self._lost(f"closed, because its data could not be decoded: {error}")
            self.close()
        self._wake()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(f"lost: {exc}" if exc else "closed by the peer")
        if not self._gone.done():
            self._gone.set_result(None)

    def _received(self, command: RemotingCommand) -> None:
        if not command.flag & Flag.RESPONSE:
            self._serve(command)
            return
        self._responses += 1
        entry = self._pending.pop(command.opaque, None)
        if entry is None:
            log.debug(
                "response without a pending request peer=%s opaque=%d code=%d",
                self.peer, command.opaque, command.code,
            )  # fmt: skip
        elif not entry[0].done():
            entry[0].set_result(command)

    def _serve(self, request: RemotingCommand) -> None:
        self._served += 1
        handler = self._handlers.get(request.code)
        response: RemotingCommand | None = None
        if handler is None:
            remark = f" request type {request.code} not supported"
            response = RemotingCommand.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        else:
            try:
                response = handler(self, request)
            except (RequestError, ProtocolError) as error:  # the request cannot be decoded
                log.warning(
                    "request from the peer refused peer=%s code=%d error=%s",
                    self.peer, request.code, printable(str(error)),
                )  # fmt: skip
                response = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, printable(str(error)))
            except Exception as error:
                log.exception("request from the peer failed peer=%s code=%d", self.peer, request.code)
                response = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if response is not None:
            self.respond(request, response)

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Send a response to a request of the peer, unless it is oneway or the connection has ended.

        A peer that does not read its responses is disconnected when MAX_UNSENT_BYTES of them are queued.
        """
        if request.is_oneway or self.closed:
            return
        if self._transport is not None and self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.warning("closing connection, the peer does not read its responses peer=%s", self.peer)
            self._lost("closed, because the peer did not read responses")
            self.close()
            return
        self.write(encode_command(response.in_response_to(request)))

    def _lost(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._reason = reason
        if self._check is not None:
            self._check.cancel()
            self._check = None
        waiting: list[Reply | asyncio.Future[None]] = [reply for reply, _ in self._pending.values()]
        waiting += self._waiters
        self._pending.clear()
        self._waiters.clear()
        self._outgoing.clear()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(self._end())
        self._on_closed(self)

    def _end(self) -> ConnectionLost:
        return ConnectionLost(
            f"the connection to {self.peer} was {self._reason}; pending requests may have been executed. "
            "The next request opens a new connection.",
            broker=self.peer,
        )
