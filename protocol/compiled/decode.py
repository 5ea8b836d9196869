"""Commands from the bytes of a read, and appends from the commands.

`Decoder.decode` splits a read into frames. One pass over the bytes of a fast-path send makes it a `Send`, one pass over
a fast-path pull makes it a `Pull` (pull.py). Every other frame goes to the general decoder. `Sends.fast_path_appends`
makes appends for the store from Sends.

A send takes the fast path if its header has the common layout. In JSON that is

    {"code":310, ... "extFields":{...} ... }      310 or 10 first, no white space; of a repeated member the last counts

with only printable ASCII in its texts (escapes only in the properties: of one byte, or \\u00xx below 80), numbers as
integers or their text, no null, all required fields, and no batch. Its properties must be entries without an empty part
and without a name that needs special handling, and must include a UNIQ_KEY of letters and digits. In the binary
dialect, where all values are text without escapes, the same fields are required. In the MSGPACK dialect the fields are
positional (msgpack_header.py).

Any other header goes to the general decoder. So the general decoder decodes every header that this module accepts, with
the same result, and it alone reports errors. The pure-Python versions are protocol/send_command.py and
broker/processors/send/stored_properties.py.

Every loop is bounded by the end of its input, and only whole frames are decoded, so nothing is read beyond the end.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32
from cython.cimports.skylarkmq.protocol.compiled.header import SendFields, read_binary_header, read_header
from cython.cimports.skylarkmq.protocol.compiled.msgpack_header import read_msgpack_header
from cython.cimports.skylarkmq.protocol.compiled.properties import Text
from cython.cimports.skylarkmq.protocol.compiled.pull import InternCache, Pulls
from cython.cimports.skylarkmq.protocol.compiled.record import Append

PREFIX = cython.declare(cython.Py_ssize_t, 8)
MSGPACK = cython.declare(cython.int, 0x4D)


@cython.final
@cython.no_gc
@cython.freelist(512)
@cython.cclass
class Send:
    """A fast-path send, with the attributes of a RemotingCommand. The general decoder decodes rarely used ones on
    access."""

    @cython.cfunc
    def general(self):
        """Return the same command, decoded by the general decoder."""
        if self.command is None:
            self.command = self.decode((self.dialect, self.data[self.header_at : self.header_end], self.body))
        return self.command

    @property
    def body(self):
        """The bytes after the header, in the receive buffer."""
        if self.body_object is None:
            self.body_object = self.data[self.header_end : self.header_end + self.body_size]
        return self.body_object

    @body.setter
    def body(self, body):
        self.body_object = body
        self.body_at = cython.NULL

    @property
    def send_header(self):
        """The command itself: it has the fields `topic` and `queue_id` of a send header."""
        return self

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

    def header(self, header_type):
        return self.general().header(header_type)

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
        """See RemotingCommand. The numbers are kept."""
        self.command = None
        self.body = b""
        self.data = b""
        self.properties = b""
        self.header_at = self.header_end = 0

    def __repr__(self):
        return f"<Send {self.topic}/{self.queue_id} opaque={self.opaque}>"


# --------------------------------------------------------------------------------------------------------------- frames


@cython.final
@cython.cclass
class Decoder:
    """Splits reads into commands. `general(frame)` decodes one frame, `illegal(length, word, limit)` returns an error,
    `pull_header` is the type of a pull's header."""

    general = cython.declare(object)
    illegal = cython.declare(object)
    pulls = cython.declare(Pulls)
    topics = cython.declare(InternCache)

    def __init__(self, general, illegal, pull_header):
        self.general = general
        self.illegal = illegal
        self.pulls = Pulls(general, pull_header)
        self.topics = InternCache()

    def decode(self, data, start: cython.Py_ssize_t, limit: cython.Py_ssize_t, commands: list):
        """Append the commands of all whole frames from `start` on; return the position of the first incomplete one."""
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
            length = cython.cast(cython.int, get32(bytes_ + start))
            word = get32(bytes_ + start + 4)
            frame_end = start + 4 + length
            body_at = start + PREFIX + (word & 0xFFFFFF)
            if body_at > frame_end or frame_end - start > limit:
                raise self.illegal(length, word, limit)
            if frame_end > end:
                break
            command = None
            if word >> 24 <= 1 or word >> 24 == MSGPACK:
                command = self.fast_path_send(data, bytes_, start + PREFIX, body_at, frame_end, word >> 24)
                if command is None:
                    command = self.pulls.read_frame(data, bytes_, start + PREFIX, body_at, frame_end, word >> 24)
            if command is None:
                command = self.general((word >> 24, data[start + PREFIX : body_at], data[body_at:frame_end]))
            if command is not None:
                commands.append(command)
            start = frame_end
        return start

    @cython.cfunc
    def fast_path_send(
        self,
        data,
        bytes_: Text,
        header_at: cython.Py_ssize_t,
        body_at: cython.Py_ssize_t,
        frame_end: cython.Py_ssize_t,
        dialect: cython.int,
    ):
        """Return the Send in a frame; None if the frame is not a fast-path send."""
        found: SendFields
        begin: Text = bytes_ + header_at
        if dialect == MSGPACK:
            if not read_msgpack_header(begin, bytes_ + body_at, cython.address(found)):
                return None
        elif dialect:
            if not read_binary_header(begin, bytes_ + body_at, cython.address(found)):
                return None
        elif not read_header(begin, bytes_ + body_at, cython.address(found)):
            return None
        send: Send = Send.__new__(Send)
        send.dialect = dialect
        send.code = found.code
        send.flag = found.flag
        send.opaque = found.opaque
        send.version = found.version
        send.topic = self.topics.get(found.topic, found.topic_size)
        send.queue_id = found.queue_id
        send.sys_flag = found.sys_flag
        send.message_flag = found.message_flag
        send.born_timestamp = found.born_timestamp
        send.reconsume_times = found.reconsume_times
        send.tags_code = found.properties.tags_code
        send.key_at, send.key_size = found.properties.key_at, found.properties.key_size
        send.keys_at, send.keys_size = found.properties.keys_at, found.properties.keys_size
        send.properties = PyBytes_FromStringAndSize(
            cython.cast(cython.p_const_char, found.properties.text), found.properties.size
        )
        send.body_at = bytes_ + body_at
        send.body_size = frame_end - body_at
        send.decode = self.general
        send.data = data
        send.header_at = header_at
        send.header_end = body_at
        return send


