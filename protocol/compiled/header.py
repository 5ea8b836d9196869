"""The header of a fast-path send, JSON or binary, read in one pass over its bytes. See decode.py for the layout.

A reader takes a position and the end, and returns the position after what it has read; NULL if the header does not have
the common layout. Nothing is read at or beyond the end. The pure-Python version is protocol/send_command.py.
"""

import cython
from cython.cimports.libc.string import memcmp
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32
from cython.cimports.skylarkmq.protocol.compiled.properties import IS_PLAIN, copy_properties, read_properties

REQUIRED = cython.declare(cython.int, 0xFF)  # bits of the letters a to h

QUOTE = cython.declare(cython.int, 34)
PARENTHESIS = cython.declare(cython.int, 40)
COMMA = cython.declare(cython.int, 44)
MINUS = cython.declare(cython.int, 45)
COLON = cython.declare(cython.int, 58)
F = cython.declare(cython.int, 102)
OPENING_BRACE = cython.declare(cython.int, 123)
BRACE = cython.declare(cython.int, 125)


@cython.cfunc
@cython.exceptval(check=False)
def read_header(at: Text, end: Text, found: cython.pointer(SendFields)) -> cython.bint:
    """Return whether this is the whole header of a fast-path send; store its fields in `found`."""
    fields: cython.int = 0
    number: cython.longlong = 0
    name: Text
    size: cython.Py_ssize_t
    found.code = found.flag = found.opaque = found.version = 0
    if end - at < 32 or memcmp(at, b'{"code":', 8) != 0:
        return False
    at = read_number(at + 8, end, cython.address(number))
    if at == cython.NULL or (number != 310 and number != 10):
        return False
    found.code = cython.cast(cython.int, number)
    while at < end and at[0] == COMMA:
        name = at + 2
        at = read_text(at + 1, end)
        if at == cython.NULL or at >= end or at[0] != COLON:
            return False
        size = at - 1 - name
        at += 1
        if size == 9 and memcmp(name, b"extFields", 9) == 0:
            if fields:
                return False
            at = read_fields(at, end, found, cython.address(fields))
        elif size == 6 and memcmp(name, b"opaque", 6) == 0:
            at = read_int32(at, end, cython.address(found.opaque))
        elif size == 4 and memcmp(name, b"flag", 4) == 0:
            at = read_int32(at, end, cython.address(found.flag))
        elif size == 7 and memcmp(name, b"version", 7) == 0:
            at = read_int32(at, end, cython.address(found.version))
        elif size == 4 and memcmp(name, b"code", 4) == 0:
            return False
        elif size and (name[0] == PARENTHESIS):
            return False  # a name of RemotingCommand's internal fields
        else:
            at = read_text(at, end)  # language, remark, or a member that is not used
        if at == cython.NULL:
            return False
    return at + 1 == end and at[0] == BRACE and fields & REQUIRED == REQUIRED and not found.flag & 1


@cython.cfunc
@cython.exceptval(check=False)
def read_fields(at: Text, end: Text, found: cython.pointer(SendFields), fields: cython.p_int) -> Text:
    """Read the ext fields. Set bit n of `fields` for a field with the nth letter."""
    letter: cython.int
    name: Text
    found.reconsume_times = 0
    if at >= end or at[0] != OPENING_BRACE:
        return cython.NULL
    while True:
        name = at + 2
        at = read_text(at + 1, end)
        if at == cython.NULL or at >= end or at[0] != COLON:
            return cython.NULL
        letter = letter_of(name, at - 1 - name, found.code)
        at = read_field(letter, at + 1, end, found)
        if at == cython.NULL or at >= end:
            return cython.NULL
        if letter >= 0:
            fields[0] |= 1 << letter
        if at[0] == BRACE:
            return at + 1 if fields[0] & (1 << 8) else cython.NULL  # the properties are required
        if at[0] != COMMA:
            return cython.NULL


