"""The MSGPACK header dialect (0x4D), which only our own broker and SDK speak: a header as one MessagePack array.

    [code, language, version, opaque, flag, remark, ext]

    code, version, opaque, flag   integers of 32 bits
    language                      its number
    remark                        text or nil
    ext                           map of text to text, or nil

Members behind these are ignored, so that there may be more one day. A broker says that it knows the dialect in its
answer to a heartbeat, and nowhere else: who has not been told does not use it.

Whatever is not exactly that is no header. Lengths cannot claim more than the header has bytes, and the library limits
the nesting of what it reads, so hostile bytes cost no more than their own length.

Source: docs/formats.md, "Header dialects".
"""

from typing import Any, Final

import msgpack
import msgspec

from protocol.codes import LanguageCode
from protocol.command import RemotingCommand
from protocol.errors import ProtocolError
from protocol.headers.fields import Int32

ANNOUNCED_BY: Final = "SKYLARK_SERIALIZE"
"""The ext field of a heartbeat's answer."""
ANNOUNCED_AS: Final = "MSGPACK"


class _Header(msgspec.Struct, array_like=True, gc=False):
    code: Int32
    language: Int32
    version: Int32
    opaque: Int32
    flag: Int32
    remark: str | None
    ext: dict[str, str] | None


_pack: Final = msgpack.Packer(autoreset=True).pack
_NOT_READABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)


def decode_msgpack(header: memoryview) -> RemotingCommand:
    """The command without its body. ProtocolError if `header` is none."""
    try:
        unpacked: Any = msgpack.unpackb(header, strict_map_key=True)
        known = msgspec.convert(unpacked, _Header)
    except _NOT_READABLE as error:  # what msgpack and msgspec raise are ValueErrors, but for odd values
        raise ProtocolError(f"msgpack header not readable: {error}") from error
    return RemotingCommand(
        code=known.code,
        flag=known.flag,
        language=known.language,
        opaque=known.opaque,
        remark=known.remark,
        version=known.version,
        ext=known.ext or {},
    )


def encode_msgpack(command: RemotingCommand) -> bytes:
    """The header of a command."""
    language = command.language_code
    number = int(LanguageCode.OTHER if language is None else language)
    ext = command.ext_fields() or None
    packed: bytes = _pack((command.code, number, command.version, command.opaque, command.flag, command.remark, ext))
    return packed
