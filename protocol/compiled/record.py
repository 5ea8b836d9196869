"""From a message to its record, its queue unit and its index entries, in C.

The interpreted twins are in broker.store (append, record_batch, queue_tail, index_entries, index_file) and say what is
what. Here is only what every message needs; the rest is called back (`unusual`, `deliver_time`, `jumped`, `find_keys`)
or done by those who own these objects. Layouts: protocol.record, protocol.disk.

Nothing is written behind the end of what was made room for: a record's room is made before its first byte, an item's is
checked against the mapping's length.
"""

import cython
from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.stdint import int32_t, int64_t, uint32_t, uint64_t
from cython.cimports.libc.string import memchr, memcpy, memset
from cython.cimports.protocol.compiled.properties import add_keys
from isal.isal_zlib import crc32

Byte = cython.typedef(cython.p_uchar)
Numbers = cython.typedef(cython.pointer(int64_t))

BLANK_SIZE = cython.declare(cython.Py_ssize_t, 8)
UNIT_SIZE = cython.declare(cython.Py_ssize_t, 20)
ITEM_SIZE = cython.declare(cython.Py_ssize_t, 20)
INDEX_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 40)
AROUND = cython.declare(cython.Py_ssize_t, 74)  # of a record without hosts, body, topic field and properties
KEPT_BYTES = cython.declare(cython.Py_ssize_t, 8 << 20)  # a larger buffer is given back
BORN_HOST_V6 = cython.declare(cython.int, 0x10)
STORE_HOST_V6 = cython.declare(cython.int, 0x20)
TRANSACTION = cython.declare(cython.int, 0xC)
COMMIT = cython.declare(cython.int, 0x8)
ROLLBACK = cython.declare(cython.int, 0xC)
MAX_SECONDS = cython.declare(int64_t, 0x7FFFFFFF)

initial_status = cython.declare(object, None)


def begin_with(status):
    """The status of every new append."""
    global initial_status  # noqa: PLW0603 - told once, at import
    initial_status = status


@cython.final
@cython.no_gc
@cython.freelist(1024)
@cython.cclass
class Append:
    """The twin of broker.store.append.Append, where the fields are explained."""

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
        """Bytes, or a view of them. What still stands in the receive buffer is copied from there."""
        if self.body_at != cython.NULL:
            self.held_body = PyBytes_FromStringAndSize(
                cython.cast(cython.p_const_char, self.body_at), self.body_size
            )
            self.body_at = cython.NULL
        return self.held_body

    @body.setter
    def body(self, body):
        self.held_body = body
        self.body_at = cython.NULL

    @property
    def keys(self):
        """The unique key and the others, if they are known."""
        if self.key_size:
            text: cython.p_char = PyBytes_AS_STRING(self.properties)
            keys: list = [PyBytes_FromStringAndSize(text + self.key_at, self.key_size)]
            add_keys(keys, text + self.keys_at, self.keys_size)
            self.keys = keys
        return self.held_keys

    @keys.setter
    def keys(self, keys):
        self.held_keys = keys
        self.key_size = 0

    def __repr__(self):
        return f"<Append {self.topic}/{self.queue_id} {self.status} {self.physical_offset}+{self.size}>"


@cython.cfunc
@cython.inline
def body_length(append: Append) -> cython.Py_ssize_t:
    return append.body_size if append.body_at != cython.NULL else len(append.held_body)


