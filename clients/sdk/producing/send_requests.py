"""The sends of a producer group to a topic on a broker, as encoded frames.

All fields of a send except the fields of the message itself are the same for each message. So the JSON header is a
template with six placeholders; filling it takes a tenth of the time of encoding the header, and a test compares it with
the typed header. Brokers that announce MessagePack get another form (connection/msgpack_requests.py). Source:
docs/reference/wire.md, "Send".
"""

from typing import Any, Final

import msgspec

from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.connection.msgpack_requests import PackedSends
from skylarkmq.clients.sdk.messages.outgoing_message import Outgoing
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import JSON, MSGPACK, RemotingCommand
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.serialize import encode_header

_encode_text: Final = msgspec.json.Encoder().encode


class SendTemplate:
    """The send requests of one producer group to one topic on one broker."""

    def __init__(self, group: str, topic: str, broker_name: str, settings: ProducerSettings) -> None:
        self._group = group
        self._topic = topic
        self._broker_name = broker_name
        self._settings = settings
        self._single = self._template()
        self._packed: dict[tuple[bool, bool], PackedSends] = {}

    def __repr__(self) -> str:
        return f"<SendTemplate {self._topic}@{self._broker_name}>"

    def frame(
        self, outgoing: Outgoing, queue_id: int, opaque: int, dialect: int = JSON, *, oneway: bool = False
    ) -> bytes:
        """Return the encoded request, in JSON or MSGPACK."""
        if dialect == MSGPACK:
            packed = self._packed.get((outgoing.is_batch, oneway)) or self._pack(outgoing, oneway=oneway)
            return packed.frame(outgoing, queue_id, opaque)
        if outgoing.is_batch or oneway:
            header = encode_header(self.command(outgoing, queue_id, opaque, oneway=oneway))
        else:
            header = self._single % (
                queue_id,
                outgoing.sys_flag,
                outgoing.born_ms,
                outgoing.flag,
                _encode_text(outgoing.properties),
                opaque,
            )
        return encode_frame(JSON, header, outgoing.body)

    def command(self, outgoing: Outgoing, queue_id: int, opaque: int = 0, *, oneway: bool = False) -> RemotingCommand:
        """Return the same request as a command."""
        code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
        command = RemotingCommand.request(code, self._header(outgoing, queue_id), outgoing.body, oneway=oneway)
        command.opaque = opaque
        return command

    def _header(self, outgoing: Outgoing, queue_id: int) -> SendMessageHeader:
        header: SendMessageHeader = SendMessageV2Header(
            producer_group=self._group,
            topic=self._topic,
            default_topic=self._settings.default_topic,
            default_topic_queue_nums=self._settings.default_topic_queues,
            queue_id=queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=outgoing.born_ms,
            flag=outgoing.flag,
            properties=outgoing.properties,
            reconsume_times=0,
            unit_mode="false",
            batch="true" if outgoing.is_batch else "false",
            bname=self._broker_name,
        )
        return header

    def _pack(self, outgoing: Outgoing, *, oneway: bool) -> PackedSends:
        """Prepare the MSGPACK form of requests like this one."""
        code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
        packed = PackedSends(code, self._header(outgoing, 0), oneway=oneway)
        self._packed[outgoing.is_batch, oneway] = packed
        return packed

    def _template(self) -> bytes:
        """Return an encoded header with %-placeholders for the fields that differ.

        The markers of the fields contain a character that no topic, group or (quoted) broker name has in a header.
        """
        sample = Outgoing(
            self._topic, b"", _marker("properties"), "", _marker("born_ms"), _marker("sys_flag"), _marker("flag")
        )
        header = encode_header(self.command(sample, _marker("queue_id"))).replace(b"%", b"%%")
        for number in ("queue_id", "sys_flag", "born_ms", "flag"):
            header = header.replace(_encode_text(_marker(number))[1:-1], b"%d")
        return header.replace(_encode_text(_marker("properties")), b"%b").replace(b'"opaque":0,', b'"opaque":%d,')


def _marker(name: str) -> Any:
    return f"\x02{name}\x02"
