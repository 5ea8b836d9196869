"""SendCommand: a send whose header was decoded together with its outer fields, in one step.

Sends are most of what a broker reads. Of those in plain JSON that begin as clients write them, outer fields and ext
fields are decoded at once; every other request, and every send that this refuses, is a `RemotingCommand` whose header
is read when somebody asks. A SendCommand is one too: whoever wants the ext fields as text gets them, from the received
header, which is kept for that.

Sends in the other dialects are RemotingCommands with a header.

`sent` is None in every command that is no such send.
"""

from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

import msgspec

from skylarkmq.protocol.codes import Flag, RequestCode
from skylarkmq.protocol.command import JSON, Own, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.frame import Frame
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.serialize import decode_command

H = TypeVar("H", bound=Header)

START_BYTES: Final = 12
"""So many bytes of a header tell whether it may be one of these."""

_RESPONSE: Final = Flag.RESPONSE


class SendCommand(RemotingCommand, gc=False):
    """A plain send; `sent` is its header. See RemotingCommand."""

    raw_ext: Own = msgspec.field(name="(raw)", default=msgspec.Raw())
    raw_header: Own = msgspec.field(name="(header)", default=b"")
    sent: Any = msgspec.field(name="extFields", default=None)

    def header(self, header_type: type[H]) -> H:
        """As RemotingCommand's: what was decoded already, or the ext fields as something else."""
        if type(self.sent) is header_type:
            return self.sent
        self.ext_fields()
        return super().header(header_type)

    def ext_fields(self) -> dict[str, str]:
        """As RemotingCommand's."""
        if self.ext is None:
            general = decode_command((self.dialect, self.raw_header, memoryview(b"")))
            self.ext = {} if general is None else general.ext_fields()
        return self.ext

    @property
    def ext_bytes(self) -> int:
        """As RemotingCommand's."""
        return len(self.raw_header)

    def detached(self) -> Self:
        """As RemotingCommand's."""
        self.body = bytes(self.body)
        self.raw_header = bytes(self.raw_header)
        return self

    def let_go(self) -> None:
        """As RemotingCommand's."""
        super().let_go()
        self.raw_header = b""
        self.sent = None


class _Send(SendCommand, gc=False, kw_only=True):
    sent: SendMessageHeader = msgspec.field(name="extFields")


class _SendV2(SendCommand, gc=False, kw_only=True):
    sent: SendMessageV2Header = msgspec.field(name="extFields")


DECODERS: Final[dict[bytes, Callable[[memoryview], SendCommand]]] = {
    b'{"code":310,': msgspec.json.Decoder(_SendV2, strict=False).decode,
    b'{"code":10,"': msgspec.json.Decoder(_Send, strict=False).decode,
}
"""The decoder of JSON headers that begin so. What it raises ValueError or RecursionError for, and what then is an
answer, is for `decode_general`. Whoever decodes sets `raw_header` and `body`."""


def decode_general(frame: Frame) -> RemotingCommand | None:
    """What `decode_command` gives; sends in the other dialects have their header read at once too."""
    command = decode_command(frame)
    if command is not None and command.dialect != JSON and command.sent is None and not command.flag & _RESPONSE:
        header_type = _HEADERS.get(command.code)
        if header_type is not None:
            try:
                command.sent = command.header(header_type)
            except RequestError:
                command.sent = None  # whoever asks for the header will be told
    return command


_HEADERS: Final[dict[int, type[Header]]] = {
    RequestCode.SEND_MESSAGE: SendMessageHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2Header,
}
