"""The signed parts of fast-path sends and pulls, read in one pass over their headers.

`Reader.signed_parts` gathers the ext fields of a Send or a Pull in the order of their names, and joins their values. It
reads the headers that the decoder has put on the fast path (decode.py, pull.py): texts of ASCII, escapes of one byte or
\\u00xx below 80, integers and a bare false. Their names are ASCII, so the order of bytes is that of Java. Positional
fields of the MSGPACK dialect have no place for a signature. Every other command, and a header that is unusual in any
way, goes to the general reader, which is the pure-Python version (protocol/signature.py). Nothing is read at or beyond
the end of a header.

Source: docs/reference/wire.md, "Signatures".
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize, PyUnicode_DecodeASCII
from cython.cimports.libc.string import memcmp, memcpy, memmove
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32
from cython.cimports.skylarkmq.protocol.compiled.decode import Send
from cython.cimports.skylarkmq.protocol.compiled.header import is_printable, read_int32, read_number_text, read_text
from cython.cimports.skylarkmq.protocol.compiled.hmac_sha1 import HmacSha1
from cython.cimports.skylarkmq.protocol.compiled.properties import IS_PLAIN, Text, short_escape, unicode_escape
from cython.cimports.skylarkmq.protocol.compiled.pull import InternCache, Pull

MSGPACK = cython.declare(cython.int, 0x4D)
MOST_FIELDS = cython.declare(cython.int, 48)
BINARY_FIXED = cython.declare(cython.Py_ssize_t, 21)  # bytes before the ext block of a header without a remark

QUOTE = cython.declare(cython.int, 34)
COMMA = cython.declare(cython.int, 44)
COLON = cython.declare(cython.int, 58)
BACKSLASH = cython.declare(cython.int, 92)
F = cython.declare(cython.int, 102)
U = cython.declare(cython.int, 117)
OPENING_BRACE = cython.declare(cython.int, 123)
BRACE = cython.declare(cython.int, 125)

Field = cython.struct(name=Text, name_size=cython.Py_ssize_t, value=Text, size=cython.Py_ssize_t)
Fields = cython.struct(
    count=cython.int,  # without the signature
    signature=Field,  # `name` is NULL without one
    all=Field[48],
    order=cython.uchar[48],  # indexes of the fields by name; of a repeated name the last counts
    unescaped=cython.Py_ssize_t,  # bytes of values in `_scratch`
)

SCRATCH_BYTES = cython.declare(cython.Py_ssize_t, 32768)
_scratch = cython.declare(cython.uchar[32768])  # values without their escapes, until the next header is read
_content = cython.declare(cython.uchar[32768])  # the signed values of a send, one after the other


@cython.final
@cython.no_gc
@cython.freelist(64)
@cython.cclass
class Signed:
    """The signed parts of a request, with the attributes of protocol.signature.Signed."""

    access_key = cython.declare(str, visibility="readonly")
    signature = cython.declare(str, visibility="readonly")
    content = cython.declare(bytes, visibility="readonly")

    def __repr__(self):
        return f"<Signed {self.access_key!r}>"


@cython.final
@cython.cclass
class Reader:
    """Reads signed parts. `general(command, is_unique_key_query_signed=...)` reads those of any command."""

    general = cython.declare(object)
    access_keys = cython.declare(InternCache)

    def __init__(self, general):
        self.general = general
        self.access_keys = InternCache()

    def signed_parts(self, command, *, is_unique_key_query_signed: cython.bint = False):
        """Return the signed parts of a command; None without an AccessKey. See protocol/signature.py."""
        send: Send
        pull: Pull
        fields: Fields
        dialect: cython.int
        at: cython.Py_ssize_t
        end: cython.Py_ssize_t
        view: Py_buffer
        is_read: cython.bint
        if type(command) is Send:
            send = command
            data, dialect, at, end = send.data, send.dialect, send.header_at, send.header_end
        elif type(command) is Pull:
            pull = command
            data, dialect, at, end = pull.data, pull.dialect, pull.header_at, pull.header_end
        else:
            return self.general(command, is_unique_key_query_signed=is_unique_key_query_signed)
        if dialect == MSGPACK:
            return None
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            is_read = read_ext(
                cython.cast(Text, view.buf) + at, cython.cast(Text, view.buf) + end, dialect, cython.address(fields)
            )
            if is_read:
                return self.signed(cython.address(fields), is_unique_key_query_signed)
        finally:
            PyBuffer_Release(cython.address(view))
        return self.general(command, is_unique_key_query_signed=is_unique_key_query_signed)

    def has_signed_send(self, command, code: cython.int, topic: str, access_key: str, hmac: HmacSha1):
        """Return whether a fast-path send with this code, topic and access key has the signature of the key of `hmac`;
        None for any other command. See protocol/signature.py."""
        size: cython.Py_ssize_t = 0
        key: Text = cython.cast(Text, PyUnicode_AsUTF8AndSize(access_key, cython.address(size)))
        found: cython.int = check_send(command, code, topic, key, size, hmac)
        return None if found < 0 else found > 0

    def count_signed_sends(
        self,
        commands,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        code: cython.int,
        topic: str,
        access_key: str,
        hmac: HmacSha1,
    ):
        """Return how many commands from `at` on, before `end`, are such sends and have the signature of the key."""
        first: cython.Py_ssize_t = at
        size: cython.Py_ssize_t = 0
        key: Text = cython.cast(Text, PyUnicode_AsUTF8AndSize(access_key, cython.address(size)))
        while at < end and check_send(commands[at], code, topic, key, size, hmac) > 0:
            at += 1
        return at - first

    @cython.cfunc
    def signed(self, fields: cython.pointer(Fields), is_unique_key_query_signed: cython.bint):
        """Return the signed parts of these fields; None without an AccessKey."""
        n: cython.int
        field: cython.pointer(Field)
        signed: Signed
        total: cython.Py_ssize_t = 0
        access_key: str = None
        for n in range(fields.count):
            field = cython.address(fields.all[n])
            if is_named(field.name, field.name_size, b"AccessKey", 9):
                access_key = self.access_keys.get(field.value, field.size)
            elif not is_unique_key_query_signed and is_named(field.name, field.name_size, b"_UNIQUE_KEY_QUERY", 17):
                field.size = 0
            total += field.size
        if access_key is None:
            return None
        signed = Signed.__new__(Signed)
        signed.access_key = access_key
        signed.content = PyBytes_FromStringAndSize(cython.NULL, total)
        join(fields, PyBytes_AS_STRING(signed.content))
        signed.signature = signature_in(fields)
        return signed


@cython.cfunc
@cython.exceptval(-2)
def check_send(
    command, code: cython.int, topic: str, access_key: Text, access_key_size: cython.Py_ssize_t, hmac: HmacSha1
) -> cython.int:
    """Return 1 if a send has the signature of the key, 0 if it does not, -1 for any other command."""
    send: Send
    fields: Fields
    total: cython.Py_ssize_t
    if type(command) is not Send:
        return -1
    send = command
    if send.code != code or send.topic is not topic or send.dialect == MSGPACK or send.body_at == cython.NULL:
        return -1
    if not read_ext(
        send.body_at - (send.header_end - send.header_at), send.body_at, send.dialect, cython.address(fields)
    ):
        return -1
    total = content_size(cython.address(fields), access_key, access_key_size)
    if total < 0 or total > SCRATCH_BYTES:
        return -1
    join(cython.address(fields), cython.cast(cython.p_char, _content))
    return hmac.has_signed(fields.signature.value, fields.signature.size, _content, total, send.body_at, send.body_size)


@cython.cfunc
@cython.exceptval(check=False)
def content_size(
    fields: cython.pointer(Fields), access_key: Text, access_key_size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the bytes of the signed values; -1 without this AccessKey, or with a _UNIQUE_KEY_QUERY, which not every
    version signs."""
    n: cython.int
    field: cython.pointer(Field)
    total: cython.Py_ssize_t = 0
    is_found: cython.bint = False
    for n in range(fields.count):
        field = cython.address(fields.all[n])
        if is_named(field.name, field.name_size, b"AccessKey", 9):
            if field.size != access_key_size or memcmp(field.value, access_key, field.size) != 0:
                return -1
            is_found = True
        elif is_named(field.name, field.name_size, b"_UNIQUE_KEY_QUERY", 17):
            return -1
        total += field.size
    return total if is_found else -1


