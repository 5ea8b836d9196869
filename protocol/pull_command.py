"""PullCommand: a pull whose ext fields were decoded together with its outer fields, in one step.

This is for pulls what `SendCommand` is for sends in JSON: consumers that catch up send few other requests. MessagePack
headers are decoded in one step anyway (protocol.msgpack_header). The ext fields of a pull in the binary dialect are
read when the handler needs them. The compiled version, which also reads MessagePack, is protocol/compiled/pull.py.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from skylarkmq.protocol import compiled
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.send_command import SendCommand

H = TypeVar("H", bound=Header)


class PullCommand(SendCommand, gc=False, kw_only=True):
    """A pull in the common header layout. `pull_header` is its header. See RemotingCommand."""

    send_header: None = msgspec.field(name="(send_header)", default=None)
    pull_header: PullMessageHeader = msgspec.field(name="extFields")

    def header(self, header_type: type[H]) -> H:
        """See RemotingCommand. Returns the struct that was decoded with the frame if it has this type."""
        if type(self.pull_header) is header_type:
            return self.pull_header
        return super().header(header_type)


_compiled: Final = compiled.load("pull")
_DECODED: Final[frozenset[type]] = frozenset({PullCommand} if _compiled is None else {PullCommand, _compiled.Pull})


def decoded_pull(command: RemotingCommand) -> PullMessageHeader | None:
    """Return the header of a pull that was decoded together with its frame; None for any other command."""
    return command.header(PullMessageHeader) if type(command) in _DECODED else None


_decode: Final = msgspec.json.Decoder(PullCommand, strict=False).decode
DECODERS: Final[dict[bytes, Callable[[memoryview], SendCommand]]] = {b'{"code":11,"': _decode, b'{"code":361,': _decode}
"""The decoder of JSON headers, by their first bytes. See protocol.send_command."""
