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

Source: docs/reference/wire.md, "Replication link".
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias, cast

import msgspec
from isal.isal_zlib import crc32

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
VIEWED_BYTES: Final = 256 << 10
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
_THREE_NUMBERS: Final = Struct(">IIIQQQ")  # all of an ACK, and the head of DATA: length, crc, kind, numbers
_ACK_KIND: Final = _ACK << 24
_DATA_KIND: Final = _DATA << 24
ACK_BYTES: Final = _THREE_NUMBERS.size
_HEAD_BYTES: Final = _PREFIX.size + _KIND.size
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


def last_ack(data: Buffer) -> Ack | None:
    """Return the last message of these bytes if they are whole ACKs, otherwise None. Each ACK replaces those before."""
    ack = None
    if len(data) % ACK_BYTES:
        return None
    for at in range(0, len(data), ACK_BYTES):
        length, crc, kind, epoch, written, synced = _THREE_NUMBERS.unpack_from(data, at)
        if length != ACK_BYTES - 4 or kind != _ACK_KIND or crc32(data[at + _PREFIX.size : at + ACK_BYTES]) != crc:
            return None
        ack = Ack(epoch, written, synced)
    return ack


def lone_data(data: memoryview) -> Data | None:
    """Return the message if these bytes are one whole frame of DATA with its checksum, otherwise None."""
    if len(data) < DATA_HEAD_BYTES:
        return None
    length, crc, kind, epoch, offset, committed = _THREE_NUMBERS.unpack_from(data)
    if length != len(data) - 4 or kind != _DATA_KIND or crc32(data[_PREFIX.size :]) != crc:
        return None
    return Data(epoch, offset, committed, bytes(data[DATA_HEAD_BYTES:]))


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

    Bytes come by `feed`. The rest of a large frame may be read into `rest` instead, without a copy; `filled` follows.
    The log bytes of a frame above VIEWED_BYTES are a view, which is valid until the next bytes come: page faults of new
    memory for each frame take longer than all copies of its bytes.
    """

    def __init__(self, max_bytes: int = MAX_DATA_BYTES) -> None:
        self.max_bytes = max_bytes
        self._preface = b""  # as far as it has arrived
        self._frame = bytearray(_HEAD_BYTES)  # the begin of a frame that is not whole: `_filled` of `_wanted` bytes
        self._filled = 0
        self._wanted = _HEAD_BYTES
        self.is_last = True
        """Whether no more bytes came with the message that was yielded last."""

    def __repr__(self) -> str:
        return f"<FrameReader {self._filled} of {self._wanted}>"

    def feed(self, data: Buffer) -> Iterator[Frame]:
        """Yield the messages that these bytes complete. Raises LinkError; the reader is of no use afterwards."""
        view = memoryview(data)
        if len(self._preface) < len(PREFACE):
            view = view[self._read_preface(view) :]
        while view:
            size = None if self._filled else _frame_size(view, self.max_bytes)
            if size is not None and size <= len(view):
                frame, view = view[:size], view[size:]
                self.is_last = not view
                yield _decode(frame)
            else:
                taken = min(self._wanted - self._filled, len(view))
                self._frame[self._filled : self._filled + taken] = view[:taken]
                view = view[taken:]
                yield from self.filled(taken)

    @property
    def is_between(self) -> bool:
        """Whether the next bytes begin a frame."""
        return not self._filled

    def rest(self, least: int) -> memoryview | None:
        """Return where the rest of a frame belongs that has begun; None if it has less than `least` bytes."""
        if self._wanted - self._filled < max(least, _HEAD_BYTES + 1):
            return None
        return memoryview(self._frame)[self._filled : self._wanted]

    def filled(self, count: int) -> Iterator[Frame]:
        """Yield the message that is complete with `count` more bytes in `rest`. Raises LinkError as `feed`."""
        self._filled += count
        if self._filled == _HEAD_BYTES and (size := _frame_size(self._frame, self.max_bytes)) is not None:
            self._wanted = size
            if size > len(self._frame):
                self._frame = self._frame[:_HEAD_BYTES] + bytes(size - _HEAD_BYTES)
        if self._filled == self._wanted:
            frame = memoryview(self._frame)[: self._wanted]
            self._filled, self._wanted = 0, _HEAD_BYTES
            yield _decode(frame, is_viewed=len(frame) > VIEWED_BYTES)

    def _read_preface(self, view: memoryview) -> int:
        """Return how many bytes belong to the preface."""
        taken = min(len(PREFACE) - len(self._preface), len(view))
        self._preface += view[:taken]
        if not PREFACE.startswith(self._preface):
            expected = f"Skylark's replication protocol, version {PREFACE[-1]}"
            raise LinkError(f"the peer does not begin with {expected}, but with {self._preface!r}")
        return taken


def _secret_frame(kind: int, body: bytes) -> Challenge | Proof:
    if len(body) != (CHALLENGE_BYTES if kind == _CHALLENGE else PROOF_BYTES):
        raise LinkError(f"a frame of type {kind} with {len(body)} bytes of content")
    return Challenge(body) if kind == _CHALLENGE else Proof(body)


def _frame(kind: int, body: bytes) -> bytes:
    content = _KIND.pack(kind, 0, 0) + body
    return _PREFIX.pack(4 + len(content), crc32(content)) + content


def _frame_size(data: Buffer, max_bytes: int) -> int | None:
    """Return the size of the frame that begins here; None before its kind has arrived. Raises LinkError for a size that
    no frame of this kind has."""
    if len(data) < _HEAD_BYTES:
        return None
    length: int = _PREFIX.unpack_from(data)[0]
    kind = data[_PREFIX.size]
    limit = min(max_bytes, MAX_DATA_BYTES if kind == _DATA else MAX_CONTROL_BYTES)
    if not 4 + _KIND.size <= length <= limit:
        raise LinkError(f"a frame of type {kind} with {length} bytes")
    return 4 + length


def _decode(frame: memoryview, *, is_viewed: bool = False) -> Frame:
    """Return the message of a frame; it has copies of the frame's bytes. With `is_viewed`, log bytes are a view."""
    _, crc = _PREFIX.unpack_from(frame)
    kind, flags, _ = _KIND.unpack_from(frame, _PREFIX.size)
    is_checked = not (kind == _DATA and flags & UNCHECKED)
    if crc32(frame[_PREFIX.size : None if is_checked else DATA_HEAD_BYTES]) != crc:
        raise LinkError(f"a frame of type {kind} with a wrong checksum")
    try:
        if kind == _DATA:
            epoch, offset, committed = _DATA_HEAD.unpack_from(frame, _PREFIX.size + _KIND.size)
            payload = frame[DATA_HEAD_BYTES:]
            return Data(epoch, offset, committed, payload if is_viewed else bytes(payload))
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
