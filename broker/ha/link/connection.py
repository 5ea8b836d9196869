"""One TCP connection of a link: preface, handshake of the cluster secret, then messages in both directions.

    socket ─▶ [TLS] ─▶ FrameReader ─▶ Handshake, then `Owner.received`
    socket ◀─ [TLS] ◀─ transport   ◀─ `send`, `send_data`, or a transfer

A transport writes at the end of the event-loop iteration, and a producer waits for DATA and ACK. So they are written to
the socket at once while the transport holds nothing; it gets what the socket does not take. A lone frame of either type
that arrives whole is decoded without the reader.

Input is bounded: a frame of a peer has at most MAX_HANDSHAKE_BYTES until the handshake is complete, and then 1 MiB if
the peer connected, because only the leader sends the log.

Output is bounded. `backlog` is what the transport holds; above HIGH_BYTES `is_clogged` is true, and the sender of log
bytes waits for `Owner.drained`. A connection whose backlog exceeds MAX_BACKLOG_BYTES, or of which the peer took no byte
for STALLED_S, is cut: its peer does not read.

While a transfer uses the socket directly (`broker/ha/link/catch_up.py`), messages wait in order behind it.

All connections share one receive buffer, because each read is consumed at once. Only the rest of a frame that is larger
than this buffer is read into the frame's place.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final, Protocol, cast

from skylarkmq.broker.ha.core.messages import Message, Refused
from skylarkmq.broker.ha.link.frames import (
    MAX_CONTROL_BYTES,
    MAX_DATA_BYTES,
    MAX_HANDSHAKE_BYTES,
    PREFACE,
    Buffer,
    Challenge,
    Frame,
    FrameReader,
    LinkError,
    Proof,
    encode,
    last_ack,
    lone_data,
)
from skylarkmq.broker.ha.link.handshake import Handshake, HandshakeError
from skylarkmq.broker.remoting.sendfile import takes_files
from skylarkmq.broker.remoting.write_buffers import write_to_socket

HIGH_BYTES: Final = 8 << 20
LOW_BYTES: Final = 1 << 20
MAX_BACKLOG_BYTES: Final = 64 << 20
STALLED_S: Final = 10.0
GREETING_S: Final = 10.0
"""Time for TLS and the handshake, and on an accepted connection for the first message, too."""

log = logging.getLogger(__name__)


class Owner(Protocol):
    """The events of a connection."""

    def opened(self, connection: "LinkConnection") -> None:
        """The handshake is complete."""

    def received(self, connection: "LinkConnection", message: Message) -> None:
        """A message arrived."""

    def drained(self, connection: "LinkConnection") -> None:
        """The backlog is small again."""

    def ended(self, connection: "LinkConnection", reason: str) -> None:
        """The connection is closed. Called once."""


class LinkConnection(asyncio.BufferedProtocol):
    """`number` names the link. `connects`: this node opened the connection. `buffer` receives each read."""

    def __init__(self, number: int, owner: Owner, handshake: Handshake, buffer: memoryview, *, connects: bool) -> None:
        self.number = number
        self.connects = connects
        self.peer = self.address = ""
        self.violation = ""
        """The kind of the peer's violation that ended the connection."""
        self.certificate_subject: str | None = None
        self.is_greeted = False
        """Whether a message arrived after the handshake."""
        self._is_closed = False
        self.is_clogged = False
        self.bytes_sent = 0
        self.read_at = self.written_at = 0.0  # Unix time in seconds; 0: never
        self._owner = owner
        self._handshake = handshake
        self._buffer = buffer
        self._reader = FrameReader(MAX_HANDSHAKE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._fd = -1  # the transport's socket; -1 with TLS
        self._reason = "the peer closed the connection"
        self._held: list[bytes] | None = None  # frames that wait for a transfer to end
        self._opened_at = self._moved_at = asyncio.get_running_loop().time()
        self._taken = 0
        self._has_read = self._is_paused = False
        self._rest: memoryview | None = None  # where the current read goes, if not to `buffer`

    def __repr__(self) -> str:
        return f"<LinkConnection {self.number} {self.peer} closed={self.is_closed}>"

    @property
    def is_last(self) -> bool:
        """Whether no more bytes came with the message that is handled now."""
        return self._reader.is_last

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, or is about to once its output is written."""
        return self._is_closed

    # Output

    @property
    def transport(self) -> asyncio.Transport:
        """The transport: TLS or the socket's."""
        assert self._transport is not None, "not connected yet"
        return self._transport

    @property
    def backlog(self) -> int:
        """Bytes that the transport holds."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, message: Message) -> None:
        """Send a message."""
        self._send(encode(message))

    def send_data(self, head: bytes, payload: bytes | memoryview) -> None:
        """Send a DATA frame. `payload` must stay unchanged: the transport may keep it until it is written."""
        self._write([head, payload])

    def hold(self) -> None:
        """A transfer begins to use the socket: keep messages back until `release`. The backlog must be 0."""
        self._held = []

    def release(self, sent: int) -> None:
        """The transfer has sent this many bytes."""
        held, self._held = self._held, None
        self.bytes_sent += sent
        self._moved_at = asyncio.get_running_loop().time()
        if held and not self.is_closed:
            self._write([b"".join(held)])

    def refuse(self, reason: str, epoch: int = 0) -> None:
        """Send REFUSED with a reason, and close."""
        self.send(Refused(epoch, reason[:1000]))
        self.close(reason)

    def close(self, reason: str) -> None:
        """Close after what was sent before."""
        self._end(reason)
        if self._transport is not None:
            self._transport.close()

    def cut(self, reason: str) -> None:
        """Close at once."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def step(self, now: float) -> None:
        """Cut a connection whose peer does not read, or does not greet."""
        if self.is_closed:
            return
        taken = self.bytes_sent - self.backlog
        if taken != self._taken or not self.backlog:
            self._taken, self._moved_at = taken, now
        elif now - self._moved_at > STALLED_S:
            self.violation = "slow"
            self.cut(f"the peer took no byte for {STALLED_S:g} s")
        is_waiting = not self._handshake.done if self.connects else not self.is_greeted
        if is_waiting and now - self._opened_at > GREETING_S:
            self.violation = "silent"
            self.cut(f"no {'handshake' if self.connects else 'HELLO'} within {GREETING_S:g} s")

    def take_heard(self) -> bool:
        """Return whether bytes arrived since the last call, or reading is paused: the peer is not silent then."""
        has_read, self._has_read = self._has_read, False
        return has_read or self._is_paused

    def _send(self, frame: bytes) -> None:
        if self._held is not None:
            self._held.append(frame)
        else:
            self._write([frame])

    def _write(self, parts: list[bytes | memoryview]) -> None:
        transport = self._transport
        if transport is None or self._is_closed:
            return
        self.written_at = time.time()
        size = sum(map(len, parts))
        self.bytes_sent += size
        taken = 0
        if self._fd >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
            taken = write_to_socket(self._fd, parts)
        if taken == size:
            return
        transport.writelines(_without(parts, taken))
        if transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
            self.violation = "slow"
            self.cut(f"the peer does not read: {transport.get_write_buffer_size()} bytes wait for it")

    # Input

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.secured(cast(asyncio.Transport, transport))

    def secured(self, transport: asyncio.Transport) -> None:
        """Use this transport from now on, and begin."""
        self._transport = transport
        transport.set_write_buffer_limits(HIGH_BYTES, LOW_BYTES)
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.peer, self.address = str(host), f"{host}:{port}"
        self._fd = transport.get_extra_info("socket").fileno() if takes_files(transport) else -1
        if self.connects:
            self._begin()

    def _begin(self) -> bool:
        """Send the preface. Return whether the connection is still open."""
        self._write([PREFACE, *map(encode, self._handshake.begin())])
        if self._handshake.done:
            self._open()
        return not self._is_closed

    def _open(self) -> None:
        """The handshake is complete. Only a leader, to which the other side connects, sends the log."""
        self._reader.max_bytes = MAX_DATA_BYTES if self.connects else MAX_CONTROL_BYTES
        self._owner.opened(self)

    def get_buffer(self, size_hint: int) -> memoryview:
        del size_hint
        self._rest = self._reader.rest(len(self._buffer))
        return self._buffer if self._rest is None else self._rest

    def buffer_updated(self, nbytes: int) -> None:
        if self._rest is not None:
            self._receive(self._reader.filled(nbytes))
            return
        data = self._buffer[:nbytes]
        if self.is_greeted and not self._is_closed and self._reader.is_between:
            message = lone_data(data) if self.connects else last_ack(data)
            if message is not None:
                self.read_at = time.time()
                self._has_read = self._reader.is_last = True
                self._owner.received(self, message)
                return
        self.feed(data)

    def feed(self, data: Buffer) -> None:
        """Handle received bytes."""
        self._receive(self._reader.feed(data))

    def _receive(self, frames: Iterable[Frame]) -> None:
        if self.is_closed:
            return
        self.read_at = time.time()
        self._has_read = True
        try:
            # In TLS too, only after its handshake. Frames of a connection that the owner refuses have no effect.
            if not self.connects and not self.bytes_sent and not self._begin():
                return
            for frame in frames:
                if not self._arrived(frame):
                    return
        except HandshakeError as error:
            self.violation = "secret"
            if error.tells:
                self.refuse(str(error))
            else:
                self.close(str(error))
        except LinkError as error:
            self.violation = "frame"
            self.cut(str(error))

    def _arrived(self, frame: Frame) -> bool:
        """Handle a frame. Return whether the connection is still open."""
        handshake = self._handshake
        if not handshake.done or isinstance(frame, Challenge | Proof):
            for response in handshake.receive(frame):
                self._send(encode(response))
            if handshake.done:
                self._open()
        else:
            self.is_greeted = True
            self._owner.received(self, frame)
        return not self._is_closed

    def pause_reading(self) -> None:
        """Read no more, until `resume_reading`."""
        self._is_paused = True
        if self._transport is not None and not self.is_closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._is_paused = False
        if self._transport is not None and not self.is_closed:
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.is_clogged = True

    def resume_writing(self) -> None:
        self.is_clogged = False
        if not self.is_closed:
            self._owner.drained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(self._reason if exc is None else str(exc) or type(exc).__name__)

    def _end(self, reason: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._reason = reason
            self._owner.ended(self, reason)


def _without(parts: list[bytes | memoryview], taken: int) -> list[bytes | memoryview]:
    """Return the parts without their first `taken` bytes, as views. Copies, which `write_gathered` makes for responses,
    cost about a tenth of the leader's CPU with bodies of 1 KiB."""
    rest = []
    for part in parts:
        if taken < len(part):
            rest.append(part[taken:] if taken else part)
        taken = max(0, taken - len(part))
    return rest
