"""The header of a fast-path pull, JSON or MSGPACK, read in one pass over its bytes.

A pull takes the fast path if its header has the common layout. In JSON that is

    {"code":11, ... "extFields":{...} ... }       11 or 361 first, no white space; of a repeated member the last counts

with only printable ASCII without escapes in its texts, numbers as integers or their text, no null, and all required
fields. In the MSGPACK dialect the fields are positional, as in `protocol.msgpack_header`:

    97 0b   flag   language   opaque   c0   version   9f 02   group topic queue offset ...

Any other header goes to the general decoder (decode.py). The pure-Python version is protocol/pull_command.py. Nothing
is read at or beyond the end of a header.
"""

from sys import intern

import cython
from cython.cimports.cpython.unicode import PyUnicode_DATA, PyUnicode_DecodeASCII, PyUnicode_GET_LENGTH
from cython.cimports.libc.string import memcmp
from cython.cimports.skylarkmq.protocol.compiled.header import read_int32, read_int32_text, read_number_text, read_text
from cython.cimports.skylarkmq.protocol.compiled.msgpack_header import read_int, read_integer, read_nil, read_printable

MSGPACK = cython.declare(cython.int, 0x4D)
WORD_BYTES = cython.declare(cython.Py_ssize_t, 256)
WORD_PAIRS = cython.declare(cython.uint, 4096)
SPREAD = cython.declare(cython.uint, 0x9E3779B1)  # a multiplier that mixes bits
POSITIONAL_PULL = cython.declare(cython.int, 2)
NIL = cython.declare(cython.int, 0xC0)
REQUIRED = cython.declare(cython.int, 0x1FF)  # the first nine fields

COMMA = cython.declare(cython.int, 44)
COLON = cython.declare(cython.int, 58)
PARENTHESIS = cython.declare(cython.int, 40)
OPENING_BRACE = cython.declare(cython.int, 123)
BRACE = cython.declare(cython.int, 125)

# Fields, by their position in PullMessageHeader.
GROUP = cython.declare(cython.int, 0)
TOPIC = cython.declare(cython.int, 1)
QUEUE_ID = cython.declare(cython.int, 2)
QUEUE_OFFSET = cython.declare(cython.int, 3)
MAX_MSG_NUMS = cython.declare(cython.int, 4)
SYS_FLAG = cython.declare(cython.int, 5)
COMMIT_OFFSET = cython.declare(cython.int, 6)
SUSPEND_TIMEOUT = cython.declare(cython.int, 7)
SUB_VERSION = cython.declare(cython.int, 8)
SUBSCRIPTION = cython.declare(cython.int, 9)
EXPRESSION_TYPE = cython.declare(cython.int, 10)
MAX_MSG_BYTES = cython.declare(cython.int, 11)
REQUEST_SOURCE = cython.declare(cython.int, 12)
BNAME = cython.declare(cython.int, 13)

PullFields = cython.struct(
    flag=cython.int,
    opaque=cython.int,
    version=cython.int,
    code=cython.int,
    fields=cython.int,  # bit n: field n is present
    numbers=cython.longlong[14],
    texts=Text[14],
    sizes=cython.Py_ssize_t[14],
)


@cython.final
@cython.no_gc
@cython.freelist(64)
@cython.cclass
class Pull:
    """A fast-path pull, with the attributes of a RemotingCommand. It is also its own header, with the attributes of a
    PullMessageHeader. The general decoder decodes rarely used attributes on access."""

    @cython.cfunc
    def general(self):
        """Return the same command, decoded by the general decoder."""
        if self.command is None:
            self.command = self.decode((self.dialect, self.data[self.header_at : self.header_end], self.body))
        return self.command

    def header(self, header_type):
        """Return the command itself if this is its header type, else the ext fields as another type."""
        return self if header_type is self.header_type else self.general().header(header_type)

    @property
    def send_header(self):
        """None: this is not a send."""
        return None

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

    @property
    def ext_bytes(self):
        return self.header_end - self.header_at

    def ext_fields(self):
        return self.general().ext_fields()

    def detached(self):
        """See RemotingCommand."""
        self.command = None
        self.body = bytes(self.body)
        self.data = bytes(self.data[self.header_at : self.header_end])
        self.header_end -= self.header_at
        self.header_at = 0
        return self

    def drop_payload(self):
        """See RemotingCommand. The fields are kept."""
        self.command = None
        self.body = b""
        self.data = b""
        self.header_at = self.header_end = 0

    def __repr__(self):
        return f"<Pull {self.topic}/{self.queue_id} from {self.queue_offset} opaque={self.opaque}>"


