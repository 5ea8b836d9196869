"""Appends from records that are in the log already, for the dispatch of a follower.

They have no body, which dispatch does not read. Records are in the common layout (`columns`). Every length is checked
again, so nothing is read outside of a record.

Without this module a follower reads each record by itself: broker/store/replica/log_dispatch.py.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.mem import PyMem_Free, PyMem_Malloc
from cython.cimports.libc.stdint import int32_t, int64_t, uint32_t
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32, get64
from cython.cimports.skylarkmq.protocol.compiled.columns import Part, Parts, Positions, Text, find_all
from cython.cimports.skylarkmq.protocol.compiled.properties import add_keys, java_hash
from cython.cimports.skylarkmq.protocol.compiled.queue_tail import QueueTail
from cython.cimports.skylarkmq.protocol.compiled.record import Append

QUEUE_ID_AT = cython.declare(cython.int, 12)
FLAG_AT = cython.declare(cython.int, 16)
QUEUE_OFFSET_AT = cython.declare(cython.int, 20)
PHYSICAL_OFFSET_AT = cython.declare(cython.int, 28)
SYS_FLAG_AT = cython.declare(cython.int, 36)
BORN_TIMESTAMP_AT = cython.declare(cython.int, 40)
STORE_TIMESTAMP_AT = cython.declare(cython.int, 56)
RECONSUME_TIMES_AT = cython.declare(cython.int, 72)
PREPARED_AT = cython.declare(cython.int, 76)

TAGS = cython.declare(cython.int, 2)  # parts of a record, and bits of `columns`
KEYS = cython.declare(cython.int, 3)
ID = cython.declare(cython.int, 4)
PROPERTIES = cython.declare(cython.int, 5)
BORN_HOST = cython.declare(cython.int, 6)
PARTS = cython.declare(cython.int, 8)
TEXT_BITS = cython.declare(uint32_t, 0x1F << 11)  # the topic, too: texts of the common layout are ASCII
COMPRESSED_BIT = cython.declare(uint32_t, 1 << 18)


def appends(buffer, begins, queues: list, numbers, status) -> list:
    """Return the records that begin at `begins` (int64, ascending) as appends with this status.

    `numbers` (int64): the position of each record's queue in `queues`. Raises ValueError for a record that is not in
    the common layout, and for a number without a queue.
    """
    source: Py_buffer
    positions: Py_buffer
    places: Py_buffer
    PyObject_GetBuffer(buffer, cython.address(source), PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(begins, cython.address(positions), PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(numbers, cython.address(places), PyBUF_SIMPLE)
            try:
                if places.len != positions.len:
                    raise ValueError("begins and numbers have different lengths")
                return appends_of(
                    cython.cast(Text, source.buf),
                    source.len,
                    cython.cast(Positions, positions.buf),
                    positions.len // 8,
                    queues,
                    cython.cast(Positions, places.buf),
                    status,
                )
            finally:
                PyBuffer_Release(cython.address(places))
        finally:
            PyBuffer_Release(cython.address(positions))
    finally:
        PyBuffer_Release(cython.address(source))


@cython.cfunc
def appends_of(
    source: Text,
    size: cython.Py_ssize_t,
    begins: Positions,
    count: cython.Py_ssize_t,
    queues: list,
    numbers: Positions,
    status,
) -> list:
    """Return the same as `appends`, for the buffers' content."""
    n: cython.Py_ssize_t
    found: list = []
    parts: Parts = cython.cast(Parts, PyMem_Malloc((count + 1) * PARTS * cython.sizeof(Part)))
    if parts == cython.NULL:
        raise MemoryError
    try:
        if not find_all(source, size, begins, count, TEXT_BITS | COMPRESSED_BIT, parts):
            raise ValueError("a record that is not in the common layout")
        for n in range(count):
            if not 0 <= numbers[n] < len(queues):
                raise ValueError(f"queue {numbers[n]} of {len(queues)}")
            found.append(append_of(source + begins[n], parts + n * PARTS, queues[numbers[n]], status))
        return found
    finally:
        PyMem_Free(parts)


@cython.cfunc
def append_of(record: Text, parts: Parts, queue: QueueTail, status) -> Append:
    """Return the record that has these parts as an append."""
    append: Append = Append.__new__(Append)
    append.topic = queue.topic
    append.queue_id = cython.cast(int32_t, get32(record + QUEUE_ID_AT))
    append.body_object = b""
    append.property_bytes = bytes_of(parts + PROPERTIES)
    append.tags_code = java_hash(parts[TAGS].at, parts[TAGS].size)
    append.flag = cython.cast(int32_t, get32(record + FLAG_AT))
    append.sys_flag = cython.cast(int32_t, get32(record + SYS_FLAG_AT))
    append.born_timestamp = cython.cast(int64_t, get64(record + BORN_TIMESTAMP_AT))
    append.born_host = bytes_of(parts + BORN_HOST)
    append.reconsume_times = cython.cast(int32_t, get32(record + RECONSUME_TIMES_AT))
    append.prepared_transaction_offset = cython.cast(int64_t, get64(record + PREPARED_AT))
    append.wait_flush = True
    append.status = status
    append.physical_offset = cython.cast(int64_t, get64(record + PHYSICAL_OFFSET_AT))
    append.queue_offset = cython.cast(int64_t, get64(record + QUEUE_OFFSET_AT))
    append.size = cython.cast(int32_t, get32(record))
    append.store_timestamp = cython.cast(int64_t, get64(record + STORE_TIMESTAMP_AT))
    append.queue = queue
    note_keys(append, parts)
    return append


@cython.cfunc
def note_keys(append: Append, parts: Parts):
    """Note where the keys are in the properties; without a unique key, the keys themselves."""
    if parts[ID].size:
        append.key_at, append.key_size = parts[ID].at - parts[PROPERTIES].at, parts[ID].size
        if parts[KEYS].size:
            append.keys_at, append.keys_size = parts[KEYS].at - parts[PROPERTIES].at, parts[KEYS].size
    else:
        keys: list = []
        add_keys(keys, cython.cast(cython.p_char, parts[KEYS].at), parts[KEYS].size)
        append.key_list = keys


@cython.cfunc
@cython.inline
def bytes_of(part: Parts) -> bytes:
    """Return the bytes of a part that exists."""
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, part.at), part.size)