@cython.final
@cython.cclass
class Received:
    """Bytes that stand somewhere in memory, for who wants an object: the next body's as soon as that is looked at."""

    begin = cython.declare(Byte)
    size = cython.declare(cython.Py_ssize_t)

    def __getbuffer__(self, buffer: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(buffer, self, cython.cast(cython.p_void, self.begin), self.size, True, flags)


@cython.cclass
class QueueTail:
    """The twin of broker.store.queue_tail.PlainQueueTail."""

    def __init__(self, topic: str, queue_id: cython.int):
        text: bytes = topic.encode()
        size: cython.Py_ssize_t = len(text)
        self.topic = topic
        self.queue_id = queue_id
        self.magic = cython.cast(cython.int, 0xDAA320A7 if size <= 127 else 0xDAA320AB)
        self.topic_field = size.to_bytes(1 if size <= 127 else 2, "big") + text
        self.is_schedule = topic == "SCHEDULE_TOPIC_XXXX"
        self.next_offset = 0
        self.pending = bytearray()
        self.pending_next = 0
        self.end = 0
        self.is_removed = False
        self.turn = 0

    def take_turn(self):
        """Tags codes and sizes of the units gathered since the last call."""
        codes: list = []
        sizes: list = []
        unit: Byte = cython.cast(Byte, PyByteArray_AS_STRING(self.pending)) + len(self.pending) - UNIT_SIZE * self.turn
        while self.turn:
            sizes.append(cython.cast(cython.int, get32(unit + 8)))
            codes.append(cython.cast(cython.longlong, get64(unit + 12)))
            unit += UNIT_SIZE
            self.turn -= 1
        return codes, sizes


@cython.final
@cython.cclass
class RecordBatch:
    """The twin of broker.store.record_batch.PlainRecordBatch."""

    at = cython.declare(cython.longlong, visibility="public")
    unchecked_size = cython.declare(cython.longlong, visibility="public")
    timestamp = cython.declare(cython.longlong, visibility="readonly")
    appends = cython.declare(list, visibility="readonly")
    queues = cython.declare(dict)
    unusual = cython.declare(object)
    store_host = cython.declare(bytes)
    store_host_size = cython.declare(cython.Py_ssize_t)
    room_end = cython.declare(cython.longlong)
    buffer = cython.declare(bytearray)
    used = cython.declare(cython.Py_ssize_t)
    received = cython.declare(Received)

    def __init__(self, queues: dict, store_host: bytes, unusual):
        self.queues = queues
        self.unusual = unusual
        self.store_host = store_host
        self.store_host_size = len(store_host)
        self.unchecked_size = -1
        self.at = 0
        self.timestamp = 0
        self.appends = []
        self.room_end = -1
        self.buffer = bytearray(1 << 16)
        self.used = 0
        self.received = Received()

    def open(self, at: cython.longlong, segment_end: cython.longlong, timestamp: cython.longlong):
        """Records go to `at` and on, up to where a blank still fits into the segment."""
        self.at = at
        self.room_end = segment_end - BLANK_SIZE
        self.timestamp = timestamp

    def put(self, append: Append, is_checked: cython.bint = False):
        """Add one message."""
        self.put_one(append, is_checked, None)

    def put_run(self, appends, is_checked: cython.bint = False):
        """Add messages one behind the other."""
        append: Append
        queue = None
        for item in appends:
            append = item
            queue = self.put_one(append, is_checked, queue)

    def put_alike(self, appends):
        """Add messages that differ in body, properties and flag only, and are known to fit."""
        self.put_run(appends, True)

    @cython.cfunc
    def put_one(self, append: Append, is_checked: cython.bint, last):
        """Add one message; `last`: the queue of the one before, or None. Returns its own, or None."""
        queue: QueueTail = last
        if queue is None or append.queue_id != queue.queue_id or append.topic != queue.topic:
            found = self.queues.get((append.topic, append.queue_id))
            if found is None:
                self.unusual(append)
                return None
            queue = found
        view: Py_buffer
        host_size: cython.Py_ssize_t = len(append.born_host)
        if host_size != 8 and host_size != 20:
            raise KeyError(host_size)
        topic_size: cython.Py_ssize_t = len(queue.topic_field)
        properties_size: cython.Py_ssize_t = len(append.properties)
        body = append.held_body
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
            if (self.at + size > self.room_end or size > self.unchecked_size) and not is_checked:
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
        properties_size: cython.Py_ssize_t = len(append.properties)
        sys_flag: cython.int = append.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
        queue_offset: cython.longlong = 0
        to: Byte
        self.make_room(size)
        to = cython.cast(Byte, PyByteArray_AS_STRING(self.buffer)) + self.used
        if host_size == 20:
            sys_flag |= BORN_HOST_V6
        if self.store_host_size == 20:
            sys_flag |= STORE_HOST_V6
        if sys_flag & TRANSACTION == 0 or sys_flag & TRANSACTION == COMMIT:
            queue_offset = queue.next_offset
            queue.next_offset = queue_offset + 1
            append.queue = queue
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
        memcpy(to + 2, PyBytes_AS_STRING(append.properties), properties_size)
        self.used += size
        append.physical_offset = self.at
        append.queue_offset = queue_offset
        append.size = cython.cast(cython.int, size)
        append.store_timestamp = self.timestamp
        self.at += size
        self.appends.append(append)

    @cython.cfunc
    def make_room(self, size: cython.Py_ssize_t):
        capacity: cython.Py_ssize_t = len(self.buffer)
        if self.used + size > capacity:
            PyByteArray_Resize(self.buffer, max(2 * capacity, self.used + size))

    def record_size(self, append: Append, topic_size: cython.Py_ssize_t):
        """Bytes that a message's record will take; `topic_size`: of the topic field."""
        hosts: cython.Py_ssize_t = len(append.born_host) + self.store_host_size
        return AROUND + hosts + body_length(append) + topic_size + len(append.properties)

    def total_size(self, appends):
        """Bytes of the records of messages that only need room; 0 if something else has to be asked about one."""
        append: Append
        queue: QueueTail = None
        total: cython.longlong = 0
        size: cython.Py_ssize_t
        for item in appends:
            append = item
            if queue is None or append.queue_id != queue.queue_id or append.topic != queue.topic:
                found = self.queues.get((append.topic, append.queue_id))
                if found is None:
                    return 0
                queue = found
            size = AROUND + len(append.born_host) + self.store_host_size + body_length(append)
            size += len(queue.topic_field) + len(append.properties)
            if size > self.unchecked_size:
                return 0
            total += size
        return total

    def total_size_alike(self, appends):
        """The same of messages that differ in body, properties and flag only."""
        return self.total_size(appends)

    def data(self, padding: cython.Py_ssize_t = 0):
        """The records since the last `open`, and so many zeros. To be released before the next call here."""
        self.make_room(padding)
        memset(PyByteArray_AS_STRING(self.buffer) + self.used, 0, padding)
        return memoryview(self.buffer)[: self.used + padding]

    def restart(self):
        """What `data` gave is taken care of; the next record opens a segment, or a batch."""
        self.used = 0
        self.room_end = -1
        if len(self.buffer) > KEPT_BYTES:
            self.buffer = bytearray(1 << 16)

    def close(self):
        """The batch is written, or given up; who was in."""
        self.restart()
        appends = self.appends
        self.appends = []
        return appends

    def __repr__(self):
        return f"<RecordBatch messages={len(self.appends)} at={self.at}>"


def settle(appends, status):
    """The twin of broker.store.append.plain_settle."""
    append: Append
    for item in appends:
        append = item
        if append.status is initial_status:
            append.status = status


def gather_units(appends, deliver_time, jumped):
    """The twin of broker.store.queue_tail.plain_gather_units."""
    touched: list = []
    append: Append
    queue: QueueTail
    for item in appends:
        append = item
        if append.queue is None:
            continue
        queue = append.queue
        if queue.is_schedule:
            append.tags_code = deliver_time(append)
        if append.queue_offset != queue.pending_next:
            jumped(queue)
        if queue.turn == 0:
            touched.append(queue)
        queue.turn += 1
        queue.pending_next = append.queue_offset + 1
        add_unit(queue.pending, append)
    return touched


@cython.cfunc
def add_unit(units: bytearray, append: Append):
    size: cython.Py_ssize_t = len(units)
    PyByteArray_Resize(units, size + UNIT_SIZE)
    to: Byte = cython.cast(Byte, PyByteArray_AS_STRING(units)) + size
    put64(to, cython.cast(uint64_t, append.physical_offset))
    put32(to + 8, cython.cast(uint32_t, append.size))
    put64(to + 12, cython.cast(uint64_t, append.tags_code))


@cython.cclass
class IndexEntries:
    """The twin of broker.store.index_entries.PlainIndexEntries, without `first`: `columns` gives the same as bytes.

    Rows of three int64 in the machine's order: hash, physical offset, store time.
    """

    find_keys = cython.declare(object)
    hashes = cython.declare(bytearray)
    offsets = cython.declare(bytearray)
    timestamps = cython.declare(bytearray)
    count = cython.declare(cython.Py_ssize_t)
    topic = cython.declare(object)  # the last one, and the hash of `topic#`
    prefix = cython.declare(uint32_t)

    def __init__(self, find_keys):
        self.find_keys = find_keys
        self.hashes, self.offsets, self.timestamps = bytearray(), bytearray(), bytearray()
        self.clear()

    def clear(self):
        """Nothing waits any more."""
        if len(self.hashes) > KEPT_BYTES:
            self.hashes, self.offsets, self.timestamps = bytearray(), bytearray(), bytearray()
        self.count = 0
        self.topic = None

    def add(self, messages, passed: cython.Py_ssize_t = 0):
        """Note the keys of messages, but for the first `passed` keys of the first of them."""
        append: Append
        for message in messages:
            if type(message) is Append:
                append = message
                if append.sys_flag & TRANSACTION == ROLLBACK:
                    pass
                elif append.key_size and not passed:
                    self.add_places(append)
                else:
                    self.add_keys(
                        append.topic,
                        self.find_keys(append.properties) if append.keys is None else append.keys,
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
        self.turn_to(topic)
        at: cython.Py_ssize_t
        for at in range(passed, len(keys)):
            self.add_row(hash_key(keys[at], self.prefix), offset, timestamp)

    @cython.cfunc
    def add_places(self, append: Append):
        """The keys of a message that are known by their places: ASCII."""
        self.turn_to(append.topic)
        text: Byte = cython.cast(Byte, PyBytes_AS_STRING(append.properties))
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
    def turn_to(self, topic: str):
        if topic is not self.topic:
            self.prefix = 31 * hash_text(topic, 0) + 35
            self.topic = topic

    @cython.cfunc
    @cython.inline
    def add_row(self, code: uint32_t, offset: int64_t, timestamp: int64_t):
        if 8 * self.count == len(self.hashes):
            PyByteArray_Resize(self.hashes, 16 * self.count + 8192)
            PyByteArray_Resize(self.offsets, 16 * self.count + 8192)
            PyByteArray_Resize(self.timestamps, 16 * self.count + 8192)
        cython.cast(Numbers, PyByteArray_AS_STRING(self.hashes))[self.count] = positive(code)
        cython.cast(Numbers, PyByteArray_AS_STRING(self.offsets))[self.count] = offset
        cython.cast(Numbers, PyByteArray_AS_STRING(self.timestamps))[self.count] = timestamp
        self.count += 1

    def __len__(self):
        return self.count

    def columns(self, count: cython.Py_ssize_t):
        """The oldest entries, up to `count`: hashes, offsets, store times, each as bytes of int64."""
        size: cython.Py_ssize_t = 8 * min(count, self.count)
        return bytes(self.hashes[:size]), bytes(self.offsets[:size]), bytes(self.timestamps[:size])

    def drop(self, count: cython.Py_ssize_t):
        """The oldest `count` are in a file."""
        if count >= self.count:
            self.clear()
            return
        del self.hashes[: 8 * count], self.offsets[: 8 * count], self.timestamps[: 8 * count]
        self.count -= count

    def __repr__(self):
        return f"<IndexEntries {self.count}>"


@cython.cfunc
@cython.exceptval(check=False)
def hash_bytes(text: Byte, size: cython.Py_ssize_t, code: uint32_t) -> uint32_t:
    """Java's hash of ASCII text behind text of hash `code`."""
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
    """The same of any text, over its UTF-16 units."""
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
    """Java's absolute value; 0 where there is none."""
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
    """Put items `first` and on into the mapping of an index file; how many chains they began."""
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
    """One item, and its slot; 1 if it begins its chain."""
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


@cython.cfunc
@cython.exceptval(check=False)
def get32(place: Byte) -> uint32_t:
    return (
        (cython.cast(uint32_t, place[0]) << 24)
        | (cython.cast(uint32_t, place[1]) << 16)
        | (cython.cast(uint32_t, place[2]) << 8)
        | place[3]
    )


@cython.cfunc
@cython.exceptval(check=False)
def get64(place: Byte) -> uint64_t:
    return (cython.cast(uint64_t, get32(place)) << 32) | get32(place + 4)


@cython.cfunc
@cython.exceptval(check=False)
def put32(to: Byte, number: uint32_t) -> cython.void:
    to[0] = cython.cast(cython.uchar, number >> 24)
    to[1] = cython.cast(cython.uchar, number >> 16)
    to[2] = cython.cast(cython.uchar, number >> 8)
    to[3] = cython.cast(cython.uchar, number)


@cython.cfunc
@cython.exceptval(check=False)
def put64(to: Byte, number: uint64_t) -> cython.void:
    put32(to, cython.cast(uint32_t, number >> 32))
    put32(to + 4, cython.cast(uint32_t, number))
