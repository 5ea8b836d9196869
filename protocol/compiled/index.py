"""Items of an index file from messages.

The pure-Python versions, with the full documentation, are broker/store/index/entries.py and broker/store/index/file.py.
If the keys of a message are not known, `find_keys` is called. Layout: protocol.disk.

The remaining space for all items is checked before the first is written, so nothing is written beyond the end of a
mapping.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.libc.stdint import int32_t, int64_t, uint32_t, uint64_t
from cython.cimports.libc.string import memchr, memmove
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32, put32, put64
from cython.cimports.skylarkmq.protocol.compiled.prefetch import prefetch
from cython.cimports.skylarkmq.protocol.compiled.record import Append, check_key_positions

Byte = cython.typedef(cython.p_uchar)
Numbers = cython.typedef(cython.pointer(int64_t))

ITEM_SIZE = cython.declare(cython.Py_ssize_t, 20)
INDEX_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 40)
KEPT_BYTES = cython.declare(cython.Py_ssize_t, 8 << 20)  # larger columns are freed
TRANSACTION = cython.declare(cython.int, 0xC)
ROLLBACK = cython.declare(cython.int, 0xC)
AHEAD = cython.declare(cython.Py_ssize_t, 16)  # a slot is prefetched this many items before it is used
MAX_SECONDS = cython.declare(int64_t, 0x7FFFFFFF)


@cython.cclass
class IndexEntries:
    """Index entries that are not in a file yet; see broker/store/index/entries.py. It has no `first`, and `columns`
    returns bytes.

    Columns of int64 in the machine's byte order: hash, physical offset, store time.
    """

    find_keys = cython.declare(object)
    hashes = cython.declare(bytearray)
    offsets = cython.declare(bytearray)
    timestamps = cython.declare(bytearray)
    count = cython.declare(cython.Py_ssize_t)
    capacity = cython.declare(cython.Py_ssize_t)  # number of entries that fit into each column
    topic = cython.declare(object)  # the last topic; `prefix` is the hash of `topic#`
    prefix = cython.declare(uint32_t)

    def __init__(self, find_keys):
        self.find_keys = find_keys
        self.free_columns()
        self.clear()

    def clear(self):
        """Drop all entries."""
        if 8 * self.capacity > KEPT_BYTES:
            self.free_columns()
        self.count = 0
        self.topic = None

    @cython.cfunc
    def free_columns(self):
        """Free the columns; the new ones have no capacity."""
        self.count = self.capacity = 0
        self.hashes, self.offsets, self.timestamps = bytearray(), bytearray(), bytearray()

    def add(self, messages, passed: cython.Py_ssize_t = 0):
        """Add the keys of messages, without the first `passed` keys of the first message."""
        append: Append
        for message in messages:
            if type(message) is Append:
                append = message
                if append.sys_flag & TRANSACTION == ROLLBACK:
                    pass
                elif append.key_size and not passed:
                    self.add_at_positions(append)
                else:
                    self.add_keys(
                        append.topic,
                        self.find_keys(append.property_bytes) if append.keys is None else append.keys,
                        passed,
                        append.physical_offset,
                        append.store_timestamp,
                    )
            elif message.sys_flag & TRANSACTION != ROLLBACK:
                found = message.keys
                if found is None:
                    found = self.find_keys(message.properties)
                self.add_keys(message.topic, found, passed, message.physical_offset, message.store_timestamp)
            passed = 0

    @cython.cfunc
    def add_keys(
        self, topic: str, keys: list, passed: cython.Py_ssize_t, offset: cython.longlong, timestamp: cython.longlong
    ):
        self.set_topic(topic)
        at: cython.Py_ssize_t
        for at in range(passed, len(keys)):
            self.add_row(hash_key(keys[at], self.prefix), offset, timestamp)

    @cython.cfunc
    def add_at_positions(self, append: Append):
        """Add the keys of a message whose positions in the properties are known; they are ASCII."""
        check_key_positions(append)
        self.set_topic(append.topic)
        text: Byte = cython.cast(Byte, PyBytes_AS_STRING(append.property_bytes))
        begin: Byte = text + append.keys_at
        end: Byte = begin + append.keys_size
        mark: Byte
        self.add_row(
            hash_bytes(text + append.key_at, append.key_size, self.prefix),
            append.physical_offset,
            append.store_timestamp,
        )
        while begin < end:
            mark = cython.cast(Byte, memchr(begin, 32, end - begin))
            if mark == cython.NULL:
                mark = end
            if mark > begin:
                self.add_row(
                    hash_bytes(begin, mark - begin, self.prefix), append.physical_offset, append.store_timestamp
                )
            begin = mark + 1

    @cython.cfunc
    @cython.inline
    def set_topic(self, topic: str):
        if topic is not self.topic:
            self.prefix = 31 * hash_text(topic, 0) + 35
            self.topic = topic

    @cython.cfunc
    @cython.inline
    def add_row(self, code: uint32_t, offset: int64_t, timestamp: int64_t):
        if self.count == self.capacity:
            self.grow()
        cython.cast(Numbers, PyByteArray_AS_STRING(self.hashes))[self.count] = positive(code)
        cython.cast(Numbers, PyByteArray_AS_STRING(self.offsets))[self.count] = offset
        cython.cast(Numbers, PyByteArray_AS_STRING(self.timestamps))[self.count] = timestamp
        self.count += 1

    @cython.cfunc
    def grow(self):
        """Double the capacity. It is set after all columns have it: a MemoryError leaves the entries unchanged."""
        capacity: cython.Py_ssize_t = 2 * self.capacity + 1024
        PyByteArray_Resize(self.hashes, 8 * capacity)
        PyByteArray_Resize(self.offsets, 8 * capacity)
        PyByteArray_Resize(self.timestamps, 8 * capacity)
        self.capacity = capacity

    def __len__(self):
        return self.count

    def columns(self, count: cython.Py_ssize_t):
        """Return the oldest entries, up to `count`: hashes, offsets, store times, each as bytes of int64."""
        size: cython.Py_ssize_t = 8 * min(count, self.count)
        return bytes(self.hashes[:size]), bytes(self.offsets[:size]), bytes(self.timestamps[:size])

    def drop(self, count: cython.Py_ssize_t):
        """Drop the oldest `count` entries, which are in a file."""
        if count >= self.count:
            self.clear()
        elif count > 0:
            self.count -= count
            move_front(self.hashes, count, self.count)
            move_front(self.offsets, count, self.count)
            move_front(self.timestamps, count, self.count)

    def __repr__(self):
        return f"<IndexEntries {self.count}>"


@cython.cfunc
def move_front(column: bytearray, dropped: cython.Py_ssize_t, count: cython.Py_ssize_t):
    """Move the `count` numbers after the first `dropped` to the front of the column."""
    numbers: Numbers = cython.cast(Numbers, PyByteArray_AS_STRING(column))
    memmove(numbers, numbers + dropped, 8 * count)


@cython.cfunc
@cython.exceptval(check=False)
def hash_bytes(text: Byte, size: cython.Py_ssize_t, code: uint32_t) -> uint32_t:
    """Return Java's hash of a text whose beginning has the hash `code` and whose rest is this ASCII text."""
    at: cython.Py_ssize_t
    for at in range(size):
        code = 31 * code + text[at]
    return code


