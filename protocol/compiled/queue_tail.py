"""The units of a queue that are not in a file yet.

The pure-Python version, with the full documentation, is broker/store/queue/tail.py. Layout of a unit: protocol.disk.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.mem import PyMem_Free, PyMem_Realloc
from cython.cimports.libc.stdint import uint32_t, uint64_t
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get64, put32, put64

Byte = cython.typedef(cython.p_uchar)

UNIT_SIZE = cython.declare(cython.Py_ssize_t, 20)
FEWEST_UNITS = cython.declare(cython.int, 8)  # initial capacity
MOST_FIELDS = cython.declare(cython.Py_ssize_t, 1 << 14)


@cython.cclass
class QueueTail:
    """The end of a queue; see broker/store/queue/tail.py."""

    def __init__(self, topic: str, queue_id: cython.int):
        self.topic = topic
        self.queue_id = queue_id
        self.topic_field = topic_field_of(topic)
        self.magic = cython.cast(cython.int, 0xDAA320A7 if len(self.topic_field) <= 128 else 0xDAA320AB)
        self.is_schedule = topic == "SCHEDULE_TOPIC_XXXX"
        self.next_offset = 0
        self.units = cython.NULL
        self.units_size = self.units_capacity = 0
        self.pending_next = 0
        self.end = 0
        self.is_removed = False
        self.new_units = self.uncounted = 0

    def __dealloc__(self):
        PyMem_Free(self.units)

    @property
    def pending(self):
        """A copy of the units that are not in a file yet."""
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.units), self.units_size)

    def drop_pending(self):
        """Drop the units, because they are in a file or the queue is deleted."""
        PyMem_Free(self.units)
        self.units = cython.NULL
        self.units_size = self.units_capacity = 0
        self.new_units = self.uncounted = 0

    def take_new_tags_codes(self):
        """Return the tags codes of the units added since the last call."""
        codes: list = []
        unit: Byte = self.units + self.units_size - UNIT_SIZE * self.new_units
        while self.new_units:
            codes.append(cython.cast(cython.longlong, get64(unit + 12)))
            unit += UNIT_SIZE
            self.new_units -= 1
        return codes


fields_of_topics = cython.declare(dict, {})


@cython.cfunc
def topic_field_of(topic: str) -> bytes:
    """Return the topic with its length, as records contain it; the queues of a topic share one object."""
    field: bytes = fields_of_topics.get(topic)
    if field is None:
        if len(fields_of_topics) >= MOST_FIELDS:
            fields_of_topics.clear()
        text: bytes = topic.encode()
        size: cython.Py_ssize_t = len(text)
        field = fields_of_topics[topic] = size.to_bytes(1 if size <= 127 else 2, "big") + text
    return field


@cython.cfunc
def add_unit(queue: QueueTail, position: cython.longlong, size: cython.int, tags_code: cython.longlong):
    """Add a unit to the queue. Raises MemoryError, which leaves the queue unchanged."""
    if queue.units_size == queue.units_capacity:
        capacity: cython.int = max(2 * queue.units_capacity, FEWEST_UNITS * UNIT_SIZE)
        units: cython.p_void = PyMem_Realloc(queue.units, capacity)
        if units == cython.NULL:
            raise MemoryError
        queue.units, queue.units_capacity = cython.cast(Byte, units), capacity
    to: Byte = queue.units + queue.units_size
    queue.units_size += UNIT_SIZE
    put64(to, cython.cast(uint64_t, position))
    put32(to + 8, cython.cast(uint32_t, size))
    put64(to + 12, cython.cast(uint64_t, tags_code))
