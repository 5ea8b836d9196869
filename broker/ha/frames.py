"""The bytes of a link between two nodes: messages to frames and back.

A connection begins with PREFACE in both directions. Its first byte is above 0x7F, so it is never the first report of a
classic RocketMQ slave, which is an offset. Frames follow, big-endian:

    length   u32   of all that follows
    crc      u32   CRC-32 of what follows; of the head only, if UNCHECKED is set
    type     u8
    flags    u8
    -        u16   0

    HELLO, WELCOME, REFUSED   a map in MessagePack
    CHALLENGE                 32 random bytes
    PROOF                     32 bytes, an HMAC-SHA256 (broker/ha/link/handshake.py)
    BEAT                      epoch u64, committed u64
    ACK                       epoch u64, written u64, synced u64
    DATA                      epoch u64, offset u64, committed u64, bytes of the log

The head of DATA has 36 bytes with length and crc. UNCHECKED frames carry bytes that `sendfile` takes from a segment.
The records in them have checksums of their own.

Source: docs/formats.md, "Replication link".
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias, cast
from zlib import crc32

import msgspec

from skylarkmq.broker.ha.core.messages import Ack, Beat, Data, Hello, Message, Refused, Welcome
from skylarkmq.protocol.frame import MAX_FRAME_BYTES

PREFACE: Final = b"\xf3SKYLHA\x01"
"""The last byte is the version of the frames."""
UNCHECKED: Final = 1
MAX_CONTROL_BYTES: Final = 1 << 20
"""Largest frame without log bytes: an epoch history of 60,000 terms."""
MAX_DATA_BYTES: Final = MAX_FRAME_BYTES + (1 << 20)
"""Largest DATA frame: above the largest record of the log, whatever `maxMessageSize` is. A message arrives in a request
frame, whose largest size is MAX_FRAME_BYTES, and its record is at most 64 KiB larger."""
MAX_HANDSHAKE_BYTES: Final = 16 << 10
"""Largest frame before the end of the handshake: a HELLO without it, with texts of the largest size."""

CHALLENGE_BYTES: Final = 32
PROOF_BYTES: Final = 32

_HELLO, _WELCOME, _REFUSED, _DATA, _BEAT, _ACK, _CHALLENGE, _PROOF = range(1, 9)
_PREFIX: Final = Struct(">II")
_KIND: Final = Struct(">BBH")
_BEAT_BODY: Final = Struct(">QQ")
_ACK_BODY: Final = Struct(">QQQ")
_DATA_HEAD: Final = Struct(">QQQ")
_KIND_AND_DATA_HEAD: Final = Struct(">BBHQQQ")
DATA_HEAD_BYTES: Final = _PREFIX.size + _KIND_AND_DATA_HEAD.size
Buffer: TypeAlias = bytes | bytearray | memoryview

_encode: Final = msgspec.msgpack.Encoder().encode
_MAPS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    _HELLO: msgspec.msgpack.Decoder(Hello),
    _WELCOME: msgspec.msgpack.Decoder(Welcome),
    _REFUSED: msgspec.msgpack.Decoder(Refused),
}


class Challenge(msgspec.Struct, frozen=True):
    """Random bytes that the peer's proof has to cover. Sent before HELLO if a cluster secret is set."""

    nonce: bytes


class Proof(msgspec.Struct, frozen=True):
    """Shows that the sender has the cluster secret."""

    mac: bytes


Frame: TypeAlias = Message | Challenge | Proof


class LinkError(ValueError):
    """The peer's bytes are not a frame of this protocol: close the connection."""


def data_head(epoch: int, offset: int, committed: int, payload: Buffer) -> bytes:
    """Return the bytes before `payload` in a DATA frame."""
    body = _KIND_AND_DATA_HEAD.pack(_DATA, 0, 0, epoch, offset, committed)
    return _PREFIX.pack(4 + len(body) + len(payload), crc32(payload, crc32(body))) + body


def unchecked_data_head(epoch: int, offset: int, committed: int, size: int) -> bytes:
    """Return the bytes before `size` bytes of a segment, which are not part of the checksum."""
    body = _KIND_AND_DATA_HEAD.pack(_DATA, UNCHECKED, 0, epoch, offset, committed)
    return _PREFIX.pack(4 + len(body) + size, crc32(body)) + body


