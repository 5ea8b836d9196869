"""Requests in flight of the load generator: patching of prepared frames, and matching of their responses.

The pure-Python versions, with the full documentation, are clients/mqbench/in_flight.py and
clients/mqbench/response_counter.py. With few frames per read NumPy's calls would be most of the load generator's cost,
and would delay the requests to the broker.

Positions are checked when a field is made, frame numbers at each call, so nothing is written outside of a block or
table.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.cpython.mem import PyMem_Free, PyMem_Malloc
from cython.cimports.libc.stdint import int64_t
from cython.cimports.libc.string import memcmp, memcpy
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32
from numpy import frombuffer, int64

Text = cython.typedef(cython.p_const_uchar)
Numbers = cython.typedef(cython.pointer(int64_t))

NOT_IN_FLIGHT = cython.declare(int64_t, -1)
CODE_AT = cython.declare(cython.Py_ssize_t, 16)
MARK = cython.declare(cython.p_const_char, b'"opaque":')
MARK_SIZE = cython.declare(cython.Py_ssize_t, 9)
DIGITS = cython.declare(cython.Py_ssize_t, 10)
LENGTH_SIZE = cython.declare(cython.Py_ssize_t, 4)
SHORTEST = cython.declare(cython.Py_ssize_t, 37)  # bytes of a response up to and including its opaque


@cython.final
@cython.cclass
class Field:
    """Positions of fields of one width in a block; it pins the block's buffer as long as it exists."""

    block = cython.declare(Py_buffer)
    is_pinned = cython.declare(cython.bint)
    positions = cython.declare(bytes)
    count = cython.declare(cython.Py_ssize_t)
    width = cython.declare(cython.Py_ssize_t)

    def __init__(self, block: bytearray, positions, width: cython.Py_ssize_t):
        number: cython.Py_ssize_t
        at: Numbers
        if self.is_pinned:
            raise TypeError("a field can be initialized only once")
        self.positions = positions.astype(int64).tobytes()
        self.count = len(self.positions) // 8
        self.width = width
        PyObject_GetBuffer(block, cython.address(self.block), PyBUF_WRITABLE)
        self.is_pinned = True
        at = cython.cast(Numbers, PyBytes_AS_STRING(self.positions))
        for number in range(self.count):
            if at[number] < 0 or width < 0 or at[number] > self.block.len - width:
                raise ValueError(
                    f"{width} bytes at {at[number]} are not within the {self.block.len} bytes of the block"
                )

    def fill(self, first: cython.Py_ssize_t, end: cython.Py_ssize_t, text: bytes):
        number: cython.Py_ssize_t
        at: Numbers = cython.cast(Numbers, PyBytes_AS_STRING(self.positions))
        to: cython.p_char = cython.cast(cython.p_char, self.block.buf)
        if len(text) != self.width:
            raise ValueError(f"{len(text)} bytes for a field of {self.width}")
        check(first, end, self.count)
        for number in range(first, end):
            memcpy(to + at[number], PyBytes_AS_STRING(text), self.width)

    def __dealloc__(self):
        if self.is_pinned:
            PyBuffer_Release(cython.address(self.block))


