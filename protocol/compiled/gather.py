"""From queue units to the records that they point to, in C; the twin of `protocol.unit_runs`.

Nothing is read outside of the units or of the segment: every place is checked before it is copied from.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy

Text = cython.typedef(cython.p_const_uchar)
UNIT = cython.declare(cython.Py_ssize_t, 20)
SIZE_AT = cython.declare(cython.Py_ssize_t, 8)


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


def gather(units, segment, start: cython.longlong, size: cython.Py_ssize_t, head: bytes) -> tuple:
    """One piece: `head` and the records, `size` bytes together, out of the segment that begins at offset `start`.

    ValueError if one of them lies outside, or their size is another.
    """
    found: Py_buffer
    source: Py_buffer
    head_size: cython.Py_ssize_t = len(head)
    PyObject_GetBuffer(units, cython.address(found), PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(segment, cython.address(source), PyBUF_SIMPLE)
        try:
            taken = PyBytes_FromStringAndSize(cython.NULL, head_size + size)
            memcpy(PyBytes_AS_STRING(taken), PyBytes_AS_STRING(head), head_size)
            copy(cython.address(found), cython.address(source), start, PyBytes_AS_STRING(taken) + head_size, size)
            return (taken,)
        finally:
            PyBuffer_Release(cython.address(source))
    finally:
        PyBuffer_Release(cython.address(found))


@cython.cfunc
@cython.exceptval(-1)
def copy(
    units: cython.pointer(Py_buffer),
    source: cython.pointer(Py_buffer),
    start: cython.longlong,
    target: cython.p_char,
    left: cython.Py_ssize_t,
) -> cython.int:
    """Copy the records one behind the other; `left` bytes of the target are free, and all of them are needed."""
    place: Text = cython.cast(Text, units.buf)
    end: Text = place + units.len - units.len % UNIT
    at: cython.longlong
    size: cython.longlong
    while place < end:
        at = offset_at(place) - start
        size = size_at(place)
        if size < 0 or size > left or at < 0 or at > source.len - size:
            raise ValueError("a record outside of its segment")
        memcpy(target, cython.cast(cython.p_char, source.buf) + at, size)
        target += size
        left -= size
        place += UNIT
    if left:
        raise ValueError("records of another size")
    return 0


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
