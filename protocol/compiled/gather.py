"""The records that queue units point to, and their way to a socket.

The pure-Python versions are protocol/unit_runs.py, `found_head` in broker/processors/pull/response.py, and `write` in
broker/remoting/write_buffers.py. Every position is checked before it is used or returned, so nothing is read outside of
the units or of the segment.
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
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32, get64, put32
from cython.cimports.skylarkmq.protocol.compiled.formatting import put_bytes, put_decimal

Text = cython.typedef(cython.p_const_uchar)
UNIT = cython.declare(cython.Py_ssize_t, 20)
PREFIX = cython.declare(cython.Py_ssize_t, 8)
SIZE_AT = cython.declare(cython.Py_ssize_t, 8)
MOST_UNITS = cython.declare(cython.int, 64)
MOST_VECTORS = cython.declare(cython.int, 1024)  # per writev call


@cython.final
@cython.no_gc
@cython.freelist(32)
@cython.cclass
class Records:
    """Records of a segment, concatenated without a copy: a buffer of bytes for readers, I/O vectors for `write`. It
    pins the segment's buffer as long as it exists."""

    segment = cython.declare(Py_buffer)
    is_pinned = cython.declare(cython.bint)
    vectors = cython.declare(iovec[64])
    count = cython.declare(cython.int, visibility="readonly")
    size = cython.declare(cython.Py_ssize_t, visibility="readonly")
    begin = cython.declare(cython.longlong, visibility="readonly")
    last = cython.declare(cython.longlong, visibility="readonly")
    is_run = cython.declare(cython.bint, visibility="readonly")
    copy = cython.declare(bytes)

    @cython.cfunc
    def copied(self) -> bytes:
        """Return the bytes, copied on the first call."""
        target: cython.p_char
        number: cython.int
        if self.copy is None:
            self.copy = PyBytes_FromStringAndSize(cython.NULL, self.size)
            target = PyBytes_AS_STRING(self.copy)
            for number in range(self.count):
                memcpy(target, self.vectors[number].iov_base, self.vectors[number].iov_len)
                target += self.vectors[number].iov_len
        return self.copy

    @property
    def position(self):
        return 0

    @property
    def fd(self):
        return -1

    @property
    def is_hot(self):
        return True

    @property
    def view(self):
        return memoryview(self.copied())

    def parts_after(self, head: bytes) -> tuple:
        return head, self

    def hold(self, holder):
        pass

    def release(self, holder):
        pass

    def __getbuffer__(self, buffer: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(buffer, self, PyBytes_AS_STRING(self.copied()), self.size, 1, flags)

    def __len__(self):
        return self.size

    def __dealloc__(self):
        if self.is_pinned:
            PyBuffer_Release(cython.address(self.segment))

    def __repr__(self):
        return f"<Records count={self.count} size={self.size}>"


@cython.final
@cython.no_gc
@cython.cclass
class UnitRun:
    """The first units of `units` whose records lie in order in one segment; see protocol.unit_runs.PythonUnitRun."""

    first = cython.declare(cython.longlong, visibility="readonly")
    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    begin = cython.declare(cython.longlong, visibility="readonly")
    end = cython.declare(cython.longlong, visibility="readonly")
    start = cython.declare(cython.longlong)
    units = cython.declare(bytes)
    segment = cython.declare(object, visibility="readonly")

    def __init__(
        self,
        first: cython.longlong,
        units,
        segment,
        limit: cython.longlong,
        most_span: cython.longlong,
        longest: cython.int,
    ):
        place: Text
        at: cython.longlong
        size: cython.int
        self.first = first
        self.units = bytes(units)
        self.segment = segment
        self.start = self.end = segment.start
        place = cython.cast(Text, PyBytes_AS_STRING(self.units))
        while self.count < len(self.units) // UNIT:
            at = offset_at(place)
            size = size_at(place)
            if size <= 0 or size >= longest or at < self.end or at > limit - size:
                break
            if self.count == 0:
                self.begin = at
            elif at + size - self.begin > most_span:
                break
            self.end = at + size
            self.count += 1
            place += UNIT

    def take(self, offset: cython.longlong, wanted: cython.longlong, most_bytes: cython.longlong):
        """Return the records of up to `wanted` units from queue offset `offset` on: as many as fit into `most_bytes`,
        but at least one. Return None if the run lacks one of the units, or if the segment is deleted."""
        records: Records
        place: Text
        size: cython.int
        at: cython.longlong = offset - self.first
        if at < 0 or wanted <= 0 or wanted > MOST_UNITS or at > self.count - wanted or self.segment.is_deleted:
            return None
        records = Records.__new__(Records)
        PyObject_GetBuffer(self.segment.view, cython.address(records.segment), PyBUF_SIMPLE)
        records.is_pinned = True
        place = cython.cast(Text, PyBytes_AS_STRING(self.units)) + at * UNIT
        while records.count < wanted:
            size = size_at(place)
            if records.count and records.size + size > most_bytes:
                break
            at = offset_at(place)
            if at - self.start + size > records.segment.len:
                raise ValueError("a record outside of its segment")
            if records.count == 0:
                records.begin = at
            records.last = at
            at -= self.start
            records.vectors[records.count].iov_base = cython.cast(cython.p_char, records.segment.buf) + at
            records.vectors[records.count].iov_len = size
            records.count += 1
            records.size += size
            place += UNIT
        records.is_run = records.last + size_at(place - UNIT) - records.begin == records.size
        return records

    def __repr__(self):
        return f"<UnitRun first={self.first} count={self.count}>"


def found_head(
    pieces: tuple,
    max_offset: cython.longlong,
    min_offset: cython.longlong,
    next_offset: cython.longlong,
    opaque: cython.int,
    size: cython.Py_ssize_t,
) -> bytes:
    """Return a frame's head in JSON: the five `pieces` with these numbers between them, for a body of `size` bytes."""
    numbers: cython.longlong[4]
    number: cython.int
    fixed: cython.Py_ssize_t = PREFIX
    if len(pieces) != 5:
        raise ValueError("a head needs five pieces")
    numbers[0] = max_offset
    numbers[1] = min_offset
    numbers[2] = next_offset
    numbers[3] = opaque
    for number in range(5):
        fixed += len(cython.cast(bytes, pieces[number], typecheck=True)) + 20
    head: bytes = PyBytes_FromStringAndSize(cython.NULL, fixed)
    begin: cython.p_char = PyBytes_AS_STRING(head)
    at: cython.p_char = begin + PREFIX
    for number in range(5):
        at = put_bytes(at, pieces[number])
        if number < 4:
            at = put_decimal(at, numbers[number])
    put32(begin, cython.cast(cython.uint, at - begin - 4 + size))
    put32(begin + 4, cython.cast(cython.uint, at - begin - PREFIX))
    return head[: at - begin]


def write(fd: cython.int, parts: list) -> cython.Py_ssize_t:
    """Write parts (bytes, views, Records) to a non-blocking socket; return how many bytes it accepted."""
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
    """Add the vectors of a part's bytes, which stay valid while the part exists; return the number of bytes."""
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
    """Return the physical offset in a unit."""
    return cython.cast(cython.longlong, get64(unit))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def size_at(unit: Text) -> cython.int:
    """Return the record size in a unit."""
    return cython.cast(cython.int, get32(unit + SIZE_AT))
