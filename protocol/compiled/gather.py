"""From queue units to the records that they point to, and from there to a socket, in C.

The twin of `protocol.unit_runs`, and of the write in broker/remoting/pieces.py. Nothing is read outside of the units or
of the segment: every place is checked before anybody is told of it.
"""

import cython
from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy
from cython.cimports.posix.uio import iovec, writev

Text = cython.typedef(cython.p_const_uchar)
UNIT = cython.declare(cython.Py_ssize_t, 20)
SIZE_AT = cython.declare(cython.Py_ssize_t, 8)
MOST_UNITS = cython.declare(cython.int, 64)
MOST_VECTORS = cython.declare(cython.int, 1024)  # of one call


def extent(units) -> tuple:
    """The first record's offset, the last one's, where that ends, and how long all together are. At least one unit."""
    view: Py_buffer
    place: Text
    end: Text
    total: cython.longlong = 0
    last: cython.longlong
    PyObject_GetBuffer(units, cython.address(view), PyBUF_SIMPLE)
    try:
        if view.len < UNIT:
            raise ValueError("no unit")
        place = cython.cast(Text, view.buf)
        end = place + view.len - view.len % UNIT
        begin = offset_at(place)
        while place < end:
            total += size_at(place)
            place += UNIT
        place -= UNIT
        last = offset_at(place)
        return begin, last, last + size_at(place), total
    finally:
        PyBuffer_Release(cython.address(view))


@cython.final
@cython.no_gc
@cython.freelist(32)
@cython.cclass
class Records:
    """Records of a segment, one behind the other without being moved: bytes to whoever asks for them, vectors to
    `write`. The segment's buffer is held as long as this lives."""

    segment = cython.declare(Py_buffer)
    is_held = cython.declare(cython.bint)
    vectors = cython.declare(iovec[64])
    count = cython.declare(cython.int)
    size = cython.declare(cython.Py_ssize_t)
    copy = cython.declare(bytes)

    @cython.cfunc
    @cython.exceptval(-1)
    def find(
        self, units: cython.pointer(Py_buffer), segment, start: cython.longlong, left: cython.Py_ssize_t
    ) -> cython.int:
        """Where the records lie; `left` bytes together."""
        place: Text = cython.cast(Text, units.buf)
        end: Text = place + units.len - units.len % UNIT
        at: cython.longlong
        size: cython.longlong
        if units.len // UNIT > MOST_UNITS:
            raise ValueError("too many records")
        PyObject_GetBuffer(segment, cython.address(self.segment), PyBUF_SIMPLE)
        self.is_held = True
        self.size = left
        while place < end:
            at = offset_at(place) - start
            size = size_at(place)
            if size < 0 or size > left or at < 0 or at > self.segment.len - size:
                raise ValueError("a record outside of its segment")
            self.vectors[self.count].iov_base = cython.cast(cython.p_char, self.segment.buf) + at
            self.vectors[self.count].iov_len = size
            self.count += 1
            left -= size
            place += UNIT
        if left:
            raise ValueError("records of another size")
        return 0

    @cython.cfunc
    def copied(self) -> bytes:
        """The bytes, copied when they are first asked for."""
        target: cython.p_char
        number: cython.int
        if self.copy is None:
            self.copy = PyBytes_FromStringAndSize(cython.NULL, self.size)
            target = PyBytes_AS_STRING(self.copy)
            for number in range(self.count):
                memcpy(target, self.vectors[number].iov_base, self.vectors[number].iov_len)
                target += self.vectors[number].iov_len
        return self.copy

    def __getbuffer__(self, buffer: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(buffer, self, PyBytes_AS_STRING(self.copied()), self.size, 1, flags)

    def __len__(self):
        return self.size

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(cython.address(self.segment))

    def __repr__(self):
        return f"<Records count={self.count} size={self.size}>"


def gather(units, segment, start: cython.longlong, size: cython.Py_ssize_t, head: bytes) -> tuple:
    """`head` and the records, `size` bytes together, of the segment that begins at offset `start`.

    ValueError if one of them lies outside, or their size is another.
    """
    found: Py_buffer
    records: Records = Records.__new__(Records)
    PyObject_GetBuffer(units, cython.address(found), PyBUF_SIMPLE)
    try:
        records.find(cython.address(found), segment, start, size)
        return head, records
    finally:
        PyBuffer_Release(cython.address(found))


def write(fd: cython.int, parts: list) -> cython.Py_ssize_t:
    """Write parts, bytes and Records and views, to a socket that does not wait; returns how many bytes it took."""
    vectors: iovec[1024]
    count: cython.int
    number: cython.Py_ssize_t = 0
    wanted: cython.Py_ssize_t
    taken: cython.Py_ssize_t
    all_taken: cython.Py_ssize_t = 0
    while number < len(parts):
        count = 0
        wanted = 0
        while number < len(parts) and count <= MOST_VECTORS - MOST_UNITS:
            wanted += add(parts[number], vectors, cython.address(count))
            number += 1
        with cython.nogil:
            taken = writev(fd, vectors, count)
        if taken < 0:
            break
        all_taken += taken
        if taken < wanted:
            break
    return all_taken


@cython.cfunc
@cython.exceptval(-1)
def add(part, vectors: cython.pointer(iovec), count: cython.pointer(cython.int)) -> cython.Py_ssize_t:
    """Where a part's bytes are, as vectors behind the others; they stay there while it lives. How many bytes."""
    view: Py_buffer
    records: Records
    if isinstance(part, Records):
        records = part
        memcpy(vectors + count[0], records.vectors, records.count * cython.sizeof(iovec))
        count[0] += records.count
        return records.size
    PyObject_GetBuffer(part, cython.address(view), PyBUF_SIMPLE)
    vectors[count[0]].iov_base = view.buf
    vectors[count[0]].iov_len = view.len
    count[0] += 1
    PyBuffer_Release(cython.address(view))
    return view.len


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def offset_at(unit: Text) -> cython.longlong:
    """Its record's offset."""
    number: cython.ulonglong = 0
    at: cython.int
    for at in range(8):
        number = number << 8 | unit[at]
    return cython.cast(cython.longlong, number)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def size_at(unit: Text) -> cython.int:
    """Its record's size."""
    number: cython.uint = 0
    at: cython.int
    for at in range(4):
        number = number << 8 | unit[SIZE_AT + at]
    return cython.cast(cython.int, number)
