"""Records from messages.

The pure-Python versions, with the full documentation, are broker/store/log/append.py and
broker/store/log/record_batch.py. This module does what every message needs. For everything else it calls `unusual`, or
leaves it to the owners of its objects. Layout: protocol.record.

Space for a record is reserved before its first byte is written, so nothing is written beyond the reserved space.
"""

import cython
from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.stdint import uint32_t, uint64_t
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.skylarkmq.protocol.compiled.big_endian import put32, put64
from cython.cimports.skylarkmq.protocol.compiled.prefetch import prefetch, prefetch_item
from cython.cimports.skylarkmq.protocol.compiled.properties import add_keys
from cython.cimports.skylarkmq.protocol.compiled.queue_tail import QueueTail
from isal.isal_zlib import crc32

Byte = cython.typedef(cython.p_uchar)

BLANK_SIZE = cython.declare(cython.Py_ssize_t, 8)
AROUND = cython.declare(cython.Py_ssize_t, 74)  # size of a record without hosts, body, topic field and properties
KEPT_BYTES = cython.declare(cython.Py_ssize_t, 8 << 20)  # a larger buffer is freed
FEWEST_SLOTS = cython.declare(cython.Py_ssize_t, 1 << 10)  # initial size of the table of known queues
SPREAD = cython.declare(uint64_t, 0x9E3779B1)  # a multiplier that mixes bits
HEAD_BYTES = cython.declare(cython.Py_ssize_t, 16)  # of an object's head
LINE_BYTES = cython.declare(cython.Py_ssize_t, 64)
BORN_HOST_V6 = cython.declare(cython.int, 0x10)
STORE_HOST_V6 = cython.declare(cython.int, 0x20)
TRANSACTION = cython.declare(cython.int, 0xC)
COMMIT = cython.declare(cython.int, 0x8)
RECORD_FLAGS = cython.declare(cython.int, 0x70F)  # the sysFlag bits of a message that its record keeps

initial_status = cython.declare(object, None)


def set_initial_status(status):
    """Set the initial status of every append."""
    global initial_status  # noqa: PLW0603 - set once, at import
    initial_status = status


@cython.final
@cython.no_gc
@cython.freelist(1024)
@cython.cclass
class Append:
    """A message on its way into the log; broker/store/log/append.py documents the fields."""

    def __init__(
        self,
        topic: str,
        queue_id: cython.int,
        body,
        properties: bytes,
        tags_code: cython.longlong,
        flag: cython.int,
        sys_flag: cython.int,
        born_timestamp: cython.longlong,
        born_host: bytes,
        reconsume_times: cython.int = 0,
        prepared_transaction_offset: cython.longlong = 0,
        wait_flush: cython.bint = True,
        status=None,
        physical_offset: cython.longlong = -1,
        queue_offset: cython.longlong = -1,
        size: cython.int = 0,
        store_timestamp: cython.longlong = 0,
        queue=None,
        keys=None,
    ):
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.tags_code = tags_code
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.wait_flush = wait_flush
        self.status = initial_status if status is None else status
        self.physical_offset = physical_offset
        self.queue_offset = queue_offset
        self.size = size
        self.store_timestamp = store_timestamp
        self.queue = queue
        self.keys = keys

    @property
    def body(self):
        """Bytes, or a view of them. A body in the receive buffer is copied on access."""
        if self.body_at != cython.NULL:
            self.body_object = PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, self.body_at), self.body_size)
            self.body_at = cython.NULL
        return self.body_object

    @body.setter
    def body(self, body):
        self.body_object = body
        self.body_at = cython.NULL

    @property
    def properties(self):
        """The final bytes of the properties."""
        return self.property_bytes

    @properties.setter
    def properties(self, properties: bytes):
        if self.key_size:  # positions in the bytes that are replaced
            self.keys = self.keys
        self.property_bytes = properties

    @property
    def keys(self):
        """The unique key and the other keys, or None if they are not known."""
        if self.key_size:
            check_key_positions(self)
            text: cython.p_char = PyBytes_AS_STRING(self.property_bytes)
            keys: list = [PyBytes_FromStringAndSize(text + self.key_at, self.key_size)]
            add_keys(keys, text + self.keys_at, self.keys_size)
            self.keys = keys
        return self.key_list

    @keys.setter
    def keys(self, keys):
        self.key_list = keys
        self.key_size = 0

    def __repr__(self):
        return f"<Append {self.topic}/{self.queue_id} {self.status} {self.physical_offset}+{self.size}>"


