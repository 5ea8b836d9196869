"""The properties of a fast-path send in a JSON text: unescaped and checked in one pass.

The fast path requires entries (the last one may lack its end) without an empty part and without a name that needs
special handling; WAIT must be true, and a UNIQ_KEY of up to 64 letters and digits must be present. The bytes of the
text must be printable ASCII, or escapes of one byte or \\u00xx below 80. The unescaped text is stored in a static
buffer of this module, and is valid until the next text is read.

The pure-Python version is broker/processors/send/stored_properties.py.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.string import memchr, memcmp

SCRATCH_BYTES = cython.declare(cython.Py_ssize_t, 32768)

QUOTE = cython.declare(cython.int, 34)
BACKSLASH = cython.declare(cython.int, 92)
U = cython.declare(cython.int, 117)

_scratch = cython.declare(cython.uchar[32768])

for _byte in range(256):
    IS_PLAIN[_byte] = 0x20 <= _byte <= 0x7E and _byte != 34 and _byte != 92


@cython.cfunc
@cython.exceptval(check=False)
def read_properties(at: Text, end: Text, found: cython.pointer(Properties)) -> Text:
    """Read the text of properties; return the position after it, or NULL if they are not on the fast path."""
    size: cython.Py_ssize_t = 0
    entry_at: cython.Py_ssize_t = 0
    value_at: cython.Py_ssize_t = -1
    byte: cython.int
    if at >= end or at[0] != QUOTE:
        return cython.NULL
    at += 1
    if end - at > SCRATCH_BYTES - 1:
        end = at + SCRATCH_BYTES - 1  # a text that does not fit, with its end, is not on the fast path
    found.tags_code = 0
    found.key_at = found.key_size = found.keys_at = found.keys_size = 0
    while True:
        while at < end and IS_PLAIN[at[0]]:
            _scratch[size] = at[0]
            size += 1
            at += 1
        if at >= end or at[0] != BACKSLASH:
            break
        at += 1
        if at < end and at[0] == U:
            byte = unicode_escape(at + 1, end)
            at += 5
        else:
            byte = short_escape(at[0]) if at < end else -1
            at += 1
        if byte < 0:
            return cython.NULL
        if byte == 2:
            if not note_entry(_scratch, entry_at, value_at, size, found):
                return cython.NULL
            entry_at = size + 1
            value_at = -1
        elif byte == 1 and value_at < 0:
            value_at = size + 1
        _scratch[size] = cython.cast(cython.uchar, byte)
        size += 1
    if at >= end or at[0] != QUOTE:
        return cython.NULL
    if entry_at < size:
        if not note_entry(_scratch, entry_at, value_at, size, found):
            return cython.NULL
        _scratch[size] = 2
        size += 1
    found.text = _scratch
    found.size = size
    return at + 1 if found.key_size > 0 else cython.NULL


@cython.cfunc
@cython.exceptval(check=False)
def copy_properties(at: Text, size: cython.Py_ssize_t, found: cython.pointer(Properties)) -> cython.bint:
    """Do the same for a text without escapes; return whether it is on the fast path."""
    n: cython.Py_ssize_t
    if size >= SCRATCH_BYTES:
        return False
    for n in range(size):
        if at[n] > 0x7E:
            return False
        _scratch[n] = at[n]
    if size and _scratch[size - 1] != 2:
        _scratch[size] = 2
        size += 1
    found.text = _scratch
    found.size = size
    return scan_properties(_scratch, size, found)


@cython.cfunc
@cython.exceptval(check=False)
def unicode_escape(at: Text, end: Text) -> cython.int:
    """Return the character after \\u if it is ASCII, else -1."""
    if end - at < 4 or at[0] != 48 or at[1] != 48 or at[2] < 48 or at[2] > 55:
        return -1
    low: cython.int = at[3]
    if 48 <= low <= 57:
        low -= 48
    elif 65 <= low <= 70:
        low -= 55
    elif 97 <= low <= 102:
        low -= 87
    else:
        return -1
    return (at[2] - 48) * 16 + low


@cython.cfunc
@cython.exceptval(check=False)
def short_escape(letter: cython.int) -> cython.int:
    """Return the character that a letter after a backslash stands for; -1 if none."""
    if letter == QUOTE or letter == BACKSLASH or letter == 47:
        return letter
    if letter == 110:
        return 10
    if letter == 114:
        return 13
    if letter == 116:
        return 9
    if letter == 98:
        return 8
    return 12 if letter == 102 else -1


@cython.cfunc
@cython.exceptval(check=False)
def scan_properties(text: Text, size: cython.Py_ssize_t, found: cython.pointer(Properties)) -> cython.bint:
    """Return whether all entries are on the fast path; find the last one of each name that is used."""
    at: cython.Py_ssize_t = 0
    value_at: cython.Py_ssize_t
    entry_end: cython.Py_ssize_t
    mark: Text
    found.tags_code = 0
    found.key_at = found.key_size = found.keys_at = found.keys_size = 0
    while at < size:
        mark = cython.cast(Text, memchr(text + at, 2, size - at))
        if mark == cython.NULL:
            return False
        entry_end = mark - text
        mark = cython.cast(Text, memchr(text + at, 1, entry_end - at))
        if mark == cython.NULL:
            return False
        value_at = mark - text + 1
        if not note_entry(text, at, value_at, entry_end, found):
            return False
        at = entry_end + 1
    return found.key_size > 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def note_entry(
    text: Text,
    at: cython.Py_ssize_t,
    value_at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    found: cython.pointer(Properties),
) -> cython.bint:
    """Record the property at `at` if its name is used; return whether it is on the fast path. `value_at` -1: no
    value."""
    if value_at < 0 or value_at - at == 1 or value_at == end:
        return False
    name: Text = text + at
    size: cython.Py_ssize_t = value_at - 1 - at
    first: cython.int = name[0]
    if size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
        found.key_at, found.key_size = value_at, end - value_at
        return is_alphanumeric(text + value_at, end - value_at)
    if size == 4:
        if memcmp(name, b"KEYS", 4) == 0:
            found.keys_at, found.keys_size = value_at, end - value_at
            return True
        if memcmp(name, b"TAGS", 4) == 0:
            found.tags_code = java_hash(text + value_at, end - value_at)
            return True
        if memcmp(name, b"WAIT", 4) == 0:
            return end - value_at == 4 and memcmp(text + value_at, b"true", 4) == 0
    if first == 68:
        return not (size >= 5 and memcmp(name, b"DELAY", 5) == 0)
    if first == 84:
        return not (
            (size >= 6 and memcmp(name, b"TIMER_", 6) == 0) or (size >= 8 and memcmp(name, b"TRAN_MSG", 8) == 0)
        )
    if first == 67:
        return not (size >= 7 and memcmp(name, b"CLUSTER", 7) == 0)
    if first == 80:
        return not (size >= 6 and memcmp(name, b"POP_CK", 6) == 0)
    if first == 95:
        return not (size >= 13 and memcmp(name, b"__SHARDINGKEY", 13) == 0)
    return not (first == 87 and size >= 4 and memcmp(name, b"WAIT", 4) == 0)


@cython.cfunc
def add_keys(keys: list, text: cython.p_char, size: cython.Py_ssize_t):
    """Append the words of KEYS."""
    end: cython.p_char = text + size
    mark: cython.p_char
    while text < end:
        mark = cython.cast(cython.p_char, memchr(text, 32, end - text))
        if mark == cython.NULL:
            mark = end
        if mark > text:
            keys.append(PyBytes_FromStringAndSize(text, mark - text))
        text = mark + 1


@cython.cfunc
@cython.exceptval(check=False)
def is_alphanumeric(text: Text, size: cython.Py_ssize_t) -> cython.bint:
    """Return whether the text has at most 64 bytes, all of them letters or digits."""
    n: cython.Py_ssize_t
    if size > 64:
        return False
    for n in range(size):
        if not (48 <= text[n] <= 57 or 65 <= text[n] <= 90 or 97 <= text[n] <= 122):
            return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def java_hash(text: Text, size: cython.Py_ssize_t) -> cython.int:
    """Return Java's String.hashCode of an ASCII text."""
    code: cython.uint = 0
    n: cython.Py_ssize_t
    for n in range(size):
        code = code * 31 + text[n]
    return cython.cast(cython.int, code)
