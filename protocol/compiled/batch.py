"""The appends of a batch body, and the offset ids in the response to a batch.

A batch takes the fast path if the properties of every message in it are printable ASCII and the properties of a
fast-path send (properties.py here); properties of the batch that a message lacks are added. Any other batch goes to the
pure-Python version, protocol/message.py (decode_batch) and broker/processors/send/stored_properties.py, which also
reports errors.

Messages of a batch usually differ only in body and keys. If the properties of a message have the bytes of the previous
message's properties, except for other keys of the same length, the results for those are reused without another scan.

Bodies are not copied: each append has a pointer into the batch. Every length is checked before it is used, so nothing
is read beyond the end of the batch.
"""

import cython
from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memchr, memcmp, memcpy
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32
from cython.cimports.skylarkmq.protocol.compiled.properties import Properties, Text, is_alphanumeric, scan_properties
from cython.cimports.skylarkmq.protocol.compiled.record import Append

HEAD = cython.declare(cython.Py_ssize_t, 20)
DIGITS = cython.declare(cython.p_char, b"0123456789ABCDEF")


@cython.final
@cython.cclass
class Batches:
    """Makes appends. `pending` is the initial status of an append, `cluster_entry` is appended to all properties."""

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
        """Return the appends of a batch with the properties `shared`, or None if the batch is not on the fast path.

        Each of `shared` is `(02 name 01, entry to add to a message without that name)`; with the entry b"" a message
        without that name is not on the fast path.
        """
        found: list = []
        view: Py_buffer
        owner = memoryview(body)
        PyObject_GetBuffer(owner, cython.address(view), PyBUF_SIMPLE)
        start: Text = cython.cast(Text, view.buf)
        end: cython.Py_ssize_t = view.len
        PyBuffer_Release(cython.address(view))  # `owner` keeps the bytes in place
        append: Append
        last: Append = None
        last_text: Text = cython.NULL
        last_size: cython.Py_ssize_t = -1
        at: cython.Py_ssize_t = 0
        body_size: cython.longlong
        size: cython.Py_ssize_t
        while at < end:
            if end - at < HEAD + 2:
                return None
            body_size = get32(start + at + 16)
            if body_size > end - at - HEAD - 2:
                return None
            append = Append.__new__(Append)
            append.flag = cython.cast(cython.int, get32(start + at + 12))
            at += HEAD
            append.body_object = owner
            append.body_at = start + at
            append.body_size = body_size
            at += body_size
            size = (start[at] << 8) | start[at + 1]
            at += 2
            if size > end - at:
                return None
            if size == last_size and is_alike(start + at, last_text, size, last):
                copy_with_keys(append, last, start + at, size)
            elif not self.set_properties(append, start + at, size, shared):
                return None
            last, last_text, last_size = append, start + at, size
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
        return found

    @cython.cfunc
    def set_properties(self, append: Append, text: Text, size: cython.Py_ssize_t, shared: tuple):
        """Set the append's stored properties and the values found in them; return whether they are on the fast path."""
        found: Properties
        added: bytes = self.cluster_entry
        is_open: cython.bint
        if size < 3 or size > 32000 or not is_printable(text, size):
            return False
        for mark, entry in reversed(shared):
            if not is_named(text, size, mark):
                if not entry:
                    return False
                added = entry + added
        is_open = text[size - 1] != 2
        stored: bytes = PyBytes_FromStringAndSize(cython.NULL, size + is_open + len(added))
        chars: cython.p_char = PyBytes_AS_STRING(stored)
        memcpy(chars, cython.cast(cython.p_char, text), size)
        if is_open:
            chars[size] = 2
        memcpy(chars + size + is_open, PyBytes_AS_STRING(added), len(added))
        if not scan_properties(cython.cast(Text, chars), size + is_open, cython.address(found)):
            return False
        append.property_bytes = stored
        append.tags_code = found.tags_code
        append.key_at, append.key_size = found.key_at, found.key_size
        append.keys_at, append.keys_size = found.keys_at, found.keys_size
        return True


