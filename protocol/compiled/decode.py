"""From the bytes of a read to commands, and from stored messages to answers, in C.

`Decoder.decode` cuts a read into frames. A JSON frame that is a plain send becomes a `Send` in one pass over its bytes;
every other frame goes to the general decoder. `Sends.make` makes of a Send what is put into the store, `Answers.stored`
the frames that say where it went.

A send is plain, here, if its header is

    {"code":310, ... "extFields":{...} ... }      310 or 10 first, no white space, each member once or the last one wins

with nothing but printable ASCII in its texts (escapes in the properties only: one byte long, or \\u00xx below 80),
numbers as integers or their text, no null, all required fields there, no batch; and if its properties are closed
entries of which none has an empty part, or a name that wants a look, and one is a UNIQ_KEY of letters and digits.
Whatever is not known to be so is not plain. So all that can be read here is read alike by the general decoder, and what
is wrong is found by it alone. See protocol.send_command and broker.processors.stored_properties, the interpreted twins.

Nothing here reads behind the end of its input: each loop is bounded by it, and a frame is looked at when it is whole.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_DecodeASCII
from cython.cimports.libc.string import memchr, memcmp, memcpy

Text = cython.typedef(cython.p_const_uchar)

PREFIX = cython.declare(cython.Py_ssize_t, 8)
COPIED_BYTES = cython.declare(cython.Py_ssize_t, 4096)  # a body up to that is copied: cheaper than a view of it
SCRATCH_BYTES = cython.declare(cython.Py_ssize_t, 32768)
TOPIC_BYTES = cython.declare(cython.Py_ssize_t, 256)
REQUIRED = cython.declare(cython.int, 0xFF)  # bits of the letters a to h

QUOTE = cython.declare(cython.int, 34)
COMMA = cython.declare(cython.int, 44)
MINUS = cython.declare(cython.int, 45)
PARENTHESIS = cython.declare(cython.int, 40)
COLON = cython.declare(cython.int, 58)
BACKSLASH = cython.declare(cython.int, 92)
F = cython.declare(cython.int, 102)
U = cython.declare(cython.int, 117)
OPENING_BRACE = cython.declare(cython.int, 123)
BRACE = cython.declare(cython.int, 125)

_scratch = cython.declare(cython.uchar[32768])  # one set of properties, unescaped


@cython.final
@cython.no_gc
@cython.freelist(512)
@cython.cclass
class Send:
    """A plain send. It is used like a RemotingCommand; what only few ask for is read by the general decoder then."""

    code = cython.declare(cython.int, visibility="readonly")
    flag = cython.declare(cython.int, visibility="readonly")
    opaque = cython.declare(cython.int, visibility="readonly")
    version = cython.declare(cython.int, visibility="readonly")
    body = cython.declare(object, visibility="public")
    topic = cython.declare(str, visibility="readonly")
    queue_id = cython.declare(cython.int, visibility="readonly")
    sys_flag = cython.declare(cython.int)
    message_flag = cython.declare(cython.int)
    born_timestamp = cython.declare(cython.longlong)
    reconsume_times = cython.declare(cython.int)
    properties = cython.declare(bytes)
    tags_code = cython.declare(cython.int)
    key_at = cython.declare(cython.Py_ssize_t)
    key_size = cython.declare(cython.Py_ssize_t)
    keys_at = cython.declare(cython.Py_ssize_t)
    keys_size = cython.declare(cython.Py_ssize_t)
    fields = cython.declare(cython.int)
    decode = cython.declare(object)
    data = cython.declare(object)
    header_at = cython.declare(cython.Py_ssize_t)
    header_end = cython.declare(cython.Py_ssize_t)
    command = cython.declare(object)

    @cython.cfunc
    def general(self):
        """The same command as the general decoder has it."""
        if self.command is None:
            self.command = self.decode((0, self.data[self.header_at : self.header_end], self.body))
        return self.command

    @property
    def sent(self):
        """Where topic and queue id are found."""
        return self

    @property
    def dialect(self):
        return 0

    @property
    def is_response(self):
        return False

    @property
    def is_oneway(self):
        return self.flag & 2 != 0

    @property
    def language(self):
        return self.general().language

    @property
    def language_code(self):
        return self.general().language_code

    @property
    def remark(self):
        return self.general().remark

    @property
    def raw_ext(self):
        return self.general().raw_ext

    @property
    def ext(self):
        return self.general().ext

    def header(self, header_type):
        return self.general().header(header_type)

    def ext_fields(self):
        return self.general().ext_fields()

    def detached(self):
        """With memory of its own."""
        self.command = None
        self.body = bytes(self.body)
        self.data = bytes(self.data[self.header_at : self.header_end])
        self.header_end -= self.header_at
        self.header_at = 0
        return self

    def __repr__(self):
        return f"<Send {self.topic}/{self.queue_id} opaque={self.opaque}>"


# --------------------------------------------------------------------------------------------------------------- frames


@cython.final
@cython.cclass
class Decoder:
    """Cuts reads into commands. `general(frame)` decodes one frame, `illegal(length, word, limit)` makes an error."""

    general = cython.declare(object)
    illegal = cython.declare(object)
    topic = cython.declare(str)  # the last one: the next is mostly the same
    topic_bytes = cython.declare(cython.uchar[256])
    topic_size = cython.declare(cython.Py_ssize_t)

    def __init__(self, general, illegal):
        self.general = general
        self.illegal = illegal
        self.topic = ""
        self.topic_size = 0

    def decode(self, data, start: cython.Py_ssize_t, limit: cython.Py_ssize_t, commands: list):
        """Add the commands of all whole frames from `start` on; returns where the first incomplete one begins."""
        view: Py_buffer
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            return self.frames(data, cython.cast(Text, view.buf), start, view.len, limit, commands)
        finally:
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    def frames(
        self,
        data,
        bytes_: Text,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        limit: cython.Py_ssize_t,
        commands: list,
    ) -> cython.Py_ssize_t:
        length: cython.longlong
        word: cython.uint
        body_at: cython.Py_ssize_t
        frame_end: cython.Py_ssize_t
        while end - start >= PREFIX:
            length = cython.cast(cython.int, big_endian(bytes_ + start))
            word = big_endian(bytes_ + start + 4)
            frame_end = start + 4 + length
            body_at = start + PREFIX + (word & 0xFFFFFF)
            if body_at > frame_end or frame_end - start > limit:
                raise self.illegal(length, word, limit)
            if frame_end > end:
                break
            command = None
            if word <= 0xFFFFFF:
                command = self.plain_send(data, bytes_, start + PREFIX, body_at, frame_end)
            if command is None:
                command = self.general((word >> 24, data[start + PREFIX : body_at], data[body_at:frame_end]))
            if command is not None:
                commands.append(command)
            start = frame_end
        return start

    @cython.cfunc
    def plain_send(
        self,
        data,
        bytes_: Text,
        header_at: cython.Py_ssize_t,
        body_at: cython.Py_ssize_t,
        frame_end: cython.Py_ssize_t,
    ):
        """The Send in a frame; None if it is none."""
        found: Found
        if not read_header(bytes_ + header_at, bytes_ + body_at, cython.address(found)):
            return None
        send: Send = Send.__new__(Send)
        send.code = found.code
        send.flag = found.flag
        send.opaque = found.opaque
        send.version = found.version
        send.topic = self.topic_of(found.topic, found.topic_size)
        send.queue_id = found.queue_id
        send.sys_flag = found.sys_flag
        send.message_flag = found.message_flag
        send.born_timestamp = found.born_timestamp
        send.reconsume_times = found.reconsume_times
        send.tags_code = found.tags_code
        send.key_at, send.key_size = found.key_at, found.key_size
        send.keys_at, send.keys_size = found.keys_at, found.keys_size
        send.properties = PyBytes_FromStringAndSize(cython.cast(cython.p_char, _scratch), found.properties_size)
        if frame_end - body_at <= COPIED_BYTES:
            send.body = PyBytes_FromStringAndSize(cython.cast(cython.p_char, bytes_ + body_at), frame_end - body_at)
        else:
            send.body = data[body_at:frame_end]
        send.decode = self.general
        send.data = data
        send.header_at = header_at
        send.header_end = body_at
        return send

    @cython.cfunc
    def topic_of(self, text: Text, size: cython.Py_ssize_t) -> str:
        """A topic's name: the same object for as long as it is the same topic."""
        if size != self.topic_size or memcmp(self.topic_bytes, text, size) != 0:
            if size > TOPIC_BYTES:
                return PyUnicode_DecodeASCII(cython.cast(cython.p_const_char, text), size, cython.NULL)
            self.topic = PyUnicode_DecodeASCII(cython.cast(cython.p_const_char, text), size, cython.NULL)
            self.topic_size = size
            memcpy(self.topic_bytes, text, size)
        return self.topic


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def big_endian(at: Text) -> cython.uint:
    return (cython.cast(cython.uint, at[0]) << 24) | (at[1] << 16) | (at[2] << 8) | at[3]