@cython.cclass
class InternCache:
    """A cache of recent texts of one field: equal bytes give the same object, so its hash is computed once, and the
    object is the same in the whole process (sys.intern). It is two-way set-associative; the older entry of a set is
    replaced."""

    def __init__(self):
        self.last = ""
        self.words = [""] * (2 * WORD_PAIRS)

    @cython.cfunc
    def get(self, text: Text, size: cython.Py_ssize_t) -> str:
        """Return the text of these ASCII bytes."""
        word: str = self.last
        code: cython.uint = 0
        n: cython.Py_ssize_t
        if is_equal(word, text, size):
            return word
        if size > WORD_BYTES:
            return PyUnicode_DecodeASCII(cython.cast(cython.p_const_char, text), size, cython.NULL)
        for n in range(size):
            code = 31 * code + text[n]
        newer: cython.uint = (code * SPREAD >> 16) % WORD_PAIRS * 2
        word = self.words[newer]
        if not is_equal(word, text, size):
            word = self.words[newer + 1]
            if not is_equal(word, text, size):
                word = intern(PyUnicode_DecodeASCII(cython.cast(cython.p_const_char, text), size, cython.NULL))
                self.words[newer + 1] = self.words[newer]
                self.words[newer] = word
        self.last = word
        return word


@cython.cfunc
@cython.inline
def is_equal(word: str, text: Text, size: cython.Py_ssize_t) -> cython.bint:
    return PyUnicode_GET_LENGTH(word) == size and memcmp(PyUnicode_DATA(word), text, size) == 0


@cython.cclass
class Pulls:
    """Makes Pulls from frames. `general(frame)` decodes one frame, `header_type` is the header type that a Pull
    replaces."""

    def __init__(self, general, header_type):
        self.general = general
        self.header_type = header_type
        self.groups = InternCache()
        self.topics = InternCache()
        self.subscriptions = InternCache()
        self.types = InternCache()
        self.names = InternCache()

    @cython.cfunc
    def read_frame(
        self,
        data,
        bytes_: Text,
        header_at: cython.Py_ssize_t,
        body_at: cython.Py_ssize_t,
        frame_end: cython.Py_ssize_t,
        dialect: cython.int,
    ):
        """Return the Pull in a frame; None if the frame is not a fast-path pull."""
        found: PullFields
        found.fields = 0
        if dialect == MSGPACK:
            if not read_msgpack_pull(bytes_ + header_at, bytes_ + body_at, cython.address(found)):
                return None
        elif dialect or not read_pull(bytes_ + header_at, bytes_ + body_at, cython.address(found)):
            return None
        pull: Pull = Pull.__new__(Pull)
        pull.dialect = dialect
        pull.code = found.code
        pull.flag = found.flag
        pull.opaque = found.opaque
        pull.version = found.version
        pull.consumer_group = self.groups.get(found.texts[GROUP], found.sizes[GROUP])
        pull.topic = self.topics.get(found.texts[TOPIC], found.sizes[TOPIC])
        pull.queue_id = cython.cast(cython.int, found.numbers[QUEUE_ID])
        pull.queue_offset = found.numbers[QUEUE_OFFSET]
        pull.max_msg_nums = cython.cast(cython.int, found.numbers[MAX_MSG_NUMS])
        pull.sys_flag = cython.cast(cython.int, found.numbers[SYS_FLAG])
        pull.commit_offset = found.numbers[COMMIT_OFFSET]
        pull.suspend_timeout_millis = found.numbers[SUSPEND_TIMEOUT]
        pull.sub_version = found.numbers[SUB_VERSION]
        if found.fields & 1 << SUBSCRIPTION:
            pull.subscription = self.subscriptions.get(found.texts[SUBSCRIPTION], found.sizes[SUBSCRIPTION])
        if found.fields & 1 << EXPRESSION_TYPE:
            pull.expression_type = self.types.get(found.texts[EXPRESSION_TYPE], found.sizes[EXPRESSION_TYPE])
        if found.fields & 1 << MAX_MSG_BYTES:
            pull.max_msg_bytes = found.numbers[MAX_MSG_BYTES]
        if found.fields & 1 << REQUEST_SOURCE:
            pull.request_source = found.numbers[REQUEST_SOURCE]
        if found.fields & 1 << BNAME:
            pull.bname = self.names.get(found.texts[BNAME], found.sizes[BNAME])
        pull.decode = self.general
        pull.header_type = self.header_type
        pull.body = b"" if frame_end == body_at else data[body_at:frame_end]
        pull.data = data
        pull.header_at = header_at
        pull.header_end = body_at
        return pull