# ------------------------------------------------------------------------------------------------- messages


@cython.final
@cython.cclass
class Sends:
    """Makes appends from Sends. `pending` is the initial status of an append, `cluster_entry` is appended to all
    properties, `general` does the same for commands that are not Sends."""

    pending = cython.declare(object)  # the status of an append without a result
    cluster_entry = cython.declare(bytes)
    general = cython.declare(object)

    def __init__(self, pending, cluster_entry: bytes, general):
        self.pending = pending
        self.cluster_entry = cluster_entry
        self.general = general

    def fast_path_appends(self, commands, at: cython.Py_ssize_t, queues: dict, host: bytes):
        """Return (command, append, unique key) of each fast-path send from `at` on. `queues`: number of queues by
        topic."""
        sends: list = []
        send: Send
        topic: str = None
        count: cython.longlong = 0
        while at < len(commands):
            command = commands[at]
            at += 1
            if type(command) is not Send:
                other: list = self.general([command], 0, queues, host)
                if not other:
                    break
                sends += other
                continue
            send = command
            if send.topic is not topic:
                topic = send.topic
                count = queues.get(topic, 0)
            if send.queue_id < 0 or send.queue_id >= count:
                break
            sends.append(self.make(send, host))
        return sends

    @cython.cfunc
    def make(self, send: Send, host: bytes):
        size: cython.Py_ssize_t = len(send.properties)
        more: cython.Py_ssize_t = len(self.cluster_entry)
        properties: bytes = PyBytes_FromStringAndSize(cython.NULL, size + more)
        text: cython.p_char = PyBytes_AS_STRING(send.properties)
        memcpy(PyBytes_AS_STRING(properties), text, size)
        memcpy(PyBytes_AS_STRING(properties) + size, PyBytes_AS_STRING(self.cluster_entry), more)
        append: Append = Append.__new__(Append)
        append.topic = send.topic
        append.queue_id = send.queue_id
        append.body_object = send.data if send.body_at != cython.NULL else send.body_object
        append.body_at = send.body_at
        append.body_size = send.body_size
        append.property_bytes = properties
        append.tags_code = send.tags_code
        append.flag = send.message_flag
        append.sys_flag = send.sys_flag
        append.born_timestamp = send.born_timestamp
        append.born_host = host
        append.reconsume_times = send.reconsume_times
        append.wait_flush = True
        append.status = self.pending
        append.physical_offset = append.queue_offset = -1
        append.key_at, append.key_size = send.key_at, send.key_size
        append.keys_at, append.keys_size = send.keys_at, send.keys_size
        return send, append, PyBytes_FromStringAndSize(text + send.key_at, send.key_size)