# -------------------------------------------------------------------------------------------------------------- headers
#
# A reader gets a position and the end, and gives the position behind what it read; NULL: it is not plain.

Found = cython.struct(
    code=cython.int,
    flag=cython.int,
    opaque=cython.int,
    version=cython.int,
    topic=Text,
    topic_size=cython.Py_ssize_t,
    queue_id=cython.int,
    sys_flag=cython.int,
    message_flag=cython.int,
    born_timestamp=cython.longlong,
    reconsume_times=cython.int,
    properties_size=cython.Py_ssize_t,
    tags_code=cython.int,
    key_at=cython.Py_ssize_t,
    key_size=cython.Py_ssize_t,
    keys_at=cython.Py_ssize_t,
    keys_size=cython.Py_ssize_t,
)
FoundPointer = cython.typedef(cython.pointer(Found))


@cython.cfunc
@cython.exceptval(check=False)
def read_header(at: Text, end: Text, found: FoundPointer) -> cython.bint:
    """Whether this is the whole header of a plain send; `found` tells what is in it."""
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
            return False  # a name that RemotingCommand gives to a field of its own
        else:
            at = read_text(at, end)  # language, remark, or what nobody asks for
        if at == cython.NULL:
            return False
    return at + 1 == end and at[0] == BRACE and fields & REQUIRED == REQUIRED and not found.flag & 1