@cython.cfunc
@cython.exceptval(check=False)
def join(fields: cython.pointer(Fields), to: cython.p_char) -> cython.void:
    """Write the signed values in the order of their names."""
    n: cython.int
    field: cython.pointer(Field)
    for n in range(fields.count):
        field = cython.address(fields.all[fields.order[n]])
        memcpy(to, field.value, field.size)
        to += field.size


@cython.cfunc
def signature_in(fields: cython.pointer(Fields)) -> str:
    """Return the signature; empty without one."""
    if fields.signature.name == cython.NULL:
        return ""
    return PyUnicode_DecodeASCII(
        cython.cast(cython.p_const_char, fields.signature.value), fields.signature.size, cython.NULL
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_named(
    name: Text, name_size: cython.Py_ssize_t, other: cython.p_const_char, size: cython.Py_ssize_t
) -> cython.bint:
    return name_size == size and memcmp(name, other, size) == 0


# --------------------------------------------------------------------------------------------------------------- fields


@cython.cfunc
@cython.exceptval(check=False)
def add_field(
    fields: cython.pointer(Fields),
    name: Text,
    name_size: cython.Py_ssize_t,
    value: Text,
    size: cython.Py_ssize_t,
) -> cython.bint:
    """Insert a field at its place, or replace the one with the same name; return whether there was room."""
    at: cython.int = fields.count
    order: cython.int = 1
    field: cython.pointer(Field)
    if is_named(name, name_size, b"Signature", 9):
        set_field(cython.address(fields.signature), name, name_size, value, size)
        return True
    while at > 0:
        field = cython.address(fields.all[fields.order[at - 1]])
        order = order_of(name, name_size, field.name, field.name_size)
        if order >= 0:
            break
        at -= 1
    if at > 0 and order == 0:
        at -= 1
    else:
        if fields.count == MOST_FIELDS:
            return False
        memmove(
            cython.address(fields.order[at]) + 1,
            cython.address(fields.order[at]),
            cython.cast(cython.size_t, fields.count - at),
        )
        fields.order[at] = cython.cast(cython.uchar, fields.count)
        fields.count += 1
    set_field(cython.address(fields.all[fields.order[at]]), name, name_size, value, size)
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def set_field(
    field: cython.pointer(Field),
    name: Text,
    name_size: cython.Py_ssize_t,
    value: Text,
    size: cython.Py_ssize_t,
) -> cython.void:
    field.name, field.name_size = name, name_size
    field.value, field.size = value, size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def order_of(one: Text, one_size: cython.Py_ssize_t, other: Text, other_size: cython.Py_ssize_t) -> cython.int:
    """Return a number below, at or above zero as `one` is ordered before, with or after `other`."""
    order: cython.int
    size: cython.size_t = min(cython.cast(cython.size_t, one_size), cython.cast(cython.size_t, other_size))
    if one_size and other_size and one[0] != other[0]:
        return one[0] - other[0]
    order = memcmp(one, other, size)
    return order if order != 0 else (one_size > other_size) - (one_size < other_size)


@cython.cfunc
@cython.exceptval(check=False)
def read_ext(at: Text, end: Text, dialect: cython.int, fields: cython.pointer(Fields)) -> cython.bint:
    """Read the ext fields of a whole header; return whether they have the common form."""
    fields.count = 0
    fields.signature.name = cython.NULL
    fields.signature.size = 0
    fields.unescaped = 0
    return read_binary(at, end, fields) if dialect else read_json(at, end, fields)


@cython.cfunc
@cython.exceptval(check=False)
def read_json(at: Text, end: Text, fields: cython.pointer(Fields)) -> cython.bint:
    name: Text
    size: cython.Py_ssize_t
    unused: cython.int = 0
    is_found: cython.bint = False
    if end - at < 8 or memcmp(at, b'{"code":', 8) != 0:
        return False
    at = read_int32(at + 8, end, cython.address(unused))
    while at != cython.NULL and at < end and at[0] == COMMA:
        name = at + 2
        at = read_text(at + 1, end)
        if at == cython.NULL or at >= end or at[0] != COLON:
            return False
        size = at - 1 - name
        at += 1
        if size == 9 and memcmp(name, b"extFields", 9) == 0:
            if is_found:
                return False
            is_found = True
            at = read_json_fields(at, end, fields)
        elif at < end and at[0] == QUOTE:
            at = read_text(at, end)
        else:
            at = read_int32(at, end, cython.address(unused))
    return is_found and at != cython.NULL and at + 1 == end and at[0] == BRACE


@cython.cfunc
@cython.exceptval(check=False)
def read_json_fields(at: Text, end: Text, fields: cython.pointer(Fields)) -> Text:
    """Read an object; return the position after it, or NULL."""
    name: Text
    name_size: cython.Py_ssize_t
    value: Text
    size: cython.Py_ssize_t
    unused: cython.longlong = 0
    if at >= end or at[0] != OPENING_BRACE:
        return cython.NULL
    while True:
        name = at + 2
        at = read_text(at + 1, end)
        if at == cython.NULL or at >= end or at[0] != COLON:
            return cython.NULL
        name_size = at - 1 - name
        at += 1
        if at >= end:
            return cython.NULL
        value = at
        if at[0] == QUOTE:
            at = read_value(at + 1, end, fields, cython.address(value), cython.address(size))
        else:
            if at[0] != F:
                at = read_number_text(at, end, cython.address(unused))
            else:
                at = at + 5 if end - at > 5 and memcmp(at, b"false", 5) == 0 else cython.NULL
            size = at - value
        if at == cython.NULL or at >= end or not add_field(fields, name, name_size, value, size):
            return cython.NULL
        if at[0] == BRACE:
            return at + 1
        if at[0] != COMMA:
            return cython.NULL


@cython.cfunc
@cython.exceptval(check=False)
def read_value(
    at: Text, end: Text, fields: cython.pointer(Fields), value: cython.pointer(Text), size: cython.p_Py_ssize_t
) -> Text:
    """Read a text up to its closing quote; set `value` and `size` to the text without escapes."""
    begin: Text = at
    byte: cython.int
    to: cython.Py_ssize_t = fields.unescaped
    while at < end and IS_PLAIN[at[0]]:
        at += 1
    value[0], size[0] = begin, at - begin
    if at < end and at[0] == QUOTE:
        return at + 1
    if end - begin > SCRATCH_BYTES - to:
        end = begin + (SCRATCH_BYTES - to)  # a text that may not fit is not on the fast path
    if at >= end:
        return cython.NULL
    memcpy(cython.address(_scratch[to]), begin, at - begin)
    to += at - begin
    while at < end:
        byte = at[0]
        at += 1
        if byte == QUOTE:
            value[0], size[0] = cython.address(_scratch[fields.unescaped]), to - fields.unescaped
            fields.unescaped = to
            return at
        if byte == BACKSLASH:
            if at < end and at[0] == U:
                byte = unicode_escape(at + 1, end)
                at += 5
            else:
                byte = short_escape(at[0]) if at < end else -1
                at += 1
            if byte < 0:
                return cython.NULL
        elif not IS_PLAIN[byte]:
            return cython.NULL
        _scratch[to] = cython.cast(cython.uchar, byte)
        to += 1
    return cython.NULL


@cython.cfunc
@cython.exceptval(check=False)
def read_binary(at: Text, end: Text, fields: cython.pointer(Fields)) -> cython.bint:
    name: Text
    name_size: cython.longlong
    size: cython.longlong
    n: cython.Py_ssize_t
    if end - at < BINARY_FIXED or get32(at + 13) != 0 or get32(at + 17) != end - at - BINARY_FIXED:
        return False
    at += BINARY_FIXED
    while at < end:
        if end - at < 7:
            return False
        name_size = (at[0] << 8) | at[1]
        name = at + 2
        if name_size == 0 or end - name < name_size + 5:
            return False
        at = name + name_size
        size = get32(at)
        at += 4
        if size <= 0 or size > end - at or not is_printable(name, name_size):
            return False
        for n in range(size):
            if at[n] > 0x7E:
                return False
        if not add_field(fields, name, name_size, at, size):
            return False
        at += size
    return True
