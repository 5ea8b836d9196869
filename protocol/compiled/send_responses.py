"""Frames of responses to accepted sends. The pure-Python version is broker/processors/send/response.py."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.skylarkmq.protocol.compiled.big_endian import put32
from cython.cimports.skylarkmq.protocol.compiled.decode import Send
from cython.cimports.skylarkmq.protocol.compiled.formatting import put_bytes, put_decimal
from cython.cimports.skylarkmq.protocol.compiled.record import Append

PREFIX = cython.declare(cython.Py_ssize_t, 8)
MSGPACK = cython.declare(cython.int, 0x4D)


@cython.final
@cython.cclass
class SendResponses:
    """Fills response frames from templates.

    `pieces` (JSON): the text before the physical offset (16 hex digits), queue id, queue offset, unique key and opaque,
    and after the opaque. `binary`: the bytes before the opaque, the length of the ext block, the physical offset, and
    the lengths of queue id, queue offset and unique key. `packed` (MessagePack): the bytes before opaque, physical
    offset, queue id, queue offset and the length of the unique key, and after the key. `ok` is the status of a stored
    append.
    """

    pieces = cython.declare(list)
    binary = cython.declare(list)
    packed = cython.declare(list)
    ok = cython.declare(object)
    fixed = cython.declare(cython.Py_ssize_t)

    def __init__(self, pieces: list, binary: list, packed: list, ok):
        if len(pieces) != 6 or len(binary) != 6 or len(packed) != 6:
            raise ValueError("each template has six parts")
        self.pieces = pieces
        self.binary = binary
        self.packed = packed
        self.ok = ok
        self.fixed = PREFIX + max(
            sum(map(len, pieces)) + 16 + 11 + 20 + 11,
            sum(map(len, binary)) + 4 + 4 + 16 + 4 + 11 + 4 + 20 + 4,
            sum(map(len, packed)) + 4 + 16 + 4 + 8 + 1,
        )

    def encode_stored(self, sends):
        """Return the response frames of stored sends, and the sends that need another response or none."""
        others: list = []
        size: cython.Py_ssize_t = 0
        for send in sends:
            size += self.fixed + len(send[2])
        frames: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        begin: cython.p_char = PyBytes_AS_STRING(frames)
        at: cython.p_char = begin
        received: Send
        dialect: cython.int
        flag: cython.int
        opaque: cython.int
        for send in sends:
            command, append, unique_key = send
            stored: Append = append
            if type(command) is not Send:
                dialect, flag, opaque = command.dialect, command.flag, command.opaque
            else:
                received = command
                dialect, flag, opaque = received.dialect, received.flag, received.opaque
            if stored.status is not self.ok or flag & 2:
                others.append(send)
            elif dialect == 0:
                at = self.fill(at, stored, unique_key, opaque)
            elif dialect == MSGPACK:
                at = self.fill_packed(at, stored, unique_key, opaque)
            elif dialect == 1:
                at = self.fill_binary(at, stored, unique_key, opaque)
            else:
                others.append(send)
        return frames[: at - begin], others

    @cython.cfunc
    def fill(self, frame: cython.p_char, append: Append, unique_key: bytes, opaque: cython.longlong) -> cython.p_char:
        """Write one frame; return the position after it."""
        at: cython.p_char = put_bytes(frame + PREFIX, self.pieces[0])
        at = hex_digits(at, append.physical_offset)
        at = put_bytes(at, self.pieces[1])
        at = put_decimal(at, append.queue_id)
        at = put_bytes(at, self.pieces[2])
        at = put_decimal(at, append.queue_offset)
        at = put_bytes(at, self.pieces[3])
        at = put_bytes(at, unique_key)
        at = put_bytes(at, self.pieces[4])
        at = put_decimal(at, opaque)
        at = put_bytes(at, self.pieces[5])
        put32(frame, cython.cast(cython.uint, at - frame - 4))
        put32(frame + 4, cython.cast(cython.uint, at - frame - PREFIX))
        return at

    @cython.cfunc
    def fill_binary(
        self, frame: cython.p_char, append: Append, unique_key: bytes, opaque: cython.longlong
    ) -> cython.p_char:
        """Write one frame in the binary dialect; return the position after it."""
        at: cython.p_char = put_bytes(frame + PREFIX, self.binary[0])
        put32(at, cython.cast(cython.uint, opaque))
        at = put_bytes(at + 4, self.binary[1])
        ext: cython.p_char = at + 4
        at = put_bytes(ext, self.binary[2])
        at = hex_digits(at, append.physical_offset)
        at = counted_decimal(put_bytes(at, self.binary[3]), append.queue_id)
        at = counted_decimal(put_bytes(at, self.binary[4]), append.queue_offset)
        at = put_bytes(at, self.binary[5])
        put32(at, cython.cast(cython.uint, len(unique_key)))
        at = put_bytes(at + 4, unique_key)
        put32(ext - 4, cython.cast(cython.uint, at - ext))
        put32(frame, cython.cast(cython.uint, at - frame - 4))
        put32(frame + 4, cython.cast(cython.uint, 1 << 24) | cython.cast(cython.uint, at - frame - PREFIX))
        return at

    @cython.cfunc
    def fill_packed(
        self, frame: cython.p_char, append: Append, unique_key: bytes, opaque: cython.longlong
    ) -> cython.p_char:
        """Write one frame in the MSGPACK dialect; return the position after it."""
        size: cython.Py_ssize_t = len(unique_key)  # 64 at most
        at: cython.p_char = put_bytes(frame + PREFIX, self.packed[0])
        put32(at, cython.cast(cython.uint, opaque))
        at = put_bytes(at + 4, self.packed[1])
        at = hex_digits(at, append.physical_offset)
        at = put_bytes(at, self.packed[2])
        put32(at, cython.cast(cython.uint, append.queue_id))
        at = put_bytes(at + 4, self.packed[3])
        put32(at, cython.cast(cython.uint, append.queue_offset >> 32))
        put32(at + 4, cython.cast(cython.uint, append.queue_offset))
        at = put_bytes(at + 8, self.packed[4])
        at[0] = cython.cast(cython.char, size)
        at = put_bytes(at + 1, unique_key)
        at = put_bytes(at, self.packed[5])
        put32(frame, cython.cast(cython.uint, at - frame - 4))
        put32(frame + 4, cython.cast(cython.uint, MSGPACK) << 24 | cython.cast(cython.uint, at - frame - PREFIX))
        return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def counted_decimal(at: cython.p_char, value: cython.longlong) -> cython.p_char:
    """Write the number's length (4 bytes) and its decimal digits; return the position after them."""
    end: cython.p_char = put_decimal(at + 4, value)
    put32(at, cython.cast(cython.uint, end - at - 4))
    return end


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def hex_digits(at: cython.p_char, value: cython.longlong) -> cython.p_char:
    """Write a number as 16 hexadecimal digits; return the position after them."""
    n: cython.int
    digit: cython.int
    for n in range(16):
        digit = (cython.cast(cython.ulonglong, value) >> (60 - 4 * n)) & 15
        at[n] = cython.cast(cython.char, 48 + digit if digit < 10 else 55 + digit)
    return at + 16
