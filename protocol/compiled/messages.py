"""Messages from the records of a pull response.

The pure-Python version is protocol/record.py. Both handle valid V1 records with IPv4 hosts; this one also leaves
records with a topic or property name that is not ASCII, and text that is not UTF-8, to the general parser. Recent
property names, topics and hosts are reused as the same objects. Every length is checked before it is used, so nothing
is read outside of a record.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import int32_t, int64_t, uint32_t, uint64_t
from cython.cimports.libc.string import memchr
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32, get64
from cython.cimports.skylarkmq.protocol.compiled.properties import Text
from cython.cimports.skylarkmq.protocol.compiled.pull import InternCache
from isal.isal_zlib import crc32

SMALLEST_RECORD = cython.declare(cython.Py_ssize_t, 91)
MAGIC_V1 = cython.declare(uint32_t, 0xDAA320A7)
HOST_FLAGS = cython.declare(uint32_t, 0x30)
BODY_AT = cython.declare(cython.Py_ssize_t, 88)
MOST_TOPIC_BYTES = cython.declare(cython.Py_ssize_t, 127)
MOST_PROPERTIES_BYTES = cython.declare(cython.Py_ssize_t, 32767)
NAME_END = cython.declare(cython.int, 1)
ENTRY_END = cython.declare(cython.int, 2)


@cython.cclass
class Host:
    """A cache of the last host: its eight bytes, and the decoded address."""

    decode = cython.declare(object)
    stored = cython.declare(uint64_t)
    known = cython.declare(object)

    @cython.cfunc
    def get(self, stored: Text):
        """Return the host at this position."""
        number: uint64_t = get64(stored)
        if self.known is None or number != self.stored:
            self.known = self.decode(PyBytes_FromStringAndSize(cython.cast(cython.p_char, stored), 8))
            self.stored = number
        return self.known


@cython.final
@cython.cclass
class Messages:
    """Makes messages: calls `new` with their fields; `decode_host` decodes hosts."""

    new = cython.declare(object)
    topics = cython.declare(InternCache)
    names = cython.declare(InternCache)
    born_host = cython.declare(Host)
    store_host = cython.declare(Host)

    def __init__(self, new, decode_host):
        self.new = new
        self.topics = InternCache()
        self.names = InternCache()
        self.born_host = Host()
        self.store_host = Host()
        self.born_host.decode = self.store_host.decode = decode_host

    def read(self, source, at: cython.Py_ssize_t, check_body: cython.bint, messages: list):
        """Append the messages in the common layout from `at` on to `messages`; return the position of the first other
        record, or the end."""
        view: Py_buffer
        PyObject_GetBuffer(source, cython.address(view), PyBUF_SIMPLE)
        try:
            if at < 0:
                raise ValueError("before the first byte")
            while view.len - at >= SMALLEST_RECORD:
                message = self.message_at(cython.cast(Text, view.buf) + at, view.len - at, check_body)
                if message is None:
                    break
                messages.append(message)
                at += get32(cython.cast(Text, view.buf) + at)
        except UnicodeDecodeError:
            pass  # raised for the record at `at`
        finally:
            PyBuffer_Release(cython.address(view))
        return at

    @cython.cfunc
    def message_at(self, record: Text, remaining: cython.Py_ssize_t, check_body: cython.bint):
        """Return the message; None if the record is not in the common layout."""
        size: cython.Py_ssize_t = cython.cast(int32_t, get32(record))
        crc: int32_t = cython.cast(int32_t, get32(record + 8))
        sys_flag: uint32_t = get32(record + 36)
        body_size: cython.Py_ssize_t = cython.cast(int32_t, get32(record + 84))
        topic_at: cython.Py_ssize_t = BODY_AT + body_size + 1
        if get32(record + 4) != MAGIC_V1 or sys_flag & HOST_FLAGS or body_size < 0 or size > remaining:
            return None
        if topic_at > size - 2:
            return None
        topic_size: cython.Py_ssize_t = record[topic_at - 1]
        properties_at: cython.Py_ssize_t = topic_at + topic_size + 2
        properties_size: cython.Py_ssize_t = size - properties_at
        if topic_size > MOST_TOPIC_BYTES or properties_size < 0 or properties_size > MOST_PROPERTIES_BYTES:
            return None
        if record[properties_at - 2] << 8 | record[properties_at - 1] != properties_size:
            return None
        body: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, record + BODY_AT), body_size)
        if check_body and body_size and checksum(body) != crc:
            return None
        return self.new(
            self.topics.get(record + topic_at, topic_size),
            cython.cast(int32_t, get32(record + 12)),
            cython.cast(int64_t, get64(record + 20)),
            cython.cast(int64_t, get64(record + 28)),
            body,
            self.properties(record + properties_at, properties_size),
            cython.cast(int32_t, get32(record + 16)),
            cython.cast(int32_t, sys_flag),
            cython.cast(int64_t, get64(record + 40)),
            self.born_host.get(record + 48),
            cython.cast(int64_t, get64(record + 56)),
            self.store_host.get(record + 64),
            cython.cast(int32_t, get32(record + 72)),
            cython.cast(int64_t, get64(record + 76)),
            crc,
            size,
        )

    @cython.cfunc
    def properties(self, at: Text, size: cython.Py_ssize_t) -> dict:
        """Return the same as `protocol.message.decode_properties`."""
        found: dict = {}
        end: Text = at + size
        entry_end: Text
        name_end: Text
        while at < end:
            entry_end = cython.cast(Text, memchr(at, ENTRY_END, end - at))
            if entry_end == cython.NULL:
                entry_end = end
            name_end = cython.cast(Text, memchr(at, NAME_END, entry_end - at))
            if name_end != cython.NULL and name_end > at and entry_end - name_end > 1:
                found[self.names.get(at, name_end - at)] = PyUnicode_DecodeUTF8(
                    cython.cast(cython.p_char, name_end + 1), entry_end - name_end - 1, cython.NULL
                )
            at = entry_end + 1
        return found

    def __repr__(self):
        return "<Messages>"


@cython.cfunc
def checksum(body: bytes) -> int32_t:
    """Return the CRC as a record stores it."""
    return cython.cast(int32_t, cython.cast(uint32_t, crc32(body)) & 0x7FFFFFFF)
