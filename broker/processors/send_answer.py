"""The answer to an accepted send, which is most of what a broker ever says, from one template.

JSON answers with plain ids are made by filling in bytes; everything else goes through the general encoder and comes out
as the same member by member. Source: docs/formats.md, "Send".
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from broker.processors.send_messages import PlainSend
from broker.store.append import Append, PutStatus
from protocol import compiled
from protocol.codes import RETRY_PREFIX, VERSION, Flag, LanguageCode, ResponseCode
from protocol.command import JSON, LANGUAGE, ROCKETMQ, RemotingCommand
from protocol.frame import encode_prefix
from protocol.headers.send import SendMessageResponseHeader
from protocol.message import PropertyName, property_value
from protocol.message_id import encode_offset_ids
from protocol.recall_handle import RecallHandle
from protocol.serialize import BINARY_FIXED, binary_entry, encode_command
from protocol.timers import OUT_MS

_PREFIXES: Final = tuple(encode_prefix(JSON, length, 0) for length in range(1024))
_LONGEST_FILLING: Final = 150  # what numbers and a unique key add to the template
_ONEWAY: Final = Flag.ONEWAY


class SendAnswers:
    """Answers of one broker: its region, trace switch and store host stand in all of them."""

    def __init__(self, region: str, *, trace_on: bool, store_host: bytes, broker_name: str = "") -> None:
        self._store_host = store_host
        self._broker_name = broker_name
        self.configure(region, trace_on=trace_on)

    def configure(self, region: str, *, trace_on: bool) -> None:
        """Answer with these from now on."""
        store_host = self._store_host
        self.ext = {"MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}
        pieces = _pieces(self.ext, store_host)
        escaped = [piece.replace(b"%", b"%%") for piece in pieces]
        self._plain = b"%016X".join(escaped[:2]) + b"%d" + b"%d".join(escaped[2:4]) + b"%s" + b"%d".join(escaped[4:])
        self._binary = _binary_pieces(self.ext, store_host)
        leaf = compiled.load("answers")
        self.stored_all: Callable[[Sequence[PlainSend]], tuple[bytes, list[PlainSend]]]
        """The frames that say where plain messages went, as `stored` makes them; and the sends that need another answer
        or none, because they are not stored, or are oneway."""
        self.stored_all = self._stored_all if leaf is None else leaf.Answers(pieces, PutStatus.PUT_OK).stored

    def __repr__(self) -> str:
        return f"<SendAnswers {self.ext}>"

    def message_ids(self, appends: Sequence[Append]) -> str:
        """The offset ids of records of this broker, joined by commas."""
        return _offset_ids(self._store_host, appends)

    def recall_handle(self, append: Append) -> str | None:
        """What a timer message is taken back with; None for any other, and for those of retry topics."""
        text = append.properties.decode("utf-8", "replace")
        out_ms, topic = property_value(text, OUT_MS), property_value(text, PropertyName.REAL_TOPIC)
        unique_key = property_value(text, PropertyName.UNIQ_KEY)
        if out_ms is None or topic is None or unique_key is None or topic.startswith(RETRY_PREFIX):
            return None
        return RecallHandle(topic, self._broker_name, str(int(out_ms) + 1), unique_key).encode()

    def stored(
        self, request: RemotingCommand, physical_offset: int, queue_id: int, queue_offset: int, unique_key: str
    ) -> bytes | None:
        """The frame that says where a message went; None if it is not the plain case."""
        key = unique_key.encode("utf-8", "replace")
        if request.dialect != JSON or not key.isalnum():
            return None
        header = self._plain % (physical_offset, queue_id, queue_offset, key, request.opaque)
        length = len(header)
        return (_PREFIXES[length] if length < 1024 else encode_prefix(JSON, length, 0)) + header

    def _stored_all(self, sends: Sequence[PlainSend]) -> tuple[bytes, list[PlainSend]]:
        template, prefixes, ok = self._plain, _PREFIXES, PutStatus.PUT_OK
        if len(template) + _LONGEST_FILLING > len(prefixes):
            return b"", list(sends)  # a region with a very long name
        parts: list[bytes] = []
        others: list[PlainSend] = []
        for send in sends:
            command, append, unique_key = send
            if append.status is not ok or command.flag & _ONEWAY or command.dialect != JSON:
                others.append(send)
                continue
            offset, queue_id, queue_offset = append.physical_offset, append.queue_id, append.queue_offset
            header = template % (offset, queue_id, queue_offset, unique_key, command.opaque)
            parts += (prefixes[len(header)], header)
        return b"".join(parts), others

    def stored_binary(self, sends: Sequence[PlainSend]) -> tuple[bytes, list[PlainSend]]:
        """As `stored_all`, for the binary dialect."""
        msg_id, queue_id_key, queue_offset_key, transaction_id = self._binary
        parts: list[bytes] = []
        others: list[PlainSend] = []
        for send in sends:
            command, append, unique_key = send
            if append.status is not PutStatus.PUT_OK or command.flag & _ONEWAY or command.dialect != ROCKETMQ:
                others.append(send)
                continue
            queue_id, queue_offset = b"%d" % append.queue_id, b"%d" % append.queue_offset
            fields = [msg_id, b"%016X" % append.physical_offset, queue_id_key, _length(queue_id), queue_id]
            fields += queue_offset_key, _length(queue_offset), queue_offset, transaction_id, _length(unique_key)
            ext = b"".join((*fields, unique_key))
            fixed = BINARY_FIXED.pack(0, LanguageCode.PYTHON, VERSION, command.opaque, Flag.RESPONSE, 0)
            parts += (encode_prefix(ROCKETMQ, len(fixed) + 4 + len(ext), 0), fixed, _length(ext), ext)
        return b"".join(parts), others

    def stored_general(
        self, request: RemotingCommand, code: ResponseCode, remark: str | None, header: SendMessageResponseHeader
    ) -> bytes:
        """The same for any dialect, any id, and the codes that say stored, but not flushed in time."""
        response = RemotingCommand.response(code, remark, self.ext | header.to_ext())
        return encode_command(response.answer_to(request))


def _pieces(ext: dict[str, str], store_host: bytes) -> list[bytes]:
    """An answer without physical offset, queue id, queue offset, unique key and opaque, which stand between these."""
    return [
        b'{"code":0,"extFields":%b,"msgId":"%b' % (msgspec.json.encode(ext)[:-1], store_host.hex().upper().encode()),
        b'","queueId":"',
        b'","queueOffset":"',
        b'","transactionId":"',
        b'"},"flag":%d,"language":"%b","opaque":' % (Flag.RESPONSE, LANGUAGE.encode()),
        b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION,
    ]


def _binary_pieces(ext: dict[str, str], store_host: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """The ext block up to the physical offset, and the keys of what follows, without the lengths of their values."""
    host = store_host.hex().upper()
    fixed = b"".join(binary_entry(key, value) for key, value in ext.items())
    msg_id = binary_entry("msgId", host + "0" * 16)[:-16]
    queue_id, queue_offset, unique_key = (binary_entry(k, "")[:-4] for k in ("queueId", "queueOffset", "transactionId"))
    return fixed + msg_id, queue_id, queue_offset, unique_key


def _plain_offset_ids(host: bytes, appends: Sequence[Append]) -> str:
    return encode_offset_ids(host, [append.physical_offset for append in appends])


_leaf = compiled.load("batch")
_offset_ids = _plain_offset_ids if _leaf is None else _leaf.offset_ids


def _length(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big")
