"""From the body of a batch to what is stored of its messages, in C.

A batch is plain, here, if every message in it has properties of printable ASCII that are those of a plain send
(protocol.compiled.properties); those of the batch that it lacks are added. Any other is taken apart by
protocol.message.decode_batch and broker.processors.stored_properties, which see to the rest and say what is wrong.

Nothing is read behind the end of the body: every length is checked before it is gone by.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy
from cython.cimports.protocol.compiled.properties import Properties, Text, add_keys, scan_properties
from cython.cimports.protocol.compiled.record import Append

HEAD = cython.declare(cython.Py_ssize_t, 20)
COPIED_BYTES = cython.declare(cython.Py_ssize_t, 4096)  # a body up to that is copied: cheaper than a view of it


@cython.final
@cython.cclass
class Batches:
    """`pending` is the status that appends begin with, `cluster_entry` closes all properties."""

    pending = cython.declare(object)
    cluster_entry = cython.declare(bytes)

    def __init__(self, pending, cluster_entry: bytes):
        self.pending = pending
        self.cluster_entry = cluster_entry

    def appends(
        self,
        body,
        shared: tuple,
        topic: str,
        queue_id: cython.int,
        sys_flag: cython.int,
        born_timestamp: cython.longlong,
        born_host: bytes,
        reconsume_times: cython.int,
    ):
        """The appends of a batch with the properties `shared`, each as `(02 name 01, what a message gains that lacks
        it)`, where b"" says that such a message is not plain. None: the batch is not plain."""
        found: list = []
        view: Py_buffer
        append: Append
        at: cython.Py_ssize_t = 0
        body_size: cython.longlong
        size: cython.Py_ssize_t
        start: Text
        PyObject_GetBuffer(body, cython.address(view), PyBUF_SIMPLE)
        try:
            start = cython.cast(Text, view.buf)
            while at < view.len:
                if view.len - at < HEAD + 2:
                    return None
                body_size = get32(start + at + 16)
                if body_size > view.len - at - HEAD - 2:
                    return None
                append = Append.__new__(Append)
                append.flag = cython.cast(cython.int, get32(start + at + 12))
                at += HEAD
                if body_size <= COPIED_BYTES:
                    append.body = PyBytes_FromStringAndSize(cython.cast(cython.p_char, start) + at, body_size)
                else:
                    append.body = memoryview(body)[at : at + body_size]
                at += body_size
                size = (start[at] << 8) | start[at + 1]
                at += 2
                if size > view.len - at or not self.complete(append, start + at, size, shared):
                    return None
                at += size
                append.topic = topic
                append.queue_id = queue_id
                append.sys_flag = sys_flag
                append.born_timestamp = born_timestamp
                append.born_host = born_host
                append.reconsume_times = reconsume_times
                append.wait_flush = True
                append.status = self.pending
                append.physical_offset = append.queue_offset = -1
                found.append(append)
        finally:
            PyBuffer_Release(cython.address(view))
        return found

    @cython.cfunc
    def complete(self, append: Append, text: Text, size: cython.Py_ssize_t, shared: tuple):
        """Give it what is stored as its properties, and what they say; whether they are plain."""
        found: Properties
        stored: bytes
        added: bytes = b""
        is_open: cython.bint
        chars: cython.p_char
        if size < 3 or size > 32000 or not is_printable(text, size):
            return False
        is_open = text[size - 1] != 2
        stored = PyBytes_FromStringAndSize(cython.NULL, size + is_open)
        chars = PyBytes_AS_STRING(stored)
        memcpy(chars, cython.cast(cython.p_char, text), size)
        if is_open:
            chars[size] = 2
        if not scan_properties(cython.cast(Text, chars), size + is_open, cython.address(found)):
            return False
        for mark, entry in shared:
            if mark not in stored and not stored.startswith(mark[1:]):
                if not entry:
                    return False
                added += entry
        keys: list = [PyBytes_FromStringAndSize(chars + found.key_at, found.key_size)]
        if found.keys_size:
            add_keys(keys, chars + found.keys_at, found.keys_size)
        stored += added + self.cluster_entry if added else self.cluster_entry
        append.properties = stored
        append.tags_code = found.tags_code
        append.keys = keys
        return True


@cython.cfunc
@cython.exceptval(check=False)
def is_printable(text: Text, size: cython.Py_ssize_t) -> cython.bint:
    """Whether there is nothing but printable ASCII between the separators 01 and 02."""
    at: cython.Py_ssize_t
    for at in range(size):
        if (text[at] < 0x20 and text[at] != 1 and text[at] != 2) or text[at] > 0x7E:
            return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def get32(place: Text) -> cython.uint:
    return (
        (cython.cast(cython.uint, place[0]) << 24)
        | (cython.cast(cython.uint, place[1]) << 16)
        | (cython.cast(cython.uint, place[2]) << 8)
        | place[3]
    )
