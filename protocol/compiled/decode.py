"""From the bytes of a read to commands, and from these to what is stored, in C.

`Decoder.decode` cuts a read into frames. A frame that is a plain send becomes a `Send` in one pass over its bytes, a
plain pull a `Pull` (pull.py); every other frame goes to the general decoder. `Sends.plain` makes of Sends what is put
into the store.

A send in JSON is plain, here, if its header is

    {"code":310, ... "extFields":{...} ... }      310 or 10 first, no white space, each member once or the last one wins

with nothing but printable ASCII in its texts (escapes in the properties only: one byte long, or \\u00xx below 80),
numbers as integers or their text, no null, all required fields there, no batch; and if its properties are entries of
which none has an empty part, or a name that wants a look, and one is a UNIQ_KEY of letters and digits. In the binary
dialect, where there are no escapes and all is text, the same fields must be there. In the MSGPACK dialect they stand by
their place (packed.py).

Whatever is not known to be so is not plain. So all that can be read here is read alike by the general decoder, and what
is wrong is found by it alone. The interpreted twins: protocol.send_command, broker.processors.send.stored_properties.

Nothing here reads behind the end of its input: each loop is bounded by it, and a frame is looked at when it is whole.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32
from cython.cimports.skylarkmq.protocol.compiled.header import Found, read_binary_header, read_header
from cython.cimports.skylarkmq.protocol.compiled.packed import read_packed_header
from cython.cimports.skylarkmq.protocol.compiled.properties import Text
from cython.cimports.skylarkmq.protocol.compiled.pull import Pulls, Words
from cython.cimports.skylarkmq.protocol.compiled.record import Append

PREFIX = cython.declare(cython.Py_ssize_t, 8)
MSGPACK = cython.declare(cython.int, 0x4D)


@cython.final
@cython.no_gc
@cython.freelist(512)
@cython.cclass
class Send:
    """A plain send. It is used like a RemotingCommand; what only few ask for is read by the general decoder then."""

    @cython.cfunc
    def general(self):
        """The same command as the general decoder has it."""
        if self.command is None:
            self.command = self.decode((self.dialect, self.data[self.header_at : self.header_end], self.body))
        return self.command

    @property
    def body(self):
        """The bytes behind the header, where they were received."""
        if self.held_body is None:
            self.held_body = self.data[self.header_end : self.header_end + self.body_size]
        return self.held_body

    @body.setter
    def body(self, body):
        self.held_body = body
        self.body_at = cython.NULL

    @property
    def sent(self):
        """Where topic and queue id are found."""
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
        """With memory of its own."""
        self.command = None
        self.body = bytes(self.body)
        self.data = bytes(self.data[self.header_at : self.header_end])
        self.header_end -= self.header_at
        self.header_at = 0
        return self

    def let_go(self):
        """Without anything of what was received but the numbers."""
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
    """Cuts reads into commands. `general(frame)` decodes one frame, `illegal(length, word, limit)` makes an error,
    `pull_header` is the type of pulls' headers."""

    general = cython.declare(object)
    illegal = cython.declare(object)
    pulls = cython.declare(Pulls)
    topics = cython.declare(Words)

    def __init__(self, general, illegal, pull_header):
        self.general = general
        self.illegal = illegal
        self.pulls = Pulls(general, pull_header)
        self.topics = Words()

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
                command = self.plain_send(data, bytes_, start + PREFIX, body_at, frame_end, word >> 24)
                if command is None:
                    command = self.pulls.pull_in(data, bytes_, start + PREFIX, body_at, frame_end, word >> 24)
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
        dialect: cython.int,
    ):
        """The Send in a frame; None if it is none."""
        found: Found
        begin: Text = bytes_ + header_at
        if dialect == MSGPACK:
            if not read_packed_header(begin, bytes_ + body_at, cython.address(found)):
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
        send.topic = self.topics.of(found.topic, found.topic_size)
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
    """Makes what is stored of a Send. `pending` is the status that it begins with, `cluster_entry` closes the
    properties, `general` makes the same of commands that are no Sends."""

    pending = cython.declare(object)  # the status of an append that is not decided
    cluster_entry = cython.declare(bytes)
    general = cython.declare(object)

    def __init__(self, pending, cluster_entry: bytes, general):
        self.pending = pending
        self.cluster_entry = cluster_entry
        self.general = general

    def plain(self, commands, at: cython.Py_ssize_t, queues: dict, host: bytes):
        """(command, append, unique key) of each plain send from `at` on; `queues`: how many a topic has."""
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
        append.held_body = send.data if send.body_at != cython.NULL else send.held_body
        append.body_at = send.body_at
        append.body_size = send.body_size
        append.held_properties = properties
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
