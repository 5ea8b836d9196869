"""The MSGPACK header dialect (0x4D), used only between Skylark's broker and SDK: a header is one MessagePack array.

    [code, flag, language, opaque, remark, version, ext]

    code, flag, opaque, version   integers of 32 bits
    language                      the ordinal of the language
    remark                        text or nil
    ext                           map of text to text, or nil; or an array with positional fields:

    [1, a, b ... n]               a send (LAYOUTS), [2, ...] a pull, [3, ...] and [4, ...] their responses

Positional fields are integers, texts or booleans, or nil if absent; fields missing at the end are absent too. In both
arrays, members after the known ones are ignored, so that later versions can add some. The broker announces the dialect
in its response to a heartbeat and nowhere else. A client must not use the dialect before that announcement.

Nearly every header is decoded in one step, positional fields directly into their struct (`PackedCommand`). A header
that this step rejects goes to the general reader (`decode_general`), which raises ProtocolError for anything that is
not exactly a header. Lengths cannot exceed the bytes of the header, and both libraries limit nesting, so the cost of
hostile bytes is bounded by their own length.

Source: docs/reference/wire.md, "Header dialects".
"""

from typing import Any, Final, Self, TypeAlias, TypeVar, cast

import msgpack
import msgspec

from skylarkmq.protocol.codes import Flag, LanguageCode, RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.headers.fields import Header, Int32
from skylarkmq.protocol.headers.pull import PullMessageHeader, PullMessageResponseHeader
from skylarkmq.protocol.headers.send import SendMessageResponseHeader, SendMessageV2Header

H = TypeVar("H", bound=Header)

ANNOUNCED_BY: Final = "SKYLARK_SERIALIZE"
"""The ext field of a heartbeat response that announces the dialect."""
ANNOUNCED_AS: Final = "MSGPACK"

LAYOUTS: Final[dict[int, type[Header]]] = {
    1: SendMessageV2Header,
    2: PullMessageHeader,
    3: SendMessageResponseHeader,
    4: PullMessageResponseHeader,
}
"""The headers with positional fields, by the number that precedes the fields."""


def _positional(number: int) -> Any:
    base = LAYOUTS[number]
    return msgspec.defstruct(
        f"Placed{base.__name__}", [], bases=(base,), module=__name__, gc=False, array_like=True, tag=number
    )


_POSITIONAL: Final[dict[type[Header], type[Header]]] = {base: _positional(number) for number, base in LAYOUTS.items()}
_Send, _Pull, _Sent, _Pulled = (_POSITIONAL[base] for base in LAYOUTS.values())
_Ext: TypeAlias = _Send | _Pull | _Sent | _Pulled | dict[str, str] | None  # type: ignore[valid-type]  # defined above


class PackedCommand(RemotingCommand, gc=False, array_like=True):
    """A command whose header was decoded in one step; `raw_ext` is the decoded ext value. See RemotingCommand."""

    language: Int32 = 0
    raw_ext: _Ext = None  # type: ignore[assignment]  # decoded; RemotingCommand keeps JSON text here

    def header(self, header_type: type[H]) -> H:
        """See RemotingCommand. Returns the struct that was decoded with the frame if it has this type."""
        positional: Any = self.raw_ext
        if type(positional) is _POSITIONAL.get(header_type):
            return cast(H, positional)  # an instance of a subclass
        self.ext_fields()
        return super().header(header_type)

    def ext_fields(self) -> dict[str, str]:
        """See RemotingCommand."""
        if self.ext is None:
            positional: Any = self.raw_ext
            self.ext = {} if positional is None else positional.to_ext()
        return self.ext

    @property
    def ext_bytes(self) -> int:
        """See RemotingCommand."""
        return sum(map(len, self.ext_fields().values()))

    def detached(self) -> Self:
        """See RemotingCommand. Only the body is a view."""
        self.body = bytes(self.body)
        return self

    def drop_payload(self) -> None:
        """See RemotingCommand."""
        self.raw_ext = None
        super().drop_payload()
        self.send_header = None