@cython.cfunc
@cython.exceptval(check=False)
def read_field(letter: cython.int, at: Text, end: Text, found: cython.pointer(SendFields)) -> Text:
    """Read the value of one field."""
    begin: Text = at + 1
    unused: cython.int = 0
    if letter == 8:  # i, properties
        return read_properties(at, end, cython.address(found.properties))
    if letter == 4:
        return read_int32_text(at, end, cython.address(found.queue_id))
    if letter == 5:
        return read_int32_text(at, end, cython.address(found.sys_flag))
    if letter == 6:
        return read_number_text(at, end, cython.address(found.born_timestamp))
    if letter == 7:
        return read_int32_text(at, end, cython.address(found.message_flag))
    if letter == 9:
        return read_int32_text(at, end, cython.address(found.reconsume_times))
    if letter == 3 or letter == 11:
        return read_int32_text(at, end, cython.address(unused))
    if (letter == 10 or letter == 12) and at < end and at[0] == F:  # a bare false
        return at + 5 if end - at > 5 and memcmp(at, b"false", 5) == 0 else cython.NULL
    at = read_text(at, end)
    if at == cython.NULL:
        return at
    if letter == 1:
        found.topic, found.topic_size = begin, at - 1 - begin
    elif letter == 12 and (at - 1 - begin != 5 or memcmp(begin, b"false", 5) != 0):
        return cython.NULL
    return at


@cython.cfunc
@cython.exceptval(check=False)
def letter_of(name: Text, size: cython.Py_ssize_t, code: cython.int) -> cython.int:
    """Return the number of a field's letter in the short form, 0 to 13; -1 if the field is not used."""
    if code == 310:
        return name[0] - 97 if size == 1 and 97 <= name[0] <= 110 else -1
    if size == 5:
        if memcmp(name, b"topic", 5) == 0:
            return 1
        return 12 if memcmp(name, b"batch", 5) == 0 else -1
    if size == 7:
        if memcmp(name, b"queueId", 7) == 0:
            return 4
        return 5 if memcmp(name, b"sysFlag", 7) == 0 else -1
    if size == 13:
        if memcmp(name, b"producerGroup", 13) == 0:
            return 0
        return 6 if memcmp(name, b"bornTimestamp", 13) == 0 else -1
    if size == 4:
        return 7 if memcmp(name, b"flag", 4) == 0 else -1
    if size == 8:
        return 10 if memcmp(name, b"unitMode", 8) == 0 else -1
    if size == 10:
        return 8 if memcmp(name, b"properties", 10) == 0 else -1
    if size == 12:
        return 2 if memcmp(name, b"defaultTopic", 12) == 0 else -1
    if size == 14:
        return 9 if memcmp(name, b"reconsumeTimes", 14) == 0 else -1
    if size == 17:
        return 11 if memcmp(name, b"maxReconsumeTimes", 17) == 0 else -1
    if size == 21:
        return 3 if memcmp(name, b"defaultTopicQueueNums", 21) == 0 else -1
    return -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_text(at: Text, end: Text) -> Text:
    """Read a text of printable ASCII in quotes, without escapes."""
    if at >= end or at[0] != QUOTE:
        return cython.NULL
    at += 1
    while at < end and IS_PLAIN[at[0]]:
        at += 1
    return at + 1 if at < end and at[0] == QUOTE else cython.NULL


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_number(at: Text, end: Text, number: cython.p_longlong) -> Text:
    """Read an integer of up to 18 digits, without a plus sign, leading zeros, fraction or exponent."""
    value: cython.longlong = 0
    is_negative: cython.bint = at < end and at[0] == MINUS
    if is_negative:
        at += 1
    begin: Text = at
    while at < end and 48 <= at[0] <= 57:
        value = value * 10 + (at[0] - 48)
        at += 1
        if at - begin > 18:
            return cython.NULL
    if at == begin or (begin[0] == 48 and (at - begin > 1 or is_negative)):
        return cython.NULL
    number[0] = -value if is_negative else value
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_int32(at: Text, end: Text, number: cython.p_int) -> Text:
    """Read an integer of 32 bits."""
    value: cython.longlong = 0
    at = read_number(at, end, cython.address(value))
    if value < -2147483648 or value > 2147483647:
        return cython.NULL
    number[0] = cython.cast(cython.int, value)
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_number_text(at: Text, end: Text, number: cython.p_longlong) -> Text:
    """Read an integer, or the text of an integer."""
    if at >= end or at[0] != QUOTE:
        return read_number(at, end, number)
    at = read_number(at + 1, end, number)
    return at + 1 if at != cython.NULL and at < end and at[0] == QUOTE else cython.NULL


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_int32_text(at: Text, end: Text, number: cython.p_int) -> Text:
    """Read an integer of 32 bits, or the text of one."""
    value: cython.longlong = 0
    at = read_number_text(at, end, cython.address(value))
    if value < -2147483648 or value > 2147483647:
        return cython.NULL
    number[0] = cython.cast(cython.int, value)
    return at


