"""Decode a byte stream into commands: frames and headers in one pass over the bytes of a read.

`CommandDecoder` is used like `FrameDecoder` (protocol.frame) and fails like it: it returns the commands before bytes
that are not a frame, or before an unreadable header, and `failure` is set to the reason.

The compiled module `decode` does the pass over whole frames where it is available. Both versions return equal commands.
Fast-path sends and pulls become `SendCommand`s and `PullCommand`s, or the corresponding compiled types. Bodies and raw
headers are views into the bytes passed to `feed_commands`.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Final

from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import Flag
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.frame import FrameDecoder, illegal_frame
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.pull_command import DECODERS as PULL_DECODERS
from skylarkmq.protocol.send_command import DECODERS as SEND_DECODERS
from skylarkmq.protocol.send_command import decode_general

_BEGINNING: Final = Struct(">iI12s")
_PREFIX: Final = Struct(">iI")
_LARGEST_JSON_WORD: Final = 0xFF_FFFF  # the dialect (JSON is 0) occupies the bits above the header's length
_RESPONSE: Final = Flag.RESPONSE
_UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, StructError)
_LONGEST_REASON: Final = 200
_decoder_for: Final = (SEND_DECODERS | PULL_DECODERS).get

DecodeFrames = Callable[[memoryview, int, int, list[RemotingCommand]], int]
"""`(data, start, max frame bytes, commands)`: append the commands of all whole frames from `start` on, and return the
position of the first incomplete frame. On ProtocolError `commands` contains the commands before the error."""


class CommandDecoder(FrameDecoder):
    """Splits a stream into commands."""

    __slots__ = ()

    def feed_commands(self, data: memoryview) -> list[RemotingCommand]:
        """Return the commands that `data` completes, oldest first; nothing after a failure."""
        commands: list[RemotingCommand] = []
        start = 0
        try:
            if self._pending or self.failure:
                start, whole = self._complete_pending(data)
                if whole is not None:
                    decode_whole_frames(whole, 0, self._max_frame_bytes, commands)
            start = decode_whole_frames(data, start, self._max_frame_bytes, commands)
        except ProtocolError as error:
            self.failure = error
            return commands
        except _UNREADABLE as error:  # an unforeseen error in a decoder: the peer's bytes count as invalid
            self.failure = ProtocolError(f"header not readable: {type(error).__name__}: {error}"[:_LONGEST_REASON])
            return commands
        if start < len(data):
            self._keep(data[start:])
        return commands


def python_decode_frames(data: memoryview, start: int, max_frame_bytes: int, commands: list[RemotingCommand]) -> int:
    """Append the commands of all whole frames; see `DecodeFrames`."""
    end = len(data)
    beginning, prefix, add = _BEGINNING.unpack_from, _PREFIX.unpack_from, commands.append
    last = end - _BEGINNING.size
    while end - start >= _PREFIX.size:
        length, word, begin = beginning(data, start) if start <= last else (*prefix(data, start), b"")
        frame_end = start + 4 + length
        body_start = start + 8 + (word & 0xFF_FFFF)
        if body_start > frame_end or frame_end - start > max_frame_bytes:
            raise illegal_frame(length, word, max_frame_bytes)
        if frame_end > end:
            break
        header, body = data[start + 8 : body_start], data[body_start:frame_end]
        start = frame_end
        decode = _decoder_for(begin)
        if decode is not None and word <= _LARGEST_JSON_WORD:
            try:
                plain = decode(header)
            except (ValueError, RecursionError):
                pass  # not the common layout
            else:
                if not plain.flag & _RESPONSE:
                    plain.raw_header = header
                    plain.body = body
                    add(plain)
                    continue
        command = decode_general((word >> 24, header, body))
        if command is not None:
            add(command)
    return start


_compiled: Final = compiled.load("decode")
decode_whole_frames: Final[DecodeFrames] = (
    python_decode_frames
    if _compiled is None
    else _compiled.Decoder(decode_general, illegal_frame, PullMessageHeader).decode
)
