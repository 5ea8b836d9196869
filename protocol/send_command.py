"""SendCommand: a send whose ext fields were decoded together with its outer fields, in one step.

Most requests to a broker are sends. If a send in standard JSON begins as clients usually write it, its outer fields and
ext fields are decoded in one step. Every other request, and every send that this step rejects, becomes a
`RemotingCommand` whose ext fields are decoded when the handler needs them. A SendCommand is a RemotingCommand too: it
keeps the received header, and `ext_fields` decodes the ext fields as text from it.

Sends in the other dialects are RemotingCommands whose `send_header` is set.

`send_header` is None in every command that is not a send.
"""

from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

import msgspec

from skylarkmq.protocol.codes import Flag, RequestCode
from skylarkmq.protocol.command import JSON, Internal, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.frame import Frame
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.serialize import decode_command

H = TypeVar("H", bound=Header)

START_BYTES: Final = 12
"""Number of bytes at the beginning of a header that select its decoder (DECODERS)."""

_RESPONSE: Final = Flag.RESPONSE


class SendCommand(RemotingCommand, gc=False):
    """A send in the common header layout. `send_header` is its header. See RemotingCommand."""

    raw_ext: Internal = msgspec.field(name="(raw)", default=msgspec.Raw())
    raw_header: Internal = msgspec.field(name="(header)", default=b"")
    send_header: Any = msgspec.field(name="extFields", default=None)

    def header(self, header_type: type[H]) -> H:
        """See RemotingCommand. Returns the struct that was decoded with the frame if it has this type."""
        if type(self.send_header) is header_type:
            return self.send_header
        self.ext_fields()
        return super().header(header_type)

    def ext_fields(self) -> dict[str, str]:
        """See RemotingCommand."""
        if self.ext is None:
            general = decode_command((self.dialect, self.raw_header, memoryview(b"")))
            self.ext = {} if general is None else general.ext_fields()
        return self.ext

    @property
    def ext_bytes(self) -> int:
        """See RemotingCommand."""
        return len(self.raw_header)

    def detached(self) -> Self:
        """See RemotingCommand."""
        self.body = bytes(self.body)
        self.raw_header = bytes(self.raw_header)
        return self

    def drop_payload(self) -> None:
        """See RemotingCommand."""
        super().drop_payload()
        self.raw_header = b""
        self.send_header = None


class _Send(SendCommand, gc=False, kw_only=True):
    send_header: SendMessageHeader = msgspec.field(name="extFields")


class _SendV2(SendCommand, gc=False, kw_only=True):
    send_header: SendMessageV2Header = msgspec.field(name="extFields")


DECODERS: Final[dict[bytes, Callable[[memoryview], SendCommand]]] = {
    b'{"code":310,': msgspec.json.Decoder(_SendV2, strict=False).decode,
    b'{"code":10,"': msgspec.json.Decoder(_Send, strict=False).decode,
}
"""The decoder of JSON headers, by their first bytes. Headers for which it raises ValueError or RecursionError, and
headers of responses, go to `decode_general`. The caller of a decoder sets `raw_header` and `body`."""


def decode_general(frame: Frame) -> RemotingCommand | None:
    """Return the same as `decode_command`, with the ext fields of sends in the other dialects decoded immediately."""
    command = decode_command(frame)
    if command is not None and command.dialect != JSON and command.send_header is None and not command.flag & _RESPONSE:
        header_type = _HEADERS.get(command.code)
        if header_type is not None:
            try:
                command.send_header = command.header(header_type)
            except RequestError:
                command.send_header = None  # `header` raises the error again when it is called
    return command


_HEADERS: Final[dict[int, type[Header]]] = {
    RequestCode.SEND_MESSAGE: SendMessageHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2Header,
}