class _Header(msgspec.Struct, array_like=True, gc=False):
    code: Int32
    flag: Int32
    language: Int32
    opaque: Int32
    remark: str | None
    version: Int32
    ext: dict[str, str] | list[Any] | None


_SEVEN: Final = 0x97
_SEND: Final = RequestCode.SEND_MESSAGE_V2
_RESPONSE: Final = Flag.RESPONSE
_decode_usual: Final = msgspec.msgpack.Decoder(PackedCommand).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_pack: Final = msgpack.Packer(autoreset=True).pack
_NOT_READABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)
_NAMES: Final = {
    number: tuple(field.encode_name for field in msgspec.structs.fields(base)) for number, base in LAYOUTS.items()
}
_DEFAULTS: Final[dict[int, dict[str, str]]] = {
    number: {f.encode_name: f.default for f in msgspec.structs.fields(base) if isinstance(f.default, str)}
    for number, base in LAYOUTS.items()
}


def decode_msgpack(header: memoryview) -> RemotingCommand:
    """Return the command in `header`, without its body. Raises ProtocolError if the header is invalid."""
    if header and header[0] == _SEVEN:
        try:
            command = _decode_usual(header)
        except (ValueError, RecursionError):  # msgspec.DecodeError is a ValueError
            return decode_general(header)
        positional: Any = command.raw_ext
        if type(positional) is dict:
            command.ext, command.raw_ext = positional, None
        elif type(positional) is _Send and command.code == _SEND and not command.flag & _RESPONSE:
            command.send_header = positional
        return command
    return decode_general(header)


def decode_general(header: memoryview) -> RemotingCommand:
    """Return the command in any valid header, with the ext fields as text by name."""
    try:
        unpacked: Any = msgpack.unpackb(header, strict_map_key=True)
        known = msgspec.convert(unpacked, _Header)
    except _NOT_READABLE as error:  # mostly ValueErrors, but not for all values
        raise ProtocolError(f"msgpack header not readable: {error}") from error
    return RemotingCommand(
        code=known.code,
        flag=known.flag,
        language=known.language,
        opaque=known.opaque,
        remark=known.remark,
        version=known.version,
        ext=_fields_by_name(known.ext) if isinstance(known.ext, list) else known.ext or {},
    )


def _fields_by_name(positional: list[Any]) -> dict[str, str]:
    """Return positional ext fields as text by name."""
    names = _NAMES.get(positional[0]) if positional and type(positional[0]) is int else None
    if names is None:
        raise ProtocolError("msgpack header not readable: fields of no known layout")
    given = {name: _text(value) for name, value in zip(names, positional[1:], strict=False) if value is not None}
    return _DEFAULTS[positional[0]] | given


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise ProtocolError(f"msgpack header not readable: a field is {type(value).__name__}")


def encode_msgpack(command: RemotingCommand) -> bytes:
    """Return the header of a command, with its ext fields by name."""
    ext = command.ext_fields() or None
    packed: bytes = _pack(
        (command.code, command.flag, _language(command), command.opaque, command.remark, command.version, ext)
    )
    return packed


def encode_positional(command: RemotingCommand, header: Header) -> bytes:
    """Return the header of a command with positional ext fields, taken from `header` (a type in LAYOUTS)."""
    base = type(header)
    number = next(number for number, known in LAYOUTS.items() if known is base)
    values = [getattr(header, name) for name in base.__struct_fields__]
    while values and values[-1] is None:
        values.pop()
    language = _language(command)
    outer = command.code, command.flag, language, command.opaque, command.remark, command.version
    return _encode((*outer, [number, *values]))


def _language(command: RemotingCommand) -> int:
    language = command.language_code
    return int(LanguageCode.OTHER if language is None else language)