@cython.final
@cython.cclass
class InFlight:
    """The opaque and the send time of each frame of a block that is in flight."""

    frames = cython.declare(cython.Py_ssize_t)
    step = cython.declare(int64_t)
    opaques = cython.declare(Numbers)
    sent_ns = cython.declare(Numbers)

    def __cinit__(self, frames: cython.Py_ssize_t, step: int64_t):
        number: cython.Py_ssize_t
        if frames <= 0 or step < frames:
            raise ValueError(f"{frames} frames with opaques modulo {step}")
        self.frames = frames
        self.step = step
        self.opaques = cython.cast(Numbers, PyMem_Malloc(frames * 8))
        self.sent_ns = cython.cast(Numbers, PyMem_Malloc(frames * 8))
        if self.opaques == cython.NULL or self.sent_ns == cython.NULL:
            raise MemoryError
        for number in range(frames):
            self.opaques[number] = NOT_IN_FLIGHT

    def free_end(self, first: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        check(first, end, self.frames)
        while first < end and self.opaques[first] == NOT_IN_FLIGHT:
            first += 1
        return first

    def mark_sent(self, first: cython.Py_ssize_t, end: cython.Py_ssize_t, opaque: int64_t, at_ns):
        number: cython.Py_ssize_t
        source: Py_buffer
        now_ns: int64_t
        check(first, end, self.frames)
        if isinstance(at_ns, int):
            now_ns = at_ns
            for number in range(first, end):
                self.sent_ns[number] = now_ns
        else:
            PyObject_GetBuffer(at_ns, cython.address(source), PyBUF_SIMPLE)
            try:
                if source.len != (end - first) * 8:
                    raise ValueError(f"{source.len // 8} times for {end - first} frames")
                memcpy(self.sent_ns + first, source.buf, source.len)
            finally:
                PyBuffer_Release(cython.address(source))
        for number in range(first, end):
            self.opaques[number] = opaque + number

    def match(self, opaques, now_ns: int64_t):
        source: Py_buffer
        PyObject_GetBuffer(opaques, cython.address(source), PyBUF_SIMPLE)
        try:
            return self.match_all(cython.cast(Numbers, source.buf), source.len // 8, now_ns)
        finally:
            PyBuffer_Release(cython.address(source))

    @cython.cfunc
    def match_all(self, opaques: Numbers, count: cython.Py_ssize_t, now_ns: int64_t):
        number: cython.Py_ssize_t
        frame: cython.Py_ssize_t
        known: cython.Py_ssize_t = 0
        text: bytes = PyBytes_FromStringAndSize(cython.NULL, count * 8)
        taken: Numbers = cython.cast(Numbers, PyBytes_AS_STRING(text))
        for number in range(count):
            frame = opaques[number] % self.step
            if 0 <= frame < self.frames and self.opaques[frame] == opaques[number]:
                taken[known] = now_ns - self.sent_ns[frame]
                known += 1
                self.opaques[frame] = NOT_IN_FLIGHT
        return frombuffer(text, int64, known)

    def __dealloc__(self):
        PyMem_Free(self.opaques)
        PyMem_Free(self.sent_ns)


@cython.cfunc
@cython.exceptval(-1)
def check(first: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.int:
    """Raise IndexError unless `[first, end)` is within `count`."""
    if first < 0 or end > count:
        raise IndexError(f"[{first}, {end}) is not within {count}")
    return 0


def opaques_in_common_layout(data: bytes, bytes_after: cython.Py_ssize_t):
    """Return (opaques, end of the last one) of the responses in `data`, or None; see
    clients/mqbench/response_counter.py. It goes by the lengths of the responses; the bytes before an opaque are not
    read."""
    last: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    position: cython.Py_ssize_t
    size: cython.Py_ssize_t = len(data)
    source: Text = cython.cast(Text, PyBytes_AS_STRING(data))
    count: cython.Py_ssize_t = 0
    text: bytes = PyBytes_FromStringAndSize(cython.NULL, size // SHORTEST * 8)
    opaques: Numbers = cython.cast(Numbers, PyBytes_AS_STRING(text))
    if bytes_after < 0:
        raise ValueError(f"{bytes_after} bytes after an opaque")
    while size - last >= bytes_after + SHORTEST:
        at = last + bytes_after
        position = at + LENGTH_SIZE + get32(source + at) - bytes_after - DIGITS
        if position > size - DIGITS:
            break
        if position < at + SHORTEST - DIGITS or memcmp(source + position - MARK_SIZE, MARK, MARK_SIZE) != 0:
            return None
        if source[at + CODE_AT] != 0x30 or source[at + CODE_AT + 1] != 0x2C:
            return None
        opaques[count] = number_at(source + position)
        count += 1
        last = position + DIGITS
    return frombuffer(text, int64, count), last


@cython.cfunc
@cython.exceptval(check=False)
def number_at(position: Text) -> int64_t:
    """Return the number in ten digits."""
    digit: cython.int
    number: int64_t = 0
    for digit in range(10):
        number = number * 10 + (position[digit] - 48)
    return number