@cython.cfunc
@cython.exceptval(check=False)
def read_fields(at: Text, end: Text, found: FoundPointer, fields: cython.p_int) -> Text:
    """The ext fields. Of `fields`, bit n says that there is a field with the nth letter."""
    letter: cython.int
    name: Text
    found.reconsume_times = 0
    found.properties_size = 0
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
            return at + 1 if fields[0] & (1 << 8) else cython.NULL  # there are properties
        if at[0] != COMMA:
            return cython.NULL


@cython.cfunc
@cython.exceptval(check=False)
def read_field(letter: cython.int, at: Text, end: Text, found: FoundPointer) -> Text:
    """The value of one field."""
    begin: Text = at + 1
    unused: cython.int = 0
    if letter == 8:  # i, properties
        return read_properties(at, end, found)
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
    """Which field of a send this is, as the number of its letter in the short form: 0 to 13; -1: none that matters."""
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
    """A text of printable ASCII, with its quotes, without an escape."""
    if at >= end or at[0] != QUOTE:
        return cython.NULL
    at += 1
    while at < end:
        if at[0] == QUOTE:
            return at + 1
        if at[0] < 0x20 or at[0] > 0x7E or at[0] == BACKSLASH:
            return cython.NULL
        at += 1
    return cython.NULL


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_number(at: Text, end: Text, number: cython.p_longlong) -> Text:
    """An integer of up to 18 digits, without a sign +, zeros in front, a fraction or an exponent."""
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
    """An integer that fits into 32 bits."""
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
    """An integer, or the text of one."""
    if at >= end or at[0] != QUOTE:
        return read_number(at, end, number)
    at = read_number(at + 1, end, number)
    return at + 1 if at != cython.NULL and at < end and at[0] == QUOTE else cython.NULL


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_int32_text(at: Text, end: Text, number: cython.p_int) -> Text:
    """The same within 32 bits."""
    value: cython.longlong = 0
    at = read_number_text(at, end, cython.address(value))
    if value < -2147483648 or value > 2147483647:
        return cython.NULL
    number[0] = cython.cast(cython.int, value)
    return at


# ----------------------------------------------------------------------------------------------------------- properties


