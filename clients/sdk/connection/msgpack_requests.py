"""Sends and pulls in the MSGPACK dialect, as encoded frames.

As in the JSON templates (producing/send_requests.py, consuming/pull_requests.py), almost all bytes of a request are the
same for each request. The numbers that differ have a fixed width, so one `Struct` packs a header with its constants.
Tests compare the frames with the general decoder. Source: docs/reference/wire.md, "Header dialects".
"""

from struct import Struct
from typing import Any, Final

import msgpack

from skylarkmq.clients.sdk.messages.outgoing_message import Outgoing
from skylarkmq.protocol.codes import VERSION, Flag, LanguageCode, RequestCode
from skylarkmq.protocol.command import MSGPACK
from skylarkmq.protocol.frame import encode_prefix
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.headers.send import SendMessageHeader

SEND_BY_PLACE: Final = 1
PULL_BY_PLACE: Final = 2
_SEVEN: Final = b"\x97"
_I32: Final = b"\xd2"
_I64: Final = b"\xd3"
_I32_BYTE, _I64_BYTE, _STR16_BYTE = 0xD2, 0xD3, 0xDA
_WORD: Final = MSGPACK << 24
_LANGUAGE: Final = int(LanguageCode.PYTHON)


def _packed(*values: object) -> bytes:
    return b"".join(map(msgpack.packb, values))


class PackedSends:
    """Sends, or batches, of one producer group to one topic on one broker. Queue, flags, time and properties differ."""

    def __init__(self, code: int, header: SendMessageHeader, *, oneway: bool) -> None:
        outer = _SEVEN + _packed(int(code), int(Flag.ONEWAY) if oneway else 0, _LANGUAGE) + _I32
        places = (
            SEND_BY_PLACE, header.producer_group, header.topic, header.default_topic, header.default_topic_queue_nums,
        )  # fmt: skip
        middle = _packed(None, VERSION) + b"\x9f" + _packed(*places) + _I32
        self._tail = _packed(0, False, None, code == RequestCode.SEND_BATCH_MESSAGE, header.bname)
        self._outer, self._middle = outer, middle
        head = Struct(f">iI{len(outer)}si{len(middle)}siBiBqBiBH")
        self._head = head.pack
        self._header_bytes = head.size - 8 + len(self._tail)

    def frame(self, outgoing: Outgoing, queue_id: int, opaque: int) -> bytes:
        """Return the encoded request."""
        properties, body = outgoing.properties.encode(), outgoing.body
        size = len(properties)
        header_bytes = self._header_bytes + size
        head = self._head(
            header_bytes + 4 + len(body),
            _WORD | header_bytes,
            self._outer,
            opaque,
            self._middle,
            queue_id,
            _I32_BYTE,
            outgoing.sys_flag,
            _I64_BYTE,
            outgoing.born_ms,
            _I32_BYTE,
            outgoing.flag,
            _STR16_BYTE,
            size,
        )
        return b"".join((head, properties, self._tail, body))


class PackedPulls:
    """Pulls of one queue; only their two offsets differ."""

    def __init__(self, header: PullMessageHeader) -> None:
        outer = _SEVEN + _packed(int(RequestCode.PULL_MESSAGE), 0, _LANGUAGE) + _I32
        queue = PULL_BY_PLACE, header.consumer_group, header.topic, header.queue_id
        rest: list[Any] = [header.suspend_timeout_millis, header.sub_version, header.subscription]
        rest += header.expression_type, header.max_msg_bytes, header.request_source, header.bname
        middle = _packed(None, VERSION) + b"\x9f" + _packed(*queue) + _I64
        flags = _packed(header.max_msg_nums, int(header.sys_flag)) + _I64
        tail = _packed(*rest)
        length = len(outer) + 4 + len(middle) + 8 + len(flags) + 8 + len(tail)
        self._outer = encode_prefix(MSGPACK, length, 0) + outer
        self._middle, self._flags, self._tail = middle, flags, tail
        self._pack = Struct(f">{len(self._outer)}si{len(middle)}sq{len(flags)}sq{len(tail)}s").pack

    def frame(self, offset: int, commit_offset: int, opaque: int) -> bytes:
        """Return the encoded request."""
        return self._pack(self._outer, opaque, self._middle, offset, self._flags, commit_offset, self._tail)
