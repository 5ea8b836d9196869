"""The response to an accepted send, from one template per dialect: the most frequent response of a broker.

Responses with ordinary ids come from templates; all others come from the general encoder, with the same fields. Source:
docs/reference/wire.md, "Send".
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

import msgspec

from skylarkmq.broker.processors.send.messages import Batch, FastPathSend
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import RETRY_PREFIX, VERSION, Flag, LanguageCode, ResponseCode
from skylarkmq.protocol.command import JSON, LANGUAGE, MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.decimals import decimal
from skylarkmq.protocol.frame import encode_prefix
from skylarkmq.protocol.headers.send import SendMessageResponseHeader
from skylarkmq.protocol.message import PropertyName, property_value
from skylarkmq.protocol.message_id import encode_offset_ids
from skylarkmq.protocol.msgpack_header import encode_positional
from skylarkmq.protocol.recall_handle import RecallHandle
from skylarkmq.protocol.serialize import BINARY_FIXED, binary_entry, encode_command
from skylarkmq.protocol.timers import OUT_MS

_PREFIXES: Final = tuple(encode_prefix(JSON, length, 0) for length in range(1024))
_LONGEST_FILLING: Final = 150  # bytes that numbers and a unique key add to the template
_ONEWAY: Final = Flag.ONEWAY
_i32: Final = Struct(">i").pack
_i64: Final = Struct(">q").pack


class SendResponses:
    """Encodes the responses of one broker, which all contain its region, trace switch and store host."""

    def __init__(self, region: str, *, trace_on: bool, store_host: bytes, broker_name: str = "") -> None:
        self._store_host = store_host
        self._broker_name = broker_name
        self.configure(region, trace_on=trace_on)

    def configure(self, region: str, *, trace_on: bool) -> None:
        """Set region and trace switch of the responses that follow."""
        store_host = self._store_host
        self.ext = {"MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}
        pieces = _pieces(self.ext, store_host)
        escaped = [piece.replace(b"%", b"%%") for piece in pieces]
        begin, queue_id, queue_offset, self._key, end, after = escaped
        offsets = queue_id + b"%d" + queue_offset + b"%d"
        self._template = begin + b"%016X" + offsets + self._key + b"%s" + end + b"%d" + after
        self._batch = begin + b"%b" + offsets + b"%b" + end + b"%d" + after
        self._binary = binary_pieces = _binary_pieces(self.ext, store_host)
        self._packed = packed_pieces = _packed_pieces(self.ext, store_host)
        self._packed_struct = Struct(">iI{}si{}s16s{}si{}sq{}sB".format(*map(len, packed_pieces[:5])))
        self._parts: dict[int, Callable[[FastPathSend], tuple[bytes, ...]]]
        self._parts = {ROCKETMQ: self._binary_parts, MSGPACK: self._packed_parts}
        compiled_responses, ok = compiled.load("send_responses"), PutStatus.PUT_OK
        self.stored_all: Callable[[Sequence[FastPathSend]], tuple[bytes, list[FastPathSend]]]
        """Return the response frames of fast-path sends, as `stored` encodes them, and the sends that need another
        response or none: those that are not stored, or are oneway."""
        self.stored_all = (
            self._stored_all
            if compiled_responses is None
            else compiled_responses.SendResponses(pieces, binary_pieces, packed_pieces, ok).encode_stored
        )

    def __repr__(self) -> str:
        return f"<SendResponses {self.ext}>"

    def message_ids(self, batch: Batch) -> str:
        """Return the offset ids of records of this broker, joined by commas."""
        return _offset_ids(self._store_host, batch)

    def recall_handle(self, append: Append) -> str | None:
        """Return the handle that recalls a timer message; None for other messages, and for messages of retry topics."""
        text = append.properties.decode("utf-8", "replace")
        out_ms, topic = decimal(property_value(text, OUT_MS)), property_value(text, PropertyName.REAL_TOPIC)
        unique_key = append.keys[0].decode() if append.keys else property_value(text, PropertyName.UNIQ_KEY)
        if out_ms is None or topic is None or unique_key is None or topic.startswith(RETRY_PREFIX):
            return None
        return RecallHandle(topic, self._broker_name, str(out_ms + 1), unique_key).encode()

    def stored(
        self,
        request: RemotingCommand,
        physical_offset: int,
        queue_id: int,
        queue_offset: int,
        unique_key: str,
        recall_handle: str | None = None,
    ) -> bytes | None:
        """Return the response frame of a stored message; None if the template does not fit."""
        key = unique_key.encode("utf-8", "replace")
        if request.dialect != JSON or not key.isalnum():
            return None
        if recall_handle is not None:
            key = b'%b","recallHandle":"%b' % (key, recall_handle.encode())
        return _framed(self._template % (physical_offset, queue_id, queue_offset, key, request.opaque))

    def stored_batch(self, request: RemotingCommand, batch: Batch, unique_key: str) -> bytes | None:
        """Return the same for a batch, with the offset ids of all its messages; a batch seldom has a unique key of its
        own."""
        key = unique_key.encode("utf-8", "replace")
        if request.dialect != JSON or not (key.isalnum() or not key):
            return None
        first = batch[0]
        ids = self.message_ids(batch)[2 * len(self._store_host) :].encode()
        key = self._key + key if key else key
        return _framed(self._batch % (ids, first.queue_id, first.queue_offset, key, request.opaque))

    def _stored_all(self, sends: Sequence[FastPathSend]) -> tuple[bytes, list[FastPathSend]]:
        template, prefixes, ok = self._template, _PREFIXES, PutStatus.PUT_OK
        if len(template) + _LONGEST_FILLING > len(prefixes):
            return b"", list(sends)  # the region has a very long name
        parts: list[bytes] = []
        others: list[FastPathSend] = []
        for send in sends:
            command, append, unique_key = send
            if append.status is not ok or command.flag & _ONEWAY:
                others.append(send)
                continue
            if command.dialect != JSON:
                parts += self._parts[command.dialect](send)
                continue
            offset, queue_id, queue_offset = append.physical_offset, append.queue_id, append.queue_offset
            header = template % (offset, queue_id, queue_offset, unique_key, command.opaque)
            parts += (prefixes[len(header)], header)
        return b"".join(parts), others

    def _binary_parts(self, send: FastPathSend) -> tuple[bytes, ...]:
        command, append, unique_key = send
        code, flag, msg_id, queue_id_key, queue_offset_key, transaction_id = self._binary
        queue_id, queue_offset = b"%d" % append.queue_id, b"%d" % append.queue_offset
        fields = [msg_id, b"%016X" % append.physical_offset, queue_id_key, _length(queue_id), queue_id]
        fields += queue_offset_key, _length(queue_offset), queue_offset, transaction_id, _length(unique_key)
        ext = b"".join((*fields, unique_key))
        prefix = encode_prefix(ROCKETMQ, BINARY_FIXED.size + 4 + len(ext), 0)
        return prefix, code, _i32(command.opaque), flag, _length(ext), ext

    def _packed_parts(self, send: FastPathSend) -> tuple[bytes, ...]:
        command, append, unique_key = send
        outer, id_begin, queue_id, queue_offset, key, after = self._packed
        size = self._packed_struct.size + len(unique_key) + len(after)
        head = self._packed_struct.pack(
            size - 4,
            MSGPACK << 24 | size - 8,
            outer,
            command.opaque,
            id_begin,
            b"%016X" % append.physical_offset,
            queue_id,
            append.queue_id,
            queue_offset,
            append.queue_offset,
            key,
            len(unique_key),
        )
        return head, unique_key, after

    def stored_general(
        self, request: RemotingCommand, code: ResponseCode, remark: str | None, header: SendMessageResponseHeader
    ) -> bytes:
        """Return the same for any dialect, any id, and the codes of messages stored but not flushed in time."""
        response = RemotingCommand.response(code, remark, self.ext | header.to_ext())
        return encode_command(response.in_response_to(request))


def _framed(header: bytes) -> bytes:
    length = len(header)
    return (_PREFIXES[length] if length < len(_PREFIXES) else encode_prefix(JSON, length, 0)) + header


def _pieces(ext: dict[str, str], store_host: bytes) -> list[bytes]:
    """Return the parts of a JSON response between physical offset, queue id, queue offset, unique key and opaque."""
    return [
        b'{"code":0,"extFields":%b,"msgId":"%b' % (msgspec.json.encode(ext)[:-1], store_host.hex().upper().encode()),
        b'","queueId":"',
        b'","queueOffset":"',
        b'","transactionId":"',
        b'"},"flag":%d,"language":"%b","opaque":' % (Flag.RESPONSE, LANGUAGE.encode()),
        b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION,
    ]


def _binary_pieces(ext: dict[str, str], store_host: bytes) -> list[bytes]:
    """Return the parts of a binary response: the bytes before the opaque, from there to the ext block, the ext block up
    to the physical offset, and the keys of the following entries without the lengths of their values."""
    outer = BINARY_FIXED.pack(0, LanguageCode.PYTHON, VERSION, 0, Flag.RESPONSE, 0)
    host = store_host.hex().upper()
    fixed = b"".join(binary_entry(key, value) for key, value in ext.items())
    msg_id = binary_entry("msgId", host + "0" * 16)[:-16]
    queue_id, queue_offset, unique_key = (binary_entry(k, "")[:-4] for k in ("queueId", "queueOffset", "transactionId"))
    return [outer[:5], outer[9:], fixed + msg_id, queue_id, queue_offset, unique_key]


def _packed_pieces(ext: dict[str, str], store_host: bytes) -> list[bytes]:
    """Return the parts of a MessagePack response by position, between opaque, physical offset, queue id, queue offset,
    and unique key with its length, in this order."""
    response = RemotingCommand.response()
    response.opaque, queue_id, queue_offset, physical_offset = -(2**31), 1 - 2**31, -(2**63), "-" * 16
    message_id = store_host.hex().upper() + physical_offset
    header = SendMessageResponseHeader(message_id, queue_id, queue_offset, "k" * 64, None, *ext.values())
    rest = encode_positional(response, header)
    pieces = []
    for number in (_i32(response.opaque), physical_offset.encode(), _i32(queue_id), _i64(queue_offset), b"\x40"):
        before, _, rest = rest.partition(number)
        pieces.append(before)
    return [*pieces, rest[64:]]


def _python_offset_ids(host: bytes, appends: Sequence[Append]) -> str:
    return encode_offset_ids(host, [append.physical_offset for append in appends])


_compiled_batch = compiled.load("batch")
_offset_ids = _python_offset_ids if _compiled_batch is None else _compiled_batch.offset_ids


def _length(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big")