def offset_ids(host: bytes, appends: list):
    """Return the offset ids of stored messages, as protocol.message_id.encode_offset_ids does."""
    first: bytes = host.hex().upper().encode()
    host_size: cython.Py_ssize_t = len(first)
    step: cython.Py_ssize_t = host_size + 17
    size: cython.Py_ssize_t = step * len(appends)
    ids: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
    to: cython.p_char = PyBytes_AS_STRING(ids)
    append: Append
    digit: cython.Py_ssize_t
    for item in appends:
        append = item
        memcpy(to, PyBytes_AS_STRING(first), host_size)
        for digit in range(16):
            to[host_size + digit] = DIGITS[(append.physical_offset >> (60 - 4 * digit)) & 15]
        to[host_size + 16] = 44
        to += step
    return ids[: size - 1].decode("ascii") if size else ""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_alike(text: Text, last: Text, size: cython.Py_ssize_t, append: Append) -> cython.bint:
    """Return whether these properties differ from the last append's properties in valid keys only, if at all."""
    first_at: cython.Py_ssize_t = append.key_at
    first_end: cython.Py_ssize_t = first_at + append.key_size
    second_at: cython.Py_ssize_t = first_end
    second_end: cython.Py_ssize_t = first_end
    if append.keys_size:
        second_at, second_end = append.keys_at, append.keys_at + append.keys_size
        if second_at < first_at:
            first_at, first_end, second_at, second_end = second_at, second_end, first_at, first_end
    return (
        memcmp(text, last, first_at) == 0
        and memcmp(text + first_end, last + first_end, second_at - first_end) == 0
        and memcmp(text + second_end, last + second_end, size - second_end) == 0
        and is_alphanumeric(text + append.key_at, append.key_size)
        and (append.keys_size == 0 or is_value(text + append.keys_at, append.keys_size))
    )


@cython.cfunc
@cython.inline
def copy_with_keys(append: Append, last: Append, text: Text, size: cython.Py_ssize_t):
    """Set the append's properties: the properties of `last`, with the keys in `text`."""
    before: bytes = last.property_bytes
    stored: bytes = PyBytes_FromStringAndSize(cython.NULL, len(before))
    chars: cython.p_char = PyBytes_AS_STRING(stored)
    memcpy(chars, cython.cast(cython.p_char, text), size)
    memcpy(chars + size, PyBytes_AS_STRING(before) + size, len(before) - size)
    append.property_bytes = stored
    append.tags_code = last.tags_code
    append.key_at, append.key_size = last.key_at, last.key_size
    append.keys_at, append.keys_size = last.keys_at, last.keys_size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_value(text: Text, size: cython.Py_ssize_t) -> cython.bint:
    """Return whether all bytes are printable ASCII."""
    at: cython.Py_ssize_t
    for at in range(size):
        if not 0x20 <= text[at] <= 0x7E:
            return False
    return True


@cython.cfunc
@cython.exceptval(check=True)
def is_named(text: Text, size: cython.Py_ssize_t, mark: bytes) -> cython.bint:
    """Return whether one of the entries has the name in `mark` (02 name 01)."""
    name: cython.p_char = PyBytes_AS_STRING(mark) + 1
    name_size: cython.Py_ssize_t = len(mark) - 1
    end: Text = text + size
    while end - text >= name_size:
        if memcmp(text, name, name_size) == 0:
            return True
        text = cython.cast(Text, memchr(text, 2, end - text))
        if text == cython.NULL:
            return False
        text += 1
    return False


@cython.cfunc
@cython.exceptval(check=False)
def is_printable(text: Text, size: cython.Py_ssize_t) -> cython.bint:
    """Return whether all bytes are printable ASCII or the separators 01 and 02."""
    at: cython.Py_ssize_t
    byte: cython.uchar
    others: cython.uchar = 0
    for at in range(size):  # without an early exit, so that the compiler can vectorize
        byte = text[at]
        others |= (byte > 0x7E) | ((byte < 0x20) & (byte != 1) & (byte != 2))
    return others == 0