def encode(message: Frame) -> bytes:
    """Return a message as a frame. For DATA, `data_head` spares a copy of the payload."""
    match message:
        case Data(epoch, offset, committed, payload):
            return data_head(epoch, offset, committed, payload) + payload
        case Beat(epoch, committed):
            return _frame(_BEAT, _BEAT_BODY.pack(epoch, committed))
        case Ack(epoch, written, synced):
            return _frame(_ACK, _ACK_BODY.pack(epoch, written, synced))
        case Hello():
            return _frame(_HELLO, _encode(message))
        case Welcome():
            return _frame(_WELCOME, _encode(message))
        case Refused():
            return _frame(_REFUSED, _encode(message))
        case Challenge(nonce):
            return _frame(_CHALLENGE, nonce)
        case Proof(mac):
            return _frame(_PROOF, mac)


class FrameReader:
    """Splits the bytes of one direction into messages. At most one frame is kept in memory.

    `max_bytes`: the largest frame of any type that the peer may send now.
    """

    def __init__(self, max_bytes: int = MAX_DATA_BYTES) -> None:
        self.max_bytes = max_bytes
        self._pending = bytearray()
        self._has_preface = False

    def feed(self, data: Buffer) -> Iterator[Frame]:
        """Yield the messages that these bytes complete. Raises LinkError; the reader is of no use afterwards."""
        pending = self._pending
        pending += data
        at = 0
        if not self._has_preface:
            at = self._read_preface()
            if not at:
                return
        try:
            while (size := _frame_size(pending, at, self.max_bytes)) is not None:
                with memoryview(pending) as view, view[at : at + size] as frame:
                    message = _decode(frame)
                at += size
                yield message
        finally:
            del pending[:at]

    def _read_preface(self) -> int:
        start = bytes(self._pending[: len(PREFACE)])
        if not PREFACE.startswith(start):
            expected = f"Skylark's replication protocol, version {PREFACE[-1]}"
            raise LinkError(f"the peer does not begin with {expected}, but with {start!r}")
        self._has_preface = len(start) == len(PREFACE)
        return len(start) if self._has_preface else 0


def _secret_frame(kind: int, body: bytes) -> Challenge | Proof:
    if len(body) != (CHALLENGE_BYTES if kind == _CHALLENGE else PROOF_BYTES):
        raise LinkError(f"a frame of type {kind} with {len(body)} bytes of content")
    return Challenge(body) if kind == _CHALLENGE else Proof(body)


def _frame(kind: int, body: bytes) -> bytes:
    content = _KIND.pack(kind, 0, 0) + body
    return _PREFIX.pack(4 + len(content), crc32(content)) + content


def _frame_size(pending: bytearray, at: int, max_bytes: int) -> int | None:
    """Return the size of the frame at this position; None if it is not whole. Raises LinkError for a size that no
    frame has, as soon as its kind is there."""
    if len(pending) - at < _PREFIX.size + _KIND.size:
        return None
    length, _ = _PREFIX.unpack_from(pending, at)
    kind = pending[at + _PREFIX.size]
    limit = min(max_bytes, MAX_DATA_BYTES if kind == _DATA else MAX_CONTROL_BYTES)
    if not 4 + _KIND.size <= length <= limit:
        raise LinkError(f"a frame of type {kind} with {length} bytes")
    return 4 + length if len(pending) - at >= 4 + length else None


def _decode(frame: memoryview) -> Frame:
    """Return the message of a frame; it has copies of the frame's bytes."""
    _, crc = _PREFIX.unpack_from(frame)
    kind, flags, _ = _KIND.unpack_from(frame, _PREFIX.size)
    is_checked = not (kind == _DATA and flags & UNCHECKED)
    if crc32(frame[_PREFIX.size : None if is_checked else DATA_HEAD_BYTES]) != crc:
        raise LinkError(f"a frame of type {kind} with a wrong checksum")
    try:
        if kind == _DATA:
            epoch, offset, committed = _DATA_HEAD.unpack_from(frame, _PREFIX.size + _KIND.size)
            return Data(epoch, offset, committed, bytes(frame[DATA_HEAD_BYTES:]))
        body = bytes(frame[_PREFIX.size + _KIND.size :])
        if kind == _BEAT:
            return Beat(*_BEAT_BODY.unpack(body))
        if kind == _ACK:
            return Ack(*_ACK_BODY.unpack(body))
        if kind in (_CHALLENGE, _PROOF):
            return _secret_frame(kind, body)
        message = cast("Message", _MAPS[kind].decode(body))
    except KeyError:
        raise LinkError(f"a frame of the unknown type {kind}") from None
    except (msgspec.MsgspecError, StructError) as error:
        raise LinkError(f"a frame of type {kind} that is not readable: {error}") from error
    if isinstance(message, Hello | Welcome) and not message.epochs.is_ordered:
        raise LinkError(f"a frame of type {kind} with epochs that do not increase")
    return message