# ----------------------------------------------------------------------------------------------------------------- JSON


@cython.cfunc
@cython.exceptval(check=False)
def read_pull(at: Text, end: Text, found: cython.pointer(PullFields)) -> cython.bint:
    """Return whether this is the whole header of a fast-path pull; store its fields in `found`."""
    name: Text
    size: cython.Py_ssize_t
    found.flag = found.opaque = found.version = 0
    if end - at < 32:
        return False
    if memcmp(at, b'{"code":11,', 11) == 0:
        found.code = 11
        at += 10
    elif memcmp(at, b'{"code":361,', 12) == 0:
        found.code = 361
        at += 11
    else:
        return False
    while at < end and at[0] == COMMA:
        name = at + 2
        at = read_text(at + 1, end)
        if at == cython.NULL or at >= end or at[0] != COLON:
            return False
        size = at - 1 - name
        at += 1
        if size == 9 and memcmp(name, b"extFields", 9) == 0:
            if found.fields:
                return False
            at = read_fields(at, end, found)
        elif size == 6 and memcmp(name, b"opaque", 6) == 0:
            at = read_int32(at, end, cython.address(found.opaque))
        elif size == 4 and memcmp(name, b"flag", 4) == 0:
            at = read_int32(at, end, cython.address(found.flag))
        elif size == 7 and memcmp(name, b"version", 7) == 0:
            at = read_int32(at, end, cython.address(found.version))
        elif size == 4 and memcmp(name, b"code", 4) == 0:
            return False
        elif size and name[0] == PARENTHESIS:
            return False  # a name of RemotingCommand's internal fields
        else:
            at = read_text(at, end)  # language, remark, or a member that is not used
        if at == cython.NULL:
            return False
    return at + 1 == end and at[0] == BRACE and found.fields & REQUIRED == REQUIRED and not found.flag & 1


@cython.cfunc
@cython.exceptval(check=False)
def read_fields(at: Text, end: Text, found: cython.pointer(PullFields)) -> Text:
    """Read the ext fields."""
    field: cython.int
    name: Text
    begin: Text
    number: cython.int = 0
    if at >= end or at[0] != OPENING_BRACE:
        return cython.NULL
    while True:
        name = at + 2
        at = read_text(at + 1, end)
        if at == cython.NULL or at >= end or at[0] != COLON:
            return cython.NULL
        field = field_of(name, at - 1 - name)
        at += 1
        begin = at + 1
        if field < 0 or is_text(field):
            at = read_text(at, end)
            if field >= 0 and at != cython.NULL:
                found.texts[field], found.sizes[field] = begin, at - 1 - begin
        elif is_long(field):
            at = read_number_text(at, end, cython.address(found.numbers[field]))
        else:
            at = read_int32_text(at, end, cython.address(number))
            found.numbers[field] = number
        if at == cython.NULL or at >= end:
            return cython.NULL
        if field >= 0:
            found.fields |= 1 << field
        if at[0] == BRACE:
            return at + 1
        if at[0] != COMMA:
            return cython.NULL


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_text(field: cython.int) -> cython.bint:
    """Return whether the field is a text."""
    return field <= TOPIC or field == SUBSCRIPTION or field == EXPRESSION_TYPE or field == BNAME


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_long(field: cython.int) -> cython.bint:
    """Return whether the field is a number of 64 bits."""
    return field == QUEUE_OFFSET or COMMIT_OFFSET <= field <= SUB_VERSION


