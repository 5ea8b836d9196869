"""Decode a byte stream into frames.

    offset  size  field
    0       4     length of what follows this word
    4       1     header dialect (docs/reference/wire.md, "Header dialects")
    5       3     header length H
    8       H     header
    8+H     rest  body

`FrameDecoder.feed` takes the bytes of a read, in pieces of any size, and returns every complete frame. Headers and
bodies are views into those bytes (or into the buffer in which the decoder assembled a split frame). Nothing is copied,
so frames are valid only within the event-loop iteration that returned them. The decoder keeps an incomplete frame in a
buffer that grows with the bytes that have arrived: a peer that announces 16 MiB and sends ten bytes uses ten bytes.
A length that no frame can have is refused once its four bytes have arrived.
All integers are big-endian and signed. Source: docs/reference/wire.md, "Frame".
"""

from struct import Struct
from typing import Final, TypeAlias

from skylarkmq.protocol.errors import ProtocolError

MAX_FRAME_BYTES: Final = 16_777_216
"""Size of the largest frame, including its length word."""
TLS_HANDSHAKE: Final = 0x16
"""First byte of a connection that speaks TLS. No frame begins with it."""

_PREFIX: Final = Struct(">iI")
_LENGTH_BYTES: Final = 4
_SMALLEST_LENGTH: Final = 4  # of a frame without header and body
_HEADER_LENGTH_MASK: Final = 0x00FF_FFFF


Frame: TypeAlias = tuple[int, memoryview, memoryview]
"""One undecoded frame: dialect byte, header and body (views, see the module docstring)."""


class FrameDecoder:
    """Splits a stream into frames.

    On bytes that are not a frame, `failure` is set to the reason and `feed` returns the valid frames before them. The
    broker still answers those requests, but the rest of the stream is unusable and the connection must be closed.
    """

    __slots__ = ("_max_frame_bytes", "_pending", "failure")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self.failure: ProtocolError | None = None

    def __repr__(self) -> str:
        return f"<FrameDecoder pending={len(self._pending)}>"

    @property
    def pending_bytes(self) -> int:
        """Number of bytes that the decoder keeps of an incomplete frame."""
        return len(self._pending)

    def feed(self, data: memoryview) -> list[Frame]:
        """Return the frames that `data` completes, oldest first; nothing after a failure."""
        frames: list[Frame] = []
        start = 0
        if self._pending or self.failure:
            start, whole = self._complete_pending(data)
            if whole is not None:
                word = int.from_bytes(whole[4:8], "big")
                body_start = 8 + (word & _HEADER_LENGTH_MASK)
                frames.append((word >> 24, whole[8:body_start], whole[body_start:]))
        end = len(data)
        unpack = _PREFIX.unpack_from
        while end - start >= 8:
            length, word = unpack(data, start)
            frame_end = start + 4 + length
            body_start = start + 8 + (word & _HEADER_LENGTH_MASK)
            if body_start > frame_end or frame_end - start > self._max_frame_bytes:
                self.failure = illegal_frame(length, word, self._max_frame_bytes)
                return frames
            if frame_end > end:
                break
            frames.append((word >> 24, data[start + 8 : body_start], data[body_start:frame_end]))
            start = frame_end
        if start < end:
            self._keep(data[start:])
        return frames

    def _complete_pending(self, data: memoryview) -> tuple[int, memoryview | None]:
        """Complete the pending frame with bytes of `data`; return how many it used, and the frame if it is whole."""
        if self.failure:
            return len(data), None
        pending = self._pending
        taken = min(max(0, _PREFIX.size - len(pending)), len(data))
        pending += data[:taken]
        if len(pending) < _PREFIX.size:
            self._check_length()
            return taken, None
        length: int
        word: int
        length, word = _PREFIX.unpack_from(pending)
        body_start = 8 + (word & _HEADER_LENGTH_MASK)
        frame_end = 4 + length
        if body_start > frame_end or frame_end > self._max_frame_bytes:
            self.failure = illegal_frame(length, word, self._max_frame_bytes)
            return len(data), None
        missing = min(frame_end - len(pending), len(data) - taken)
        pending += data[taken : taken + missing]
        if len(pending) < frame_end:
            return taken + missing, None
        self._pending = bytearray()
        return taken + missing, memoryview(pending)

    def _keep(self, rest: memoryview) -> None:
        """Keep the beginning of a frame for the next read."""
        self._pending += rest
        self._check_length()

    def _check_length(self) -> None:
        """Set `failure` if the pending bytes begin with a length that no frame can have."""
        if len(self._pending) < _LENGTH_BYTES:
            return
        length = int.from_bytes(self._pending[:_LENGTH_BYTES], "big", signed=True)
        if not _SMALLEST_LENGTH <= length <= self._max_frame_bytes - _LENGTH_BYTES:
            self.failure = ProtocolError(
                f"illegal frame: length {length}, at least {_SMALLEST_LENGTH} is expected, "
                f"limit {self._max_frame_bytes} bytes with the length word"
            )


def illegal_frame(length: int, word: int, max_frame_bytes: int) -> ProtocolError:
    """Return the error for a frame that begins with these two words."""
    return ProtocolError(
        f"illegal frame: length {length}, header length {word & _HEADER_LENGTH_MASK}, "
        f"limit {max_frame_bytes} bytes with the length word"
    )


def encode_frame(dialect: int, header: bytes, body: bytes | memoryview = b"") -> bytes:
    """Return one whole frame."""
    return b"".join((encode_prefix(dialect, len(header), len(body)), header, body))


def encode_prefix(dialect: int, header_length: int, body_length: int) -> bytes:
    """Return the eight bytes before the header, for a response whose body is written separately."""
    return _PREFIX.pack(4 + header_length + body_length, dialect << 24 | header_length)