# --------------------------------------------------------------------------------------------------------------- binary


@cython.cfunc
@cython.exceptval(check=False)
def read_binary_header(at: Text, end: Text, found: cython.pointer(SendFields)) -> cython.bint:
    """Do the same as `read_header` for the binary dialect, where numbers are texts; a header with a remark is
    rejected."""
    fields: cython.int = 0
    letter: cython.int
    name_size: cython.longlong
    size: cython.longlong
    name: Text
    if end - at < 21:
        return False
    found.code = (at[0] << 8) | at[1]
    found.version = cython.cast(cython.short, (at[3] << 8) | at[4])
    found.opaque = get32(at + 5)
    found.flag = get32(at + 9)
    size = get32(at + 17)
    if (found.code != 310 and found.code != 10) or get32(at + 13) != 0 or size != end - at - 21:
        return False
    at += 21
    found.reconsume_times = 0
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
        if size <= 0 or size > end - at:
            return False
        letter = letter_of(name, name_size, found.code)
        if not is_printable(name, name_size) or not read_binary_field(letter, at, size, found):
            return False
        if letter >= 0:
            fields |= 1 << letter
        at += size
    return fields & REQUIRED == REQUIRED and fields & (1 << 8) != 0 and not found.flag & 1


@cython.cfunc
@cython.exceptval(check=False)
def read_binary_field(
    letter: cython.int, at: Text, size: cython.Py_ssize_t, found: cython.pointer(SendFields)
) -> cython.bint:
    """Read one value; return whether it is on the fast path."""
    end: Text = at + size
    unused: cython.longlong = 0
    number: cython.int = 0
    if letter == 8:
        return copy_properties(at, size, cython.address(found.properties))
    if letter == 6:
        return read_number(at, end, cython.address(found.born_timestamp)) == end
    if letter == 3 or letter == 4 or letter == 5 or letter == 7 or letter == 9 or letter == 11:
        if read_number(at, end, cython.address(unused)) != end or unused < -2147483648 or unused > 2147483647:
            return False
        number = cython.cast(cython.int, unused)
        if letter == 4:
            found.queue_id = number
        elif letter == 5:
            found.sys_flag = number
        elif letter == 7:
            found.message_flag = number
        elif letter == 9:
            found.reconsume_times = number
        return True
    if letter == 1:
        found.topic, found.topic_size = at, size
    if letter == 12 and (size != 5 or memcmp(at, b"false", 5) != 0):
        return False
    return is_printable(at, size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_printable(text: Text, size: cython.Py_ssize_t) -> cython.bint:
    """Return whether the text is ASCII without control characters."""
    n: cython.Py_ssize_t
    for n in range(size):
        if text[n] < 0x20 or text[n] > 0x7E:
            return False
    return True