@cython.cfunc
@cython.exceptval(check=False)
def read_properties(at: Text, end: Text, found: FoundPointer) -> Text:
    """The text of properties, into `_scratch`; NULL too if the properties are not plain."""
    size: cython.Py_ssize_t = 0
    byte: cython.int
    if at >= end or at[0] != QUOTE:
        return cython.NULL
    at += 1
    while at < end and at[0] != QUOTE:
        byte = at[0]
        if byte < 0x20 or byte > 0x7E or size >= SCRATCH_BYTES:
            return cython.NULL
        at += 1
        if byte == BACKSLASH:
            if at >= end:
                return cython.NULL
            if at[0] == U:
                byte = unicode_escape(at + 1, end)
                at += 5
            else:
                byte = short_escape(at[0])
                at += 1
            if byte < 0:
                return cython.NULL
        _scratch[size] = cython.cast(cython.uchar, byte)
        size += 1
    if at >= end or not scan_properties(_scratch, size, found):
        return cython.NULL
    found.properties_size = size
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def unicode_escape(at: Text, end: Text) -> cython.int:
    """What stands behind \\u, if it is ASCII; else -1."""
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
    """What a letter behind a backslash stands for; -1: nothing."""
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
def scan_properties(text: Text, size: cython.Py_ssize_t, found: FoundPointer) -> cython.bint:
    """Whether all entries are plain; finds the last of each name that matters."""
    at: cython.Py_ssize_t = 0
    value_at: cython.Py_ssize_t
    entry_end: cython.Py_ssize_t
    mark: Text
    found.tags_code = 0
    found.key_size = found.keys_size = 0
    while at < size:
        mark = cython.cast(Text, memchr(text + at, 2, size - at))
        if mark == cython.NULL:
            return False
        entry_end = mark - text
        mark = cython.cast(Text, memchr(text + at, 1, entry_end - at))
        if mark == cython.NULL:
            return False
        value_at = mark - text + 1
        if value_at - at == 1 or value_at == entry_end:
            return False
        if not note_entry(text, at, value_at, entry_end, found):
            return False
        at = entry_end + 1
    return found.key_size > 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def note_entry(
    text: Text, at: cython.Py_ssize_t, value_at: cython.Py_ssize_t, end: cython.Py_ssize_t, found: FoundPointer
) -> cython.bint:
    """Remember one property, if it matters; whether it is plain."""
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
    return not (first == 87 and size >= 4 and memcmp(name, b"WAIT", 4) == 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_alphanumeric(text: Text, size: cython.Py_ssize_t) -> cython.bint:
    """Whether these are one to 64 letters and digits."""
    n: cython.Py_ssize_t
    if size > 64:
        return False
    for n in range(size):
        if not (48 <= text[n] <= 57 or 65 <= text[n] <= 90 or 97 <= text[n] <= 122):
            return False
    return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def java_hash(text: Text, size: cython.Py_ssize_t) -> cython.int:
    """Java's String.hashCode of ASCII text."""
    code: cython.uint = 0
    n: cython.Py_ssize_t
    for n in range(size):
        code = code * 31 + text[n]
    return cython.cast(cython.int, code)


# ------------------------------------------------------------------------------------------------- messages and answers


@cython.final
@cython.cclass
class Sends:
    """Makes what is stored of a Send. `kind` makes an append of the values that it is given, as Append does;
    `cluster_entry` closes the properties; `general` makes the same of a command that is no Send."""

    kind = cython.declare(object)
    cluster_entry = cython.declare(bytes)
    general = cython.declare(object)

    def __init__(self, kind, cluster_entry: bytes, general):
        self.kind = kind
        self.cluster_entry = cluster_entry
        self.general = general

    def make(self, command, sent, host):
        """(command, append, unique key)."""
        if type(command) is not Send:
            return self.general(command, sent, host)
        send: Send = command
        size: cython.Py_ssize_t = len(send.properties)
        more: cython.Py_ssize_t = len(self.cluster_entry)
        properties: bytes = PyBytes_FromStringAndSize(cython.NULL, size + more)
        text: cython.p_char = PyBytes_AS_STRING(send.properties)
        memcpy(PyBytes_AS_STRING(properties), text, size)
        memcpy(PyBytes_AS_STRING(properties) + size, PyBytes_AS_STRING(self.cluster_entry), more)
        unique_key: bytes = PyBytes_FromStringAndSize(text + send.key_at, send.key_size)
        keys: list = [unique_key]
        if send.keys_size:
            add_keys(keys, text + send.keys_at, send.keys_size)
        append = self.kind(
            send.topic,
            send.queue_id,
            send.body,
            properties,
            send.tags_code,
            send.message_flag,
            send.sys_flag,
            send.born_timestamp,
            host,
            send.reconsume_times,
            keys=keys,
        )
        return command, append, unique_key


@cython.cfunc
def add_keys(keys: list, text: cython.p_char, size: cython.Py_ssize_t):
    """The pieces of KEYS between spaces."""
    end: cython.p_char = text + size
    mark: cython.p_char
    while text < end:
        mark = cython.cast(cython.p_char, memchr(text, 32, end - text))
        if mark == cython.NULL:
            mark = end
        if mark > text:
            keys.append(PyBytes_FromStringAndSize(text, mark - text))
        text = mark + 1


@cython.final
@cython.cclass
class Answers:
    """Fills in answers. `pieces`: what stands before the physical offset (16 hex digits), queue id, queue offset,
    unique key and opaque, and behind the last; `ok` is the status of what is stored."""

    pieces = cython.declare(list)
    ok = cython.declare(object)
    fixed = cython.declare(cython.Py_ssize_t)

    def __init__(self, pieces: list, ok):
        if len(pieces) != 6:
            raise ValueError("six pieces make an answer")
        self.pieces = pieces
        self.ok = ok
        self.fixed = PREFIX + sum(map(len, pieces)) + 16 + 11 + 20 + 11

    def stored(self, sends):
        """The frames that say where messages went, and the sends that need another answer or none."""
        others: list = []
        size: cython.Py_ssize_t = 0
        for send in sends:
            size += self.fixed + len(send[2])
        frames: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        begin: cython.p_char = PyBytes_AS_STRING(frames)
        at: cython.p_char = begin
        for send in sends:
            command, append, unique_key = send
            if append.status is not self.ok or command.flag & 2:
                others.append(send)
            else:
                at = self.fill(at, append, unique_key, command.opaque)
        return frames[: at - begin], others

    @cython.cfunc
    def fill(self, frame: cython.p_char, append, unique_key: bytes, opaque: cython.longlong) -> cython.p_char:
        """One frame; returns where the next one goes."""
        at: cython.p_char = copied(frame + PREFIX, self.pieces[0])
        at = hex_digits(at, append.physical_offset)
        at = copied(at, self.pieces[1])
        at = digits(at, append.queue_id)
        at = copied(at, self.pieces[2])
        at = digits(at, append.queue_offset)
        at = copied(at, self.pieces[3])
        at = copied(at, unique_key)
        at = copied(at, self.pieces[4])
        at = digits(at, opaque)
        at = copied(at, self.pieces[5])
        put_big_endian(frame, cython.cast(cython.uint, at - frame - 4))
        put_big_endian(frame + 4, cython.cast(cython.uint, at - frame - PREFIX))
        return at


@cython.cfunc
@cython.inline
def copied(at: cython.p_char, piece: bytes) -> cython.p_char:
    size: cython.Py_ssize_t = len(piece)
    memcpy(at, PyBytes_AS_STRING(piece), size)
    return at + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def digits(at: cython.p_char, value: cython.longlong) -> cython.p_char:
    """A number in decimal; a place for 20 characters is enough."""
    reversed_: cython.char[20]
    count: cython.int = 0
    rest: cython.ulonglong = cython.cast(cython.ulonglong, value)
    if value < 0:
        at[0] = 45
        at += 1
        rest = 0 - rest
    while True:
        reversed_[count] = cython.cast(cython.char, 48 + rest % 10)
        count += 1
        rest //= 10
        if rest == 0:
            break
    while count > 0:
        count -= 1
        at[0] = reversed_[count]
        at += 1
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def hex_digits(at: cython.p_char, value: cython.longlong) -> cython.p_char:
    """A number in 16 hexadecimal digits."""
    n: cython.int
    digit: cython.int
    for n in range(16):
        digit = (cython.cast(cython.ulonglong, value) >> (60 - 4 * n)) & 15
        at[n] = cython.cast(cython.char, 48 + digit if digit < 10 else 55 + digit)
    return at + 16


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_big_endian(at: cython.p_char, value: cython.uint) -> cython.void:
    at[0] = cython.cast(cython.char, value >> 24)
    at[1] = cython.cast(cython.char, value >> 16)
    at[2] = cython.cast(cython.char, value >> 8)
    at[3] = cython.cast(cython.char, value)
