"""The columns of an Arrow batch from records. The pure-Python version is clients/arrow/columns.py.

This module handles records in the common layout: IPv4 hosts, and, as far as these columns are wanted, a body that is
not compressed, topic and properties in ASCII, and times within Spark's range. Numbers are converted to the machine's
byte order. Texts are copied once, into Arrow's layout: the values one after the other, their begins and the last end
(int32), and a validity bit for each. Texts with few values can become numbers of distinct values (Arrow's dictionary
arrays), and others views of the buffer. Other threads run meanwhile.

The pure-Python version of `steps` is in clients/arrow/record_layout.py. Every length is checked before it is
used, so nothing is read outside of a record. Layout: protocol.record.
"""

import cython
from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.cpython.mem import PyMem_Free, PyMem_Malloc
from cython.cimports.libc.stdint import int32_t, int64_t, uint32_t, uint64_t
from cython.cimports.libc.string import memchr, memcmp, memcpy, memset
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32, get64
from cython.cimports.skylarkmq.protocol.compiled.prefetch import prefetch

SMALLEST_RECORD = cython.declare(cython.Py_ssize_t, 91)
MOST_BYTES = cython.declare(cython.Py_ssize_t, 0x7FFFFFFF)
MAGIC_V1 = cython.declare(uint32_t, 0xDAA320A7)
MAGIC_V2 = cython.declare(uint32_t, 0xDAA320AB)
BODY_CRC_AT = cython.declare(cython.int, 8)
QUEUE_ID_AT = cython.declare(cython.int, 12)
FLAG_AT = cython.declare(cython.int, 16)
QUEUE_OFFSET_AT = cython.declare(cython.int, 20)
PHYSICAL_OFFSET_AT = cython.declare(cython.int, 28)
SYS_FLAG_AT = cython.declare(cython.int, 36)
BORN_TIMESTAMP_AT = cython.declare(cython.int, 40)
BORN_HOST_AT = cython.declare(cython.int, 48)
STORE_TIMESTAMP_AT = cython.declare(cython.int, 56)
STORE_HOST_AT = cython.declare(cython.int, 64)
RECONSUME_TIMES_AT = cython.declare(cython.int, 72)
PREPARED_AT = cython.declare(cython.int, 76)
BODY_SIZE_AT = cython.declare(cython.int, 84)
BODY_AT = cython.declare(cython.int, 88)
COMPRESSED = cython.declare(uint32_t, 0x01)
HOST_V6 = cython.declare(uint32_t, 0x30)  # born host IPv6, store host IPv6
HOST_SIZE = cython.declare(cython.int, 8)
FIRST_MS = cython.declare(int64_t, -62_135_596_800_000)  # the first time that Spark can represent
LAST_MS = cython.declare(int64_t, 253_402_300_800_000)  # the end of Spark's range, exclusive
AHEAD = cython.declare(cython.Py_ssize_t, 8)  # a record's head is prefetched this many records before it is read
CACHE_LINE = cython.declare(cython.Py_ssize_t, 64)
HIGH_BITS = cython.declare(uint64_t, 0x8080808080808080)

BODY = cython.declare(cython.int, 0)
TOPIC = cython.declare(cython.int, 1)
TAGS = cython.declare(cython.int, 2)
KEYS = cython.declare(cython.int, 3)
ID = cython.declare(cython.int, 4)
PROPERTIES = cython.declare(cython.int, 5)
BORN_HOST = cython.declare(cython.int, 6)
STORE_HOST = cython.declare(cython.int, 7)
PARTS = cython.declare(cython.int, 8)

# Bits of the wanted columns: one for each number, then one for each part.
STORE_TIME_BIT = cython.declare(uint32_t, 1 << 8)
BORN_TIME_BIT = cython.declare(uint32_t, 1 << 9)
FIRST_PART = cython.declare(cython.int, 10)
TOPIC_BIT = cython.declare(uint32_t, 1 << 11)
PROPERTY_BITS = cython.declare(uint32_t, 0xF << 12)  # tags, keys, unique id, all properties
COMPRESSED_BIT = cython.declare(uint32_t, 1 << 18)  # compressed bodies are in the common layout
ANY_ORDER_BIT = cython.declare(uint32_t, 1 << 19)  # the starts need not ascend

