"""PullCommand: a pull whose header was decoded together with its outer fields, in one step.

What `SendCommand` is for sends in plain JSON, this is for pulls: consumers that catch up ask for little else. In
MessagePack that step is taken anyway (protocol.msgpack_header), and pulls in the binary dialect are read when somebody
asks. The compiled twin, which reads MessagePack too, is in protocol/compiled/pull.py.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.send_command import SendCommand

H = TypeVar("H", bound=Header)


class PullCommand(SendCommand, gc=False, kw_only=True):
    """A plain pull; `asked` is its header, and it is no send. See RemotingCommand."""

    sent: None = msgspec.field(name="(sent)", default=None)
    asked: PullMessageHeader = msgspec.field(name="extFields")

    def header(self, header_type: type[H]) -> H:
        """As RemotingCommand's: what was decoded already, or the ext fields as something else."""
        if type(self.asked) is header_type:
            return self.asked
        return super().header(header_type)


_decode: Final = msgspec.json.Decoder(PullCommand, strict=False).decode
DECODERS: Final[dict[bytes, Callable[[memoryview], SendCommand]]] = {b'{"code":11,"': _decode, b'{"code":361,': _decode}
"""As those of protocol.send_command."""
