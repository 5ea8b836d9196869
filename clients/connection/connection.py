"""One connection to one address: many requests in flight, answers in any order.

    invoke / ask -> _outgoing    -> one write per loop turn         (or at once when FLUSH_BYTES have gathered)
    data_received   -> CommandDecoder -> every frame of the read -> future of its opaque, or handler of its code

A request is in `_pending` under its opaque, as who waits for its answer, mostly a future, together with the time at
which it is given up. No timer exists per request: one periodic check looks over the table while there is anything in
it, so a deadline is kept within CHECK_INTERVAL_S. A future that its owner cancelled stays in the table until answer or
deadline, and then goes unheard.

The read buffer is a `bytes` object of its own for each read, and the decoder's joined frames are too, so decoded bodies
(views) live as long as somebody holds them.

Back-pressure: when the transport has more than its high-water mark to write, or `max_in_flight` requests wait for their
answers, `ready()` waits; `ask` itself never does.

Requests are in JSON until the peer has said that it knows a denser dialect (`dialect`); who hands over whole frames
asks for it.

Either side may ask. A request of the peer goes to the handler of its code; without one it is answered 3, unless it is
oneway. When the connection ends, whatever is pending fails with ConnectionLost, and nothing more can be submitted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

import msgspec

from skylarkmq.clients.connection.fork_safety import detach, register
from skylarkmq.clients.connection.signing import Credentials
from skylarkmq.clients.errors import ClientError, ConnectionLost, RequestTimeout, name_of, printable
from skylarkmq.protocol.codes import Flag, RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.stream import CommandDecoder

CHECK_INTERVAL_S: Final = 0.1
FLUSH_BYTES: Final = 64 * 1024
MAX_UNSENT_BYTES: Final = 16 * 1024 * 1024  # of responses that the peer does not take
CLOSE_TIMEOUT_S: Final = 3.0
MAX_IN_FLIGHT: Final = 8192

log = logging.getLogger(__name__)

Handler = Callable[["Connection", RemotingCommand], RemotingCommand | None]
"""Serves a request of the peer, at once; None: no answer, or one that comes later by `Connection.respond`."""


class Reply(Protocol):
    """Who waits for an answer, and hears one of the two: a future, or something like it."""

    def done(self) -> bool:
        """Whether it wants to hear neither any more."""

    def set_result(self, answer: RemotingCommand, /) -> None:
        """This is the answer, whatever its code."""

    def set_exception(self, error: ClientError, /) -> None:
        """There is none: a bare RequestTimeout, or ConnectionLost."""


class ConnectionStatistics(msgspec.Struct, frozen=True):
    """One connection at one moment; counters are totals since it was opened."""

    peer: str
    in_flight: int
    requests: int
    responses: int
    timeouts: int
    served: int
    sent_bytes: int
    received_bytes: int


class Connection(asyncio.Protocol):
    """A client's end of a connection; `handlers` serve what the peer asks, by request code."""

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
        """The connection's figures now."""
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

    # ---------------------------------------------------------------------------------------------- requests of ours

    async def invoke(self, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and return its answer, whatever its code. RequestTimeout, ConnectionLost."""

        def frame(opaque: int) -> bytes:
            request.opaque = opaque
            request.dialect = self.dialect
            return encode_command(request)

        return await self.exchange(request.code, frame, timeout_s)

    async def exchange(self, code: int, frame: Callable[[int], bytes], timeout_s: float) -> RemotingCommand:
        """As `invoke`, of a request that is made of its opaque."""
        loop = self._loop
        deadline_s = loop.time() + timeout_s
        if self.busy:
            await self._ready_within(timeout_s)
        opaque = self.next_opaque()
        future: asyncio.Future[RemotingCommand] = loop.create_future()
        self.ask(opaque, frame(opaque), deadline_s, future)
        try:
            return await future
        except RequestTimeout as error:
            what = name_of(RequestCode, code)
            raise RequestTimeout(
                f"{self.peer} did not answer {what} within {timeout_s:g} s; it may have been carried out. "
                "Check the broker's load and the network, or allow more time.",
                broker=self.peer,
            ) from error

    async def send_oneway(self, request: RemotingCommand, timeout_s: float = 3.0) -> None:
        """Send a request without a response; done when it was handed to the transport. RequestTimeout."""
        if self.busy:
            await self._ready_within(timeout_s)
        request.opaque = self.next_opaque()
        request.dialect = self.dialect
        self.write(encode_command(request))

    def next_opaque(self) -> int:
        """The number of the next request: counts up within 31 bits."""
        self._opaque = opaque = (self._opaque + 1) & 0x7FFF_FFFF
        return opaque

    def ask(self, opaque: int, frame: bytes, deadline_s: float, reply: Reply) -> None:
        """Send an encoded request at the end of this turn; `reply` hears what comes of it until `deadline_s` (the
        loop's time). Does not wait: see `ready`. ConnectionLost if the connection has ended already.
        """
        self.write(frame)
        self._pending[opaque] = (reply, deadline_s)
        self._requests += 1
        if self._check is None:
            self._check = self._loop.call_later(CHECK_INTERVAL_S, self._check_deadlines)

    @property
    def busy(self) -> bool:
        """Whether a sender should wait for `ready` before it asks more."""
        return not self._writable or len(self._pending) >= self._max_in_flight

    async def ready(self) -> None:
        """Wait until the peer has taken and answered enough to be sent more; ConnectionLost if it never will."""
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
                f"{self.peer} took no more requests for {timeout_s:g} s; nothing was sent. "
                "Check the broker's load and the network, or allow more time.",
                broker=self.peer,
            ) from error

    def write(self, frame: bytes) -> None:
        """Queue a whole frame for this turn's write."""
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
            self._loop.call_soon(self._flush_turn)

    def expire(self, now_s: float) -> None:
        """Give up the requests whose time (the loop's) has come."""
        late = [opaque for opaque, (reply, deadline_s) in self._pending.items() if deadline_s <= now_s or reply.done()]
        for opaque in late:
            reply, _ = self._pending.pop(opaque)
            if not reply.done():
                self._timeouts += 1
                reply.set_exception(RequestTimeout(f"no answer from {self.peer}", broker=self.peer))
        if late:
            self._wake()

    def close(self) -> None:
        """End the connection now; what is pending fails."""
        self._lost("closed by this client")
        if self._transport is not None:
            self._transport.abort()

    async def close_gracefully(self) -> None:
        """Write what was queued, close, and wait until the transport is gone; CLOSE_TIMEOUT_S for a peer that does
        not read."""
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
        self._reason = "the parent's, before this process was forked"
        self._pending.clear()
        self._waiters.clear()
        self._outgoing.clear()

    def _check_deadlines(self) -> None:
        self._check = None
        if self._pending:
            self.expire(self._loop.time())
            self._check = self._loop.call_later(CHECK_INTERVAL_S, self._check_deadlines)

    def _flush_turn(self) -> None:
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
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self.heard_s = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Handle every frame that this read completes."""
        self._received_bytes += len(data)
        self.heard_s = self._loop.time()
        decoder = self._decoder
        try:
            for command in decoder.feed_commands(memoryview(data)):
                self._received(command)
            if decoder.failure is not None:
                raise decoder.failure
        except ProtocolError as error:
            log.warning("closing connection, its bytes are not understood peer=%s error=%s", self.peer, error)
            self._lost(f"closed, because its bytes were not understood: {error}")
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
            log.debug("answer to no pending request peer=%s opaque=%d code=%d", self.peer, command.opaque, command.code)
        elif not entry[0].done():
            entry[0].set_result(command)

    def _serve(self, request: RemotingCommand) -> None:
        self._served += 1
        handler = self._handlers.get(request.code)
        answer: RemotingCommand | None = None
        if handler is None:
            remark = f" request type {request.code} not supported"
            answer = RemotingCommand.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        else:
            try:
                answer = handler(self, request)
            except (RequestError, ProtocolError) as error:  # what the peer sent cannot be read
                log.warning(
                    "request of the peer refused peer=%s code=%d error=%s",
                    self.peer, request.code, printable(str(error)),
                )  # fmt: skip
                answer = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, printable(str(error)))
            except Exception as error:
                log.exception("request of the peer failed peer=%s code=%d", self.peer, request.code)
                answer = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if answer is not None:
            self.respond(request, answer)

    def respond(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        """Answer a request of the peer, unless it is oneway or the connection has ended. A peer that asks and does not
        read, until MAX_UNSENT_BYTES wait for it, is disconnected."""
        if request.is_oneway or self.closed:
            return
        if self._transport is not None and self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.warning("closing connection, the peer does not read the responses it asked for peer=%s", self.peer)
            self._lost("closed, because the peer did not read responses")
            self.close()
            return
        self.write(encode_command(answer.in_response_to(request)))

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
            f"the connection to {self.peer} was {self._reason}; what was asked may have been carried out. "
            "The next request opens it again.",
            broker=self.peer,
        )
