"""The header of a fast-path send in the MSGPACK dialect, with positional fields, read in one pass over its bytes.

    97 cd 01 36   flag   language   opaque   c0   version   9f 01   a b c d e f g h i j k l m n

A fast-path header has exactly this form, or lacks some of the last five fields. It has no remark, numbers are integers,
texts are printable ASCII, and only optional fields may be nil. For the properties see properties.py. Nothing is read at
or beyond the end; a reader that gets NULL returns NULL. The pure-Python version is protocol/msgpack_header.py.
Source: docs/reference/wire.md, "Header dialects".
"""

import cython
from cython.cimports.libc.string import memcmp
from cython.cimports.skylarkmq.protocol.compiled.header import SendFields, is_printable
from cython.cimports.skylarkmq.protocol.compiled.properties import Text, copy_properties

LEAST = cython.declare(cython.Py_ssize_t, 24)  # bytes of the shortest header
NIL = cython.declare(cython.int, 0xC0)
FALSE = cython.declare(cython.int, 0xC2)
UINT8 = cython.declare(cython.int, 0xCC)
INT8 = cython.declare(cython.int, 0xD0)
INT64 = cython.declare(cython.int, 0xD3)
STR8 = cython.declare(cython.int, 0xD9)
STR16 = cython.declare(cython.int, 0xDA)
POSITIONAL_SEND = cython.declare(cython.int, 1)


@cython.cfunc
@cython.exceptval(check=False)
def read_msgpack_header(at: Text, end: Text, found: cython.pointer(SendFields)) -> cython.bint:
    """See header.read_header."""
    unused: cython.int = 0
    if end - at < LEAST or memcmp(at, b"\x97\xcd\x01\x36", 4) != 0:
        return False
    found.code = 310
    at = read_int(at + 4, end, cython.address(found.flag))
    at = read_int(at, end, cython.address(unused))
    at = read_int(at, end, cython.address(found.opaque))
    at = read_nil(at, end)
    at = read_int(at, end, cython.address(found.version))
    if at == cython.NULL or end - at < 2 or at[0] < 0x9A or at[0] > 0x9F or at[1] != POSITIONAL_SEND:
        return False
    return read_fields(at + 2, end, found, (at[0] & 15) - 1) and not found.flag & 1


@cython.cfunc
@cython.exceptval(check=False)
def read_fields(at: Text, end: Text, found: cython.pointer(SendFields), count: cython.int) -> cython.bint:
    """Read `count` fields, nine at least; return whether they are on the fast path and end at `end`."""
    text: Text = cython.NULL
    size: cython.Py_ssize_t = 0
    unused: cython.int = 0
    at = read_printable(at, end, cython.address(text), cython.address(size))  # a, the group
    at = read_printable(at, end, cython.address(found.topic), cython.address(found.topic_size))
    at = read_printable(at, end, cython.address(text), cython.address(size))  # c, the template topic
    at = read_int(at, end, cython.address(unused))  # d, its queues
    at = read_int(at, end, cython.address(found.queue_id))
    at = read_int(at, end, cython.address(found.sys_flag))
    at = read_integer(at, end, cython.address(found.born_timestamp))
    at = read_int(at, end, cython.address(found.message_flag))
    at = read_string(at, end, cython.address(text), cython.address(size))
    if at == cython.NULL or not copy_properties(text, size, cython.address(found.properties)):
        return False
    found.reconsume_times = 0
    if count > 9:
        at = read_int_or_nil(at, end, cython.address(found.reconsume_times))
    if count > 10:
        at = read_false_or_nil(at, end)  # k, unit mode
    if count > 11:
        at = read_int_or_nil(at, end, cython.address(unused))  # l, maximum number of deliveries
    if count > 12:
        at = read_false_or_nil(at, end)  # m, batch
    if count > 13:
        at = read_printable_or_nil(at, end)  # n, the broker's name
    return at == end


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_integer(at: Text, end: Text, number: cython.p_longlong) -> Text:
    """Read an integer of 64 bits, in any of its encodings."""
    byte: cython.int
    size: cython.int
    n: cython.int
    bits: cython.ulonglong = 0
    if at == cython.NULL or at >= end:
        return cython.NULL
    byte = at[0]
    at += 1
    if byte < 0x80 or byte >= 0xE0:
        number[0] = byte if byte < 0x80 else byte - 256
        return at
    if byte < UINT8 or byte > INT64:
        return cython.NULL
    size = 1 << (byte & 3)
    if end - at < size:
        return cython.NULL
    for n in range(size):
        bits = (bits << 8) | at[n]
    if byte >= INT8:
        n = 64 - 8 * size
        number[0] = cython.cast(cython.longlong, bits << n) >> n
    elif bits >> 63:
        return cython.NULL
    else:
        number[0] = cython.cast(cython.longlong, bits)
    return at + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_int(at: Text, end: Text, number: cython.p_int) -> Text:
    """Read an integer of 32 bits."""
    value: cython.longlong = 0
    at = read_integer(at, end, cython.address(value))
    if value < -2147483648 or value > 2147483647:
        return cython.NULL
    number[0] = cython.cast(cython.int, value)
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_int_or_nil(at: Text, end: Text, number: cython.p_int) -> Text:
    """Read an integer of 32 bits, or nil, which leaves `number` unchanged."""
    if at != cython.NULL and at < end and at[0] == NIL:
        return at + 1
    return read_int(at, end, number)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_nil(at: Text, end: Text) -> Text:
    """Read nil."""
    return at + 1 if at != cython.NULL and at < end and at[0] == NIL else cython.NULL


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_false_or_nil(at: Text, end: Text) -> Text:
    """Read false, the text false, or nil."""
    if at == cython.NULL or at >= end:
        return cython.NULL
    if at[0] == FALSE or at[0] == NIL:
        return at + 1
    return at + 6 if end - at >= 6 and memcmp(at, b"\xa5false", 6) == 0 else cython.NULL


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_string(at: Text, end: Text, text: cython.pointer(Text), size: cython.p_Py_ssize_t) -> Text:
    """Read a text of less than 64 KiB with any bytes."""
    byte: cython.int
    length: cython.Py_ssize_t
    if at == cython.NULL or at >= end:
        return cython.NULL
    byte = at[0]
    at += 1
    if 0xA0 <= byte < 0xC0:
        length = byte & 31
    elif byte == STR8 and end - at >= 1:
        length = at[0]
        at += 1
    elif byte == STR16 and end - at >= 2:
        length = (at[0] << 8) | at[1]
        at += 2
    else:
        return cython.NULL
    if end - at < length:
        return cython.NULL
    text[0] = at
    size[0] = length
    return at + length


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_printable(at: Text, end: Text, text: cython.pointer(Text), size: cython.p_Py_ssize_t) -> Text:
    """Read a text of ASCII without control characters."""
    at = read_string(at, end, text, size)
    return at if at != cython.NULL and is_printable(text[0], size[0]) else cython.NULL


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_printable_or_nil(at: Text, end: Text) -> Text:
    """Read a text of ASCII without control characters, or nil, and ignore it."""
    text: Text = cython.NULL
    size: cython.Py_ssize_t = 0
    if at != cython.NULL and at < end and at[0] == NIL:
        return at + 1
    return read_printable(at, end, cython.address(text), cython.address(size))