@cython.cfunc
@cython.exceptval(check=False)
def is_ascii(text: Byte, size: cython.Py_ssize_t) -> cython.bint:
    at: cython.Py_ssize_t
    bits: cython.uchar = 0
    for at in range(size):
        bits |= text[at]
    return bits < 128


@cython.cfunc
@cython.exceptval(check=True)
def hash_text(text: str, code: uint32_t) -> uint32_t:
    """Return the same as `hash_bytes` for any text, over its UTF-16 units."""
    character: cython.Py_UCS4
    point: uint32_t
    for character in text:
        point = cython.cast(uint32_t, character)
        if point > 0xFFFF:
            code = 31 * code + 0xD800 + ((point - 0x10000) >> 10)
            code = 31 * code + 0xDC00 + ((point - 0x10000) & 0x3FF)
        else:
            code = 31 * code + point
    return code


@cython.cfunc
@cython.exceptval(check=True)
def hash_key(key: bytes, code: uint32_t) -> uint32_t:
    text: Byte = cython.cast(Byte, PyBytes_AS_STRING(key))
    size: cython.Py_ssize_t = len(key)
    if is_ascii(text, size):
        return hash_bytes(text, size, code)
    return hash_text(key.decode("utf-8", "replace"), code)


@cython.cfunc
@cython.exceptval(check=False)
def positive(code: uint32_t) -> int64_t:
    """Return Java's absolute value as the index uses it: 0 for -2^31."""
    number: int64_t = cython.cast(int32_t, code)
    if number < 0:
        number = -number
    return number & 0x7FFFFFFF


def put_items(
    mapping,
    slots: cython.longlong,
    first: cython.longlong,
    begin_timestamp: cython.longlong,
    hashes: cython.const[int64_t][:],
    offsets: cython.const[int64_t][:],
    timestamps: cython.const[int64_t][:],
):
    """Write items into the mapping of an index file, from number `first` on; return how many chains they begin."""
    view: Py_buffer
    count: cython.Py_ssize_t = hashes.shape[0]
    begun: cython.Py_ssize_t = 0
    PyObject_GetBuffer(mapping, cython.address(view), PyBUF_WRITABLE)
    try:
        items_at: cython.longlong = INDEX_HEADER_SIZE + 4 * slots
        if items_at + ITEM_SIZE * (first + count) > view.len:
            raise ValueError("the items do not fit into the file")
        base: Byte = cython.cast(Byte, view.buf)
        at: cython.Py_ssize_t
        number: int64_t = first
        for at in range(count):
            if at + AHEAD < count:
                prefetch(base + INDEX_HEADER_SIZE + 4 * (hashes[at + AHEAD] % slots))
            begun += put_item(
                base + INDEX_HEADER_SIZE + 4 * (hashes[at] % slots),
                base + items_at + ITEM_SIZE * number,
                number,
                cython.cast(uint32_t, hashes[at]),
                cython.cast(uint64_t, offsets[at]),
                seconds_between(begin_timestamp, timestamps[at]),
            )
            number += 1
    finally:
        PyBuffer_Release(cython.address(view))
    return begun


@cython.cfunc
@cython.exceptval(check=False)
def put_item(
    slot: Byte, item: Byte, number: int64_t, code: uint32_t, offset: uint64_t, seconds: uint32_t
) -> cython.int:
    """Write one item and its slot; return 1 if the item begins its chain."""
    old: int64_t = cython.cast(int32_t, get32(slot))
    if old < 0 or old > number:
        old = 0
    put32(item, code)
    put64(item + 4, offset)
    put32(item + 12, seconds)
    put32(item + 16, cython.cast(uint32_t, old))
    put32(slot, cython.cast(uint32_t, number))
    return 1 if old == 0 else 0


@cython.cfunc
@cython.exceptval(check=False)
def seconds_between(begin: int64_t, timestamp: int64_t) -> uint32_t:
    if begin <= 0 or timestamp <= begin:
        return 0
    return cython.cast(uint32_t, min((timestamp - begin) // 1000, MAX_SECONDS))
