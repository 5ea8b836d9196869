"""Bytes in, frames out.

    offset  size  field
    0       4     length of what follows this word
    4       1     header dialect (docs/formats.md, "Header dialects")
    5       3     header length H
    8       H     header
    8+H     rest  body

`FrameDecoder` is fed whatever a read delivered and returns every frame that is complete. Headers and bodies are views
into the buffer it was fed with (or into the one in which it pieced a split frame together), so nothing is copied and
nothing may be kept beyond the turn in which it was returned. A frame that is still incomplete is kept in a buffer of
its own that grows with what has really arrived: a peer that announces 16 MiB and sends ten bytes costs ten bytes.
All integers are big-endian and signed. Source: docs/formats.md, "Frame".
"""

from struct import Struct
from typing import Final, TypeAlias

from skylarkmq.protocol.errors import ProtocolError

MAX_FRAME_BYTES: Final = 16_777_216
"""Largest frame, its length word included."""

_PREFIX: Final = Struct(">iI")
_HEADER_LENGTH_MASK: Final = 0x00FF_FFFF


Frame: TypeAlias = tuple[int, memoryview, memoryview]
"""One frame, undecoded: dialect byte, header and body (views, see the module's story)."""


class FrameDecoder:
    """Cuts a stream into frames.

    On bytes that are no frame, `failure` says why and `feed` returns what was good before them: those requests are
    still answered, but the stream is lost and its connection must be closed.
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
        """Bytes of the incomplete frame that this decoder holds."""
        return len(self._pending)

    def feed(self, data: memoryview) -> list[Frame]:
        """Return the frames that `data` completes, oldest first; nothing more after a failure."""
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
        self._pending += data[start:]
        return frames

    def _complete_pending(self, data: memoryview) -> tuple[int, memoryview | None]:
        """Add to the pending frame what it lacks: how many bytes of `data` that took, and the frame if it is whole."""
        if self.failure:
            return len(data), None
        pending = self._pending
        taken = min(max(0, _PREFIX.size - len(pending)), len(data))
        pending += data[:taken]
        if len(pending) < _PREFIX.size:
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


def illegal_frame(length: int, word: int, max_frame_bytes: int) -> ProtocolError:
    """What is wrong with a frame that begins with these two words."""
    return ProtocolError(
        f"illegal frame: length {length}, header length {word & _HEADER_LENGTH_MASK}, "
        f"limit {max_frame_bytes} bytes with the length word"
    )


def encode_frame(dialect: int, header: bytes, body: bytes | memoryview = b"") -> bytes:
    """One whole frame."""
    return b"".join((encode_prefix(dialect, len(header), len(body)), header, body))


def encode_prefix(dialect: int, header_length: int, body_length: int) -> bytes:
    """The eight bytes that precede the header, for answers whose body is written from elsewhere."""
    return _PREFIX.pack(4 + header_length + body_length, dialect << 24 | header_length)
