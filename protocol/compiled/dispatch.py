"""Queue units from appended messages, and their publication to consumers.

The pure-Python version, with the full documentation, is broker/store/dispatch/dispatch.py.
"""

import cython
from cython.cimports.skylarkmq.protocol.compiled.queue_tail import QueueTail, add_unit
from cython.cimports.skylarkmq.protocol.compiled.record import Append

UNIT_SIZE = cython.declare(cython.Py_ssize_t, 20)


def gather_units(appends, deliver_time, jumped):
    """Add the units of appended messages to their queues; see broker/store/dispatch/dispatch.py."""
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
        if queue.new_units == 0:
            touched.append(queue)
        add_unit(queue, append.physical_offset, append.size, append.tags_code)  # may raise, so count after it
        queue.new_units += 1
        queue.pending_next = append.queue_offset + 1
    return touched


def publish(full_bytes: cython.Py_ssize_t, queues, waiting: dict, topics, on_arrival):
    """Make the new units visible of queues with less than `full_bytes` in memory; return the number of these units, and
    the other queues."""
    units: cython.Py_ssize_t = 0
    others: list = []
    queue: QueueTail
    for item in queues:
        queue = item
        if queue.is_removed or queue.units_size >= full_bytes:
            others.append(item)
            continue
        units += queue.new_units
        queue.uncounted += queue.new_units
        queue.end = queue.pending_next
        if queue.units_size == UNIT_SIZE * queue.new_units:
            waiting[item] = None
        if on_arrival is not None and (topics is None or queue.topic in topics):
            on_arrival(queue.topic, queue.queue_id, queue.end, queue.take_new_tags_codes())
        queue.new_units = 0
    return units, others