@cython.cfunc
@cython.exceptval(-1, check=True)
def check_key_positions(append: Append) -> cython.int:
    """Raise ValueError unless the unique key and the value of KEYS are within the properties."""
    size: cython.Py_ssize_t = len(append.property_bytes)
    if append.key_at < 0 or append.key_size < 0 or append.key_at > size - append.key_size:
        raise ValueError(f"a key of {append.key_size} bytes at {append.key_at} of {size}")
    if append.keys_at < 0 or append.keys_size < 0 or append.keys_at > size - append.keys_size:
        raise ValueError(f"keys of {append.keys_size} bytes at {append.keys_at} of {size}")
    return 0


@cython.cfunc
@cython.inline
def body_length(append: Append) -> cython.Py_ssize_t:
    return append.body_size if append.body_at != cython.NULL else len(append.body_object)


@cython.final
@cython.cclass
class BorrowedBytes:
    """Bytes at an address, as an object with a buffer. The object is reused: it is valid until the next body."""

    begin = cython.declare(Byte)
    size = cython.declare(cython.Py_ssize_t)

    def __getbuffer__(self, buffer: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(buffer, self, cython.cast(cython.p_void, self.begin), self.size, True, flags)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def slot_of(topic: str, queue_id: cython.int, slots: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the first slot in which a queue is looked up, from its topic's address; `slots` is a power of two."""
    mixed: uint64_t = cython.cast(uint64_t, cython.cast(cython.p_void, topic)) >> 4
    mixed = (mixed * 31 + cython.cast(uint64_t, queue_id)) * SPREAD
    return cython.cast(cython.Py_ssize_t, (mixed >> 16) & cython.cast(uint64_t, slots - 1))


@cython.final
@cython.cclass
class RecordBatch:
    """The records of a batch; see broker/store/log/record_batch.py."""

    at = cython.declare(cython.longlong, visibility="public")
    unchecked_size = cython.declare(cython.longlong, visibility="public")
    timestamp = cython.declare(cython.longlong, visibility="readonly")
    appends = cython.declare(list, visibility="readonly")
    queues = cython.declare(dict)
    unusual = cython.declare(object)
    store_host = cython.declare(bytes)
    store_host_size = cython.declare(cython.Py_ssize_t)
    records_end = cython.declare(cython.longlong)
    buffer = cython.declare(bytearray)
    used = cython.declare(cython.Py_ssize_t)
    received = cython.declare(BorrowedBytes)
    known = cython.declare(list)
    known_count = cython.declare(cython.Py_ssize_t)

    def __init__(self, queues: dict, store_host: bytes, unusual):
        self.queues = queues
        self.unusual = unusual
        self.store_host = store_host
        self.store_host_size = len(store_host)
        self.unchecked_size = -1
        self.at = 0
        self.timestamp = 0
        self.appends = []
        self.records_end = -1
        self.buffer = bytearray(1 << 16)
        self.used = 0
        self.received = BorrowedBytes()
        self.known = [None] * FEWEST_SLOTS
        self.known_count = 0

    def open(self, at: cython.longlong, segment_end: cython.longlong, timestamp: cython.longlong):
        """Write the next records at log offset `at`, up to where a blank still fits into the segment."""
        self.at = at
        self.records_end = segment_end - BLANK_SIZE
        self.timestamp = timestamp

    def put(self, append: Append, is_checked: cython.bint = False):
        """Add one message."""
        self.put_one(append, is_checked, None)

    def put_run(self, appends, is_checked: cython.bint = False):
        """Add messages in their order."""
        append: Append
        queue = None
        self.prefetch_queues(appends)
        for item in appends:
            append = item
            queue = self.put_one(append, is_checked, queue)

    @cython.cfunc
    def prefetch_queues(self, appends: list):
        """Prefetch the queues of these messages."""
        append: Append
        slot: cython.Py_ssize_t
        for item in appends:
            append = item
            prefetch_item(self.known, slot_of(append.topic, append.queue_id, len(self.known)))
        for item in appends:
            append = item
            slot = slot_of(append.topic, append.queue_id, len(self.known))
            queue = self.known[slot]
            prefetch(cython.cast(Byte, cython.cast(cython.p_void, queue)) + HEAD_BYTES)
            prefetch(cython.cast(Byte, cython.cast(cython.p_void, queue)) + HEAD_BYTES + LINE_BYTES)

    def put_alike(self, appends):
        """Add messages that differ only in body, properties and flag, and for which the space was checked."""
        self.put_run(appends, True)

    @cython.cfunc
    def put_one(self, append: Append, is_checked: cython.bint, last):
        """Add one message; `last` is the queue of the previous one, or None. Return the message's queue, or None."""
        queue: QueueTail = last
        if queue is None or append.queue_id != queue.queue_id or append.topic != queue.topic:
            queue = self.queue_of(append)
            if queue is None:
                self.unusual(append)
                return None
        view: Py_buffer
        host_size: cython.Py_ssize_t = len(append.born_host)
        if host_size != 8 and host_size != 20:
            raise KeyError(host_size)
        topic_size: cython.Py_ssize_t = len(queue.topic_field)
        properties_size: cython.Py_ssize_t = len(append.property_bytes)
        body = append.body_object
        if append.body_at != cython.NULL:
            self.received.begin = cython.cast(Byte, append.body_at)
            self.received.size = append.body_size
            body = self.received
        checksum: uint32_t = crc32(body) & 0x7FFFFFFF
        PyObject_GetBuffer(body, cython.address(view), PyBUF_SIMPLE)
        try:
            size: cython.Py_ssize_t = (
                AROUND + host_size + self.store_host_size + view.len + topic_size + properties_size
            )
            if (self.at + size > self.records_end or size > self.unchecked_size) and not is_checked:
                size = 0
            else:
                self.write(append, queue, cython.cast(Byte, view.buf), view.len, checksum, size)
        finally:
            PyBuffer_Release(cython.address(view))
        if not size:
            self.unusual(append)
            return None
        return queue

    @cython.cfunc
    def queue_of(self, append: Append) -> QueueTail:
        """Return the append's queue, or None. Recently used queues are found in a table without making a key."""
        slots: cython.Py_ssize_t = len(self.known)
        slot: cython.Py_ssize_t = slot_of(append.topic, append.queue_id, slots)
        queue: QueueTail = self.known[slot]
        while queue is not None and (queue.topic is not append.topic or queue.queue_id != append.queue_id):
            slot = (slot + 1) & (slots - 1)
            queue = self.known[slot]
        if queue is None or queue.is_removed:
            is_new: cython.bint = queue is None
            queue = self.queues.get((append.topic, append.queue_id))
            if queue is not None and queue.topic is append.topic:  # an equal text can be another object
                self.known[slot] = queue
                self.known_count += is_new
                if 3 * self.known_count > slots:
                    self.grow_known()
        return queue

    @cython.cfunc
    def grow_known(self):
        """Double the table of known queues; removed queues are dropped."""
        queue: QueueTail
        slot: cython.Py_ssize_t
        before: list = self.known
        slots: cython.Py_ssize_t = 2 * len(before)
        self.known = [None] * slots
        self.known_count = 0
        for item in before:
            queue = item
            if queue is None or queue.is_removed:
                continue
            slot = slot_of(queue.topic, queue.queue_id, slots)
            while self.known[slot] is not None:
                slot = (slot + 1) & (slots - 1)
            self.known[slot] = queue
            self.known_count += 1

    @cython.cfunc
    def write(
        self,
        append: Append,
        queue: QueueTail,
        body: Byte,
        body_size: cython.Py_ssize_t,
        checksum: uint32_t,
        size: cython.Py_ssize_t,
    ):
        host_size: cython.Py_ssize_t = len(append.born_host)
        topic_size: cython.Py_ssize_t = len(queue.topic_field)
        properties_size: cython.Py_ssize_t = len(append.property_bytes)
        sys_flag: cython.int = append.sys_flag & RECORD_FLAGS
        queue_offset: cython.longlong = 0
        to: Byte
        self.reserve(size)
        self.appends.append(append)  # nothing can raise from here on
        to = cython.cast(Byte, PyByteArray_AS_STRING(self.buffer)) + self.used
        if host_size == 20:
            sys_flag |= BORN_HOST_V6
        if self.store_host_size == 20:
            sys_flag |= STORE_HOST_V6
        if sys_flag & TRANSACTION == 0 or sys_flag & TRANSACTION == COMMIT:
            queue_offset = queue.next_offset
            queue.next_offset = queue_offset + 1
            append.queue = queue
            prefetch(queue.units + queue.units_size)  # the position of its unit
        put32(to, cython.cast(uint32_t, size))
        put32(to + 4, cython.cast(uint32_t, queue.magic))
        put32(to + 8, checksum)
        put32(to + 12, cython.cast(uint32_t, append.queue_id))
        put32(to + 16, cython.cast(uint32_t, append.flag))
        put64(to + 20, cython.cast(uint64_t, queue_offset))
        put64(to + 28, cython.cast(uint64_t, self.at))
        put32(to + 36, cython.cast(uint32_t, sys_flag))
        put64(to + 40, cython.cast(uint64_t, append.born_timestamp))
        memcpy(to + 48, PyBytes_AS_STRING(append.born_host), host_size)
        to += 48 + host_size
        put64(to, cython.cast(uint64_t, self.timestamp))
        memcpy(to + 8, PyBytes_AS_STRING(self.store_host), self.store_host_size)
        to += 8 + self.store_host_size
        put32(to, cython.cast(uint32_t, append.reconsume_times))
        put64(to + 4, cython.cast(uint64_t, append.prepared_transaction_offset))
        put32(to + 12, cython.cast(uint32_t, body_size))
        to += 16
        memcpy(to, body, body_size)
        to += body_size
        memcpy(to, PyBytes_AS_STRING(queue.topic_field), topic_size)
        to += topic_size
        to[0] = cython.cast(cython.uchar, properties_size >> 8)
        to[1] = cython.cast(cython.uchar, properties_size)
        memcpy(to + 2, PyBytes_AS_STRING(append.property_bytes), properties_size)
        self.used += size
        append.physical_offset = self.at
        append.queue_offset = queue_offset
        append.size = cython.cast(cython.int, size)
        append.store_timestamp = self.timestamp
        self.at += size

    @cython.cfunc
    def reserve(self, size: cython.Py_ssize_t):
        capacity: cython.Py_ssize_t = len(self.buffer)
        if self.used + size > capacity:
            PyByteArray_Resize(self.buffer, max(2 * capacity, self.used + size))

    def record_size(self, append: Append, topic_size: cython.Py_ssize_t):
        """Return the size of a message's record in bytes; `topic_size` is the size of the topic field."""
        hosts: cython.Py_ssize_t = len(append.born_host) + self.store_host_size
        return AROUND + hosts + body_length(append) + topic_size + len(append.property_bytes)

    def total_size(self, appends):
        """Return the total size of the records; 0 if one of the messages needs any check other than that of the
        space."""
        append: Append
        queue: QueueTail = None
        total: cython.longlong = 0
        size: cython.Py_ssize_t
        for item in appends:
            append = item
            if queue is None or append.queue_id != queue.queue_id or append.topic != queue.topic:
                queue = self.queue_of(append)
                if queue is None:
                    return 0
            size = AROUND + len(append.born_host) + self.store_host_size + body_length(append)
            size += len(queue.topic_field) + len(append.property_bytes)
            if size > self.unchecked_size:
                return 0
            total += size
        return total

    def total_size_alike(self, appends):
        """Return the same for messages that differ only in body, properties and flag."""
        return self.total_size(appends)

    def data(self, padding: cython.Py_ssize_t = 0):
        """Return the records since the last `open`, and `padding` zeros. Release it before the next call here."""
        self.reserve(padding)
        memset(PyByteArray_AS_STRING(self.buffer) + self.used, 0, padding)
        return memoryview(self.buffer)[: self.used + padding]

    def restart(self):
        """Forget the data, which is written; the next record begins a segment or a batch."""
        self.used = 0
        self.records_end = -1
        if len(self.buffer) > KEPT_BYTES:
            self.buffer = bytearray(1 << 16)

    def close(self):
        """End the batch, which is written or abandoned; return its appends."""
        self.restart()
        appends = self.appends
        self.appends = []
        return appends

    def __repr__(self):
        return f"<RecordBatch messages={len(self.appends)} at={self.at}>"


def settle(appends, status):
    """Set the status of appends that have the initial status; see broker/store/log/append.py."""
    append: Append
    for item in appends:
        append = item
        if append.status is initial_status:
            append.status = status