@cython.cfunc
@cython.exceptval(check=False)
def field_of(name: Text, size: cython.Py_ssize_t) -> cython.int:
    """Return the position of a field in PullMessageHeader; -1 if the field is not used."""
    if size == 5:
        if memcmp(name, b"topic", 5) == 0:
            return TOPIC
        return BNAME if memcmp(name, b"bname", 5) == 0 else -1
    if size == 7:
        if memcmp(name, b"queueId", 7) == 0:
            return QUEUE_ID
        return SYS_FLAG if memcmp(name, b"sysFlag", 7) == 0 else -1
    if size == 10:
        if memcmp(name, b"maxMsgNums", 10) == 0:
            return MAX_MSG_NUMS
        return SUB_VERSION if memcmp(name, b"subVersion", 10) == 0 else -1
    if size == 11:
        if memcmp(name, b"queueOffset", 11) == 0:
            return QUEUE_OFFSET
        return MAX_MSG_BYTES if memcmp(name, b"maxMsgBytes", 11) == 0 else -1
    if size == 12:
        if memcmp(name, b"commitOffset", 12) == 0:
            return COMMIT_OFFSET
        return SUBSCRIPTION if memcmp(name, b"subscription", 12) == 0 else -1
    if size == 13:
        if memcmp(name, b"consumerGroup", 13) == 0:
            return GROUP
        return REQUEST_SOURCE if memcmp(name, b"requestSource", 13) == 0 else -1
    if size == 14:
        return EXPRESSION_TYPE if memcmp(name, b"expressionType", 14) == 0 else -1
    return SUSPEND_TIMEOUT if size == 20 and memcmp(name, b"suspendTimeoutMillis", 20) == 0 else -1


# -------------------------------------------------------------------------------------------------------------- MSGPACK


@cython.cfunc
@cython.exceptval(check=False)
def read_msgpack_pull(at: Text, end: Text, found: cython.pointer(PullFields)) -> cython.bint:
    """Do the same as `read_pull` for positional fields."""
    unused: cython.int = 0
    count: cython.int
    if end - at < 16 or at[0] != 0x97 or at[1] != 11:
        return False
    found.code = 11
    at = read_int(at + 2, end, cython.address(found.flag))
    at = read_int(at, end, cython.address(unused))
    at = read_int(at, end, cython.address(found.opaque))
    at = read_nil(at, end)
    at = read_int(at, end, cython.address(found.version))
    if at == cython.NULL or end - at < 2 or at[0] < 0x9A or at[0] > 0x9F or at[1] != POSITIONAL_PULL:
        return False
    count = (at[0] & 15) - 1
    return read_positional(at + 2, end, found, count) == end and not found.flag & 1


@cython.cfunc
@cython.exceptval(check=False)
def read_positional(at: Text, end: Text, found: cython.pointer(PullFields), count: cython.int) -> Text:
    """Read `count` fields, nine at least."""
    field: cython.int
    number: cython.int = 0
    for field in range(count):
        if at == cython.NULL or at >= end:
            return cython.NULL
        if field >= SUBSCRIPTION and at[0] == NIL:
            at += 1
            continue
        if is_text(field):
            at = read_printable(at, end, cython.address(found.texts[field]), cython.address(found.sizes[field]))
        elif is_long(field):
            at = read_integer(at, end, cython.address(found.numbers[field]))
        else:
            at = read_int(at, end, cython.address(number))
            found.numbers[field] = number
        found.fields |= 1 << field
    return at