MOST_VALUES = cython.declare(cython.int, 128)  # distinct values of a column of numbers of values
SLOTS = cython.declare(cython.int, 512)  # of the hash table of distinct values
INLINE_BYTES = cython.declare(cython.int, 12)  # a view contains shorter values
VIEW_BYTES = cython.declare(cython.int, 16)
FNV_BASIS = cython.declare(uint32_t, 2166136261)
FNV_PRIME = cython.declare(uint32_t, 16777619)


def steps(buffer, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bytes:
    """Return the begins (int64) of the consecutive records in `buffer[at:end]`, from their lengths alone."""
    source: Py_buffer
    count: cython.Py_ssize_t
    PyObject_GetBuffer(buffer, cython.address(source), PyBUF_SIMPLE)
    try:
        if at < 0 or end > source.len:
            raise ValueError(f"[{at}, {end}) is not within {source.len} bytes")
        found: bytes = PyBytes_FromStringAndSize(cython.NULL, (max(end - at, 0) // SMALLEST_RECORD) * 8)
        count = find_records(cython.cast(Text, source.buf), at, end, cython.cast(Positions, PyBytes_AS_STRING(found)))
        return found[: count * 8]
    finally:
        PyBuffer_Release(cython.address(source))


@cython.cfunc
@cython.exceptval(check=False)
def find_records(source: Text, at: cython.Py_ssize_t, end: cython.Py_ssize_t, found: Positions) -> cython.Py_ssize_t:
    """Store the begins of the records in `found`; return their number."""
    size: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    while end - at >= SMALLEST_RECORD:
        size = cython.cast(int32_t, get32(source + at))
        if size < SMALLEST_RECORD or size > end - at:
            break
        if size <= (end - at) // AHEAD:
            prefetch(source + at + AHEAD * size)  # the records after it often have the same size
        found[count] = at
        count += 1
        at += size
    return count


def columns(buffer, starts, wanted: uint32_t, allocate=None, encoded: uint32_t = 0, viewed: uint32_t = 0):
    """Return the columns of the records that begin at `starts` (int64, ascending); None if one of them is damaged or
    not in the common layout.

    The columns are numbers: queue ids, flags, reconsume times, sysFlags, body checksums (int32), queue offsets,
    physical offsets, prepared transaction offsets, store and born times in µs (int64); and texts: body, topic, TAGS,
    KEYS, UNIQ_KEY, properties, born host, store host, each as (validity bits or None, offsets, values). Bit n of
    `wanted` stands for column n; the others are None. The next bit includes records with compressed bodies, and the one
    after it records in any order.

    The texts of `encoded`, by the bits of `wanted`, are (validity bits or None, the number of each value as int32, a
    list of the distinct values) if there are at most MOST_VALUES. Those of `viewed` are (validity bits or None, Arrow's
    views, which refer to `buffer`).

    `allocate(size)` returns the writable buffer of a text column's values; None: they are bytes. Arrow's allocator
    reuses memory. Python's returns that of bodies to the kernel after each batch.
    """
    source: Py_buffer
    positions: Py_buffer
    PyObject_GetBuffer(buffer, cython.address(source), PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(starts, cython.address(positions), PyBUF_SIMPLE)
        try:
            if source.len > MOST_BYTES:
                return None
            return columns_of(
                cython.cast(Text, source.buf),
                source.len,
                cython.cast(Positions, positions.buf),
                positions.len // 8,
                wanted,
                Forms(encoded, viewed),
                allocate,
            )
        finally:
            PyBuffer_Release(cython.address(positions))
    finally:
        PyBuffer_Release(cython.address(source))


@cython.cfunc
def columns_of(
    source: Text,
    size: cython.Py_ssize_t,
    starts: Positions,
    count: cython.Py_ssize_t,
    wanted: uint32_t,
    forms: Forms,
    allocate,
):
    """Return the same as `columns`, for the buffers' content."""
    is_common: cython.bint
    parts: Parts = cython.cast(Parts, PyMem_Malloc((count + 1) * PARTS * cython.sizeof(Part)))
    if parts == cython.NULL:
        raise MemoryError
    try:
        with cython.nogil:
            is_common = find_all(source, size, starts, count, wanted, parts)
        if not is_common:
            return None
        numbers = (
            ints(source + QUEUE_ID_AT, starts, count, wanted),
            ints(source + FLAG_AT, starts, count, wanted >> 1),
            ints(source + RECONSUME_TIMES_AT, starts, count, wanted >> 2),
            ints(source + SYS_FLAG_AT, starts, count, wanted >> 3),
            ints(source + BODY_CRC_AT, starts, count, wanted >> 4),
            longs(source + QUEUE_OFFSET_AT, starts, count, 1, wanted >> 5),
            longs(source + PHYSICAL_OFFSET_AT, starts, count, 1, wanted >> 6),
            longs(source + PREPARED_AT, starts, count, 1, wanted >> 7),
            longs(source + STORE_TIMESTAMP_AT, starts, count, 1000, wanted >> 8),
            longs(source + BORN_TIMESTAMP_AT, starts, count, 1000, wanted >> 9),
        )
        texts = [
            part_column(parts + n, count, wanted >> FIRST_PART + n, forms, n, source, allocate) for n in range(PARTS)
        ]
        return numbers, texts
    finally:
        PyMem_Free(parts)


def slice_crcs(crc32: cython.size_t, data, begins, ends) -> bytes:
    """Return the CRC-32 of `data[begin:end]` for each pair of `begins` and `ends` (int64), as uint32.

    `crc32`: the address of isal's function. Raises ValueError for a slice outside of `data`.
    """
    source: Py_buffer
    firsts: Py_buffer
    lasts: Py_buffer
    PyObject_GetBuffer(data, cython.address(source), PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(begins, cython.address(firsts), PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(ends, cython.address(lasts), PyBUF_SIMPLE)
            try:
                if firsts.len != lasts.len:
                    raise ValueError("begins and ends have different lengths")
                return crcs_of(
                    cython.cast(Checksum, crc32),
                    cython.cast(Text, source.buf),
                    source.len,
                    cython.cast(Positions, firsts.buf),
                    cython.cast(Positions, lasts.buf),
                    firsts.len // 8,
                )
            finally:
                PyBuffer_Release(cython.address(lasts))
        finally:
            PyBuffer_Release(cython.address(firsts))
    finally:
        PyBuffer_Release(cython.address(source))


@cython.cfunc
def crcs_of(
    crc32: Checksum, source: Text, size: cython.Py_ssize_t, begins: Positions, ends: Positions, count: cython.Py_ssize_t
) -> bytes:
    """Return the same as `slice_crcs`, for the buffers' content."""
    n: cython.Py_ssize_t
    found: bytes = PyBytes_FromStringAndSize(cython.NULL, count * 4)
    sums: cython.pointer(uint32_t) = cython.cast(cython.pointer(uint32_t), PyBytes_AS_STRING(found))
    for n in range(count):
        if begins[n] < 0 or ends[n] < begins[n] or ends[n] > size:
            raise ValueError(f"[{begins[n]}, {ends[n]}) is not within {size} bytes")
    with cython.nogil:
        for n in range(count):
            sums[n] = crc32(0, source + begins[n], ends[n] - begins[n])
    return found


# --- parts of records -----------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_all(
    source: Text,
    size: cython.Py_ssize_t,
    starts: Positions,
    count: cython.Py_ssize_t,
    wanted: uint32_t,
    parts: Parts,
) -> cython.bint:
    """Find the parts of all records; return whether all are whole, in the common layout, and without overlap unless
    they may have any order."""
    n: cython.Py_ssize_t
    at: cython.Py_ssize_t
    length: cython.Py_ssize_t
    previous_end: cython.Py_ssize_t = 0
    for n in range(count):
        at = starts[n]
        if n + AHEAD < count and 0 <= starts[n + AHEAD] <= size - SMALLEST_RECORD:
            prefetch(source + starts[n + AHEAD])
            prefetch(source + starts[n + AHEAD] + CACHE_LINE)
        if n + AHEAD // 2 < count and 0 <= starts[n + AHEAD // 2] <= size - SMALLEST_RECORD:
            prefetch_tail(source + starts[n + AHEAD // 2], size - starts[n + AHEAD // 2])
        if at < previous_end or at > size - SMALLEST_RECORD:
            return False
        length = cython.cast(int32_t, get32(source + at))
        if length < SMALLEST_RECORD or length > size - at or not find_parts(source + at, length, wanted, parts):
            return False
        if not wanted & ANY_ORDER_BIT:
            previous_end = at + length
        parts += PARTS
    return True


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def prefetch_tail(record: Text, room: cython.Py_ssize_t) -> cython.void:
    """Prefetch the end of a record, where topic and properties are, if its length fits in `room` bytes."""
    length: cython.Py_ssize_t = cython.cast(int32_t, get32(record))
    if 3 * CACHE_LINE < length <= room:
        prefetch(record + length - CACHE_LINE)
        prefetch(record + length - 2 * CACHE_LINE)
        prefetch(record + length - 3 * CACHE_LINE)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_parts(record: Text, length: cython.Py_ssize_t, wanted: uint32_t, parts: Parts) -> cython.bint:
    """Find the parts of a record; return whether it is valid and in the common layout."""
    magic: uint32_t = get32(record + 4)
    sys_flag: uint32_t = get32(record + SYS_FLAG_AT)
    width: cython.int = 2 if magic == MAGIC_V2 else 1
    end: Text = record + length
    body_size: cython.Py_ssize_t = cython.cast(int32_t, get32(record + BODY_SIZE_AT))
    topic: Text
    size: cython.Py_ssize_t
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    if sys_flag & HOST_V6 or (sys_flag & COMPRESSED and not wanted & COMPRESSED_BIT):
        return False
    if wanted & BORN_TIME_BIT and not is_in_range(record + BORN_TIMESTAMP_AT):
        return False
    if wanted & STORE_TIME_BIT and not is_in_range(record + STORE_TIMESTAMP_AT):
        return False
    if body_size < 0 or body_size > length - BODY_AT - width - 2:
        return False
    parts[BODY].at, parts[BODY].size = record + BODY_AT, body_size
    parts[BORN_HOST].at, parts[BORN_HOST].size = record + BORN_HOST_AT, HOST_SIZE
    parts[STORE_HOST].at, parts[STORE_HOST].size = record + STORE_HOST_AT, HOST_SIZE
    topic = record + BODY_AT + body_size
    size = topic[0] if width == 1 else get16(topic)
    topic += width
    if size > end - topic - 2 or size >= (0x80 if width == 1 else 0x8000):
        return False
    if wanted & TOPIC_BIT and not is_ascii(topic, size):
        return False
    parts[TOPIC].at, parts[TOPIC].size = topic, size
    topic += size
    size = get16(topic)
    topic += 2
    if size != end - topic or size >= 0x8000:
        return False
    if wanted & PROPERTY_BITS:
        if not is_ascii(topic, size):
            return False
        parts[PROPERTIES].at, parts[PROPERTIES].size = topic, size
        find_properties(topic, end, parts)
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def find_properties(entry: Text, end: Text, parts: Parts) -> cython.void:
    """Find the last value that is not empty of each property with a column."""
    mark: Text
    size: cython.Py_ssize_t
    parts[TAGS].at = parts[KEYS].at = parts[ID].at = cython.NULL
    parts[TAGS].size = parts[KEYS].size = parts[ID].size = 0
    while entry < end:
        mark = cython.cast(Text, memchr(entry, 2, end - entry))
        if mark == cython.NULL:
            mark = end
        size = mark - entry
        if size > 5 and entry[4] == 1:
            if memcmp(entry, b"TAGS", 4) == 0:
                parts[TAGS].at, parts[TAGS].size = entry + 5, size - 5
            elif memcmp(entry, b"KEYS", 4) == 0:
                parts[KEYS].at, parts[KEYS].size = entry + 5, size - 5
        elif size > 9 and memcmp(entry, b"UNIQ_KEY\x01", 9) == 0:
            parts[ID].at, parts[ID].size = entry + 9, size - 9
        entry = mark + 1


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def is_in_range(position: Text) -> cython.bint:
    """Return whether Spark can represent this time in milliseconds."""
    ms: int64_t = cython.cast(int64_t, get64(position))
    return FIRST_MS <= ms < LAST_MS


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def is_ascii(position: Text, size: cython.Py_ssize_t) -> cython.bint:
    """Return whether no byte has its highest bit set."""
    word: uint64_t
    bits: uint64_t = 0
    n: cython.Py_ssize_t
    while size >= 8:
        memcpy(cython.address(word), position, 8)
        bits |= word
        position += 8
        size -= 8
    for n in range(size):
        bits |= position[n]
    return not bits & HIGH_BITS


# --- columns --------------------------------------------------------------------------------------


@cython.cfunc
def ints(source: Text, starts: Positions, count: cython.Py_ssize_t, wanted: uint32_t):
    """Return the int32 at each start, as bytes; None if the lowest bit of `wanted` is not set."""
    if not wanted & 1:
        return None
    taken = PyBytes_FromStringAndSize(cython.NULL, count * 4)
    values: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(taken))
    n: cython.Py_ssize_t
    for n in range(count):
        values[n] = cython.cast(int32_t, get32(source + starts[n]))
    return taken


@cython.cfunc
def longs(source: Text, starts: Positions, count: cython.Py_ssize_t, factor: int64_t, wanted: uint32_t):
    """Return the int64 at each start times `factor`, as bytes; None if the lowest bit of `wanted` is not set."""
    if not wanted & 1:
        return None
    taken = PyBytes_FromStringAndSize(cython.NULL, count * 8)
    values: Positions = cython.cast(Positions, PyBytes_AS_STRING(taken))
    n: cython.Py_ssize_t
    for n in range(count):
        values[n] = cython.cast(int64_t, get64(source + starts[n])) * factor
    return taken


@cython.cfunc
def part_column(
    part: Parts, count: cython.Py_ssize_t, wanted: uint32_t, forms: Forms, bit: cython.int, source: Text, allocate
):
    """Return every PARTS-th part as a column, in the form of bit FIRST_PART + `bit`; None if the lowest bit of `wanted`
    is not set."""
    if not wanted & 1:
        return None
    if forms.viewed >> FIRST_PART + bit & 1:
        return view_column(part, count, source)
    if forms.encoded >> FIRST_PART + bit & 1:
        found = encoded_column(part, count)
        if found is not None:
            return found
    return text_column(part, count, allocate)


@cython.cfunc
def text_column(part: Parts, count: cython.Py_ssize_t, allocate):
    """Return every PARTS-th part as a column: (validity bits or None, offsets, values)."""
    offsets = PyBytes_FromStringAndSize(cython.NULL, (count + 1) * 4)
    ends: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(offsets))
    target: Py_buffer
    total: cython.Py_ssize_t = 0
    missing: cython.Py_ssize_t = 0
    n: cython.Py_ssize_t
    for n in range(count):
        ends[n] = cython.cast(int32_t, total)
        total += part[n * PARTS].size
        missing += part[n * PARTS].at == cython.NULL
    ends[count] = cython.cast(int32_t, total)
    if total > MOST_BYTES:
        raise ValueError(f"the values have {total} bytes, Arrow's limit is {MOST_BYTES}")
    if allocate is None:
        values = PyBytes_FromStringAndSize(cython.NULL, total)
        join(part, count, PyBytes_AS_STRING(values))
    else:
        values = allocate(total)
        PyObject_GetBuffer(values, cython.address(target), PyBUF_WRITABLE)
        try:
            if target.len < total:
                raise ValueError(f"a buffer of {target.len} bytes, not {total}")
            join(part, count, cython.cast(cython.p_char, target.buf))
        finally:
            PyBuffer_Release(cython.address(target))
    return (validity_bits(part, count) if missing else None), offsets, values


@cython.cfunc
@cython.exceptval(check=False)
def join(part: Parts, count: cython.Py_ssize_t, to: cython.p_char) -> cython.void:
    """Write every PARTS-th part, one after the other."""
    n: cython.Py_ssize_t
    with cython.nogil:
        for n in range(count):
            if part[n * PARTS].size:  # else `at` may be NULL
                memcpy(to, part[n * PARTS].at, part[n * PARTS].size)
                to += part[n * PARTS].size


@cython.cfunc
def encoded_column(part: Parts, count: cython.Py_ssize_t):
    """Return every PARTS-th part as a column: (validity bits or None, numbers of values, distinct values); None for
    more than MOST_VALUES."""
    taken = PyBytes_FromStringAndSize(cython.NULL, count * 4)
    codes: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(taken))
    firsts: cython.Py_ssize_t[128]  # MOST_VALUES; by value: the first row that has it
    values: cython.int = 0
    missing: cython.Py_ssize_t = 0
    with cython.nogil:
        values = number_values(part, count, codes, firsts, cython.address(missing))
    if values < 0:
        return None
    distinct = [
        PyBytes_FromStringAndSize(cython.cast(cython.p_char, part[firsts[n] * PARTS].at), part[firsts[n] * PARTS].size)
        for n in range(values)
    ]
    return (validity_bits(part, count) if missing else None), taken, distinct


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def number_values(
    part: Parts,
    count: cython.Py_ssize_t,
    codes: cython.pointer(int32_t),
    firsts: cython.pointer(cython.Py_ssize_t),
    missing: cython.pointer(cython.Py_ssize_t),
) -> cython.int:
    """Number the distinct values of every PARTS-th part in the order of their first rows; return how many there are, -1
    for more than MOST_VALUES."""
    slots: cython.short[512]  # SLOTS; the number of a value, or -1
    values: cython.int = 0
    code: cython.int = -1  # of the row before
    slot: cython.int
    n: cython.Py_ssize_t
    memset(slots, 0xFF, SLOTS * cython.sizeof(cython.short))
    for n in range(count):
        if part[n * PARTS].at == cython.NULL:
            codes[n] = 0
            missing[0] += 1
            continue
        if code < 0 or not is_equal(part + n * PARTS, part + firsts[code] * PARTS):
            slot = hash_of(part + n * PARTS) % SLOTS
            while slots[slot] >= 0 and not is_equal(part + n * PARTS, part + firsts[slots[slot]] * PARTS):
                slot = (slot + 1) % SLOTS
            if slots[slot] < 0:
                if values == MOST_VALUES:
                    return -1
                firsts[values] = n
                slots[slot] = cython.cast(cython.short, values)
                values += 1
            code = slots[slot]
        codes[n] = code
    return values


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def is_equal(one: Parts, other: Parts) -> cython.bint:
    """Return whether two parts have the same bytes."""
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def hash_of(part: Parts) -> uint32_t:
    """Return a number that differs for most values: FNV-1a of the last 16 bytes and the size."""
    number: uint32_t = FNV_BASIS ^ cython.cast(uint32_t, part.size)
    n: cython.Py_ssize_t
    for n in range(max(part.size - 16, 0), part.size):
        number = (number ^ part.at[n]) * FNV_PRIME
    return number ^ number >> 15


@cython.cfunc
def view_column(part: Parts, count: cython.Py_ssize_t, source: Text):
    """Return every PARTS-th part as a column: (validity bits or None, views). A view is the size, then a short value
    itself, or its first 4 bytes, the number of its buffer, which is 0, and its begin."""
    taken = PyBytes_FromStringAndSize(cython.NULL, count * VIEW_BYTES)
    view: cython.p_char = PyBytes_AS_STRING(taken)
    number: int32_t
    missing: cython.Py_ssize_t = 0
    n: cython.Py_ssize_t
    memset(view, 0, count * VIEW_BYTES)
    with cython.nogil:
        for n in range(count):
            number = cython.cast(int32_t, part[n * PARTS].size)
            memcpy(view, cython.address(number), 4)
            if part[n * PARTS].size > INLINE_BYTES:
                memcpy(view + 4, part[n * PARTS].at, 4)
                number = cython.cast(int32_t, part[n * PARTS].at - source)
                memcpy(view + 12, cython.address(number), 4)
            elif part[n * PARTS].size:
                memcpy(view + 4, part[n * PARTS].at, part[n * PARTS].size)
            missing += part[n * PARTS].at == cython.NULL
            view += VIEW_BYTES
    return (validity_bits(part, count) if missing else None), taken


@cython.cfunc
def validity_bits(part: Parts, count: cython.Py_ssize_t):
    """Return the validity bits: one for each PARTS-th part, set if the part exists."""
    taken = PyBytes_FromStringAndSize(cython.NULL, (count + 7) // 8)
    bits: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(taken))
    n: cython.Py_ssize_t
    memset(bits, 0, (count + 7) // 8)
    for n in range(count):
        if part[n * PARTS].at != cython.NULL:
            bits[n >> 3] |= cython.cast(cython.uchar, 1 << (n & 7))
    return taken


# --- numbers --------------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def get16(position: Text) -> uint32_t:
    """Return two bytes as a big-endian number."""
    return cython.cast(uint32_t, position[0]) << 8 | position[1]
