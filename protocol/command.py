"""RemotingCommand: one request or response, in either direction, in any header dialect.

The outer fields (code, opaque, flag ...) are decoded immediately. The ext fields stay in their received form, JSON text
or a map, until a caller asks for a type: `command.header(SendMessageHeader)`. The handler of a request code is the only
code that needs the header type of that request, so there is no table of types by code. Responses are read the same way:
the caller has sent the request and has the type of the response. The received text stays available for signatures and
logs.

Reading a header follows RocketMQ's own reader (docs/reference/wire.md, "Reading ext fields"): numbers and booleans are
accepted as JSON values and as text, unknown keys are ignored, and null counts as absent. msgspec decodes the common
case directly into the struct. A header that msgspec rejects goes through the tolerant reader before it counts as an
error.

A received `body` (and the raw ext text) is a view into the receive buffer and is valid until the handler returns.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeAlias, TypeVar

import msgspec

from skylarkmq.protocol import javajson
from skylarkmq.protocol.codes import VERSION, Flag, LanguageCode, ResponseCode
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.headers.fields import Header, Int32

H = TypeVar("H", bound=Header)

JSON: Final = 0
ROCKETMQ: Final = 1
MSGPACK: Final = 0x4D
LANGUAGE: Final = LanguageCode.PYTHON.name
NO_RESPONSE_REMARK: Final = "not set any response code"

if TYPE_CHECKING:
    Internal: TypeAlias = Any
    InternalOrNone: TypeAlias = Any
else:

    class Internal:
        """Type of a field that no JSON value can fill: the JSON decoder rejects a header with a member of that name."""

    InternalOrNone = Internal | None


InternalInt = Annotated[int, msgspec.Meta(gt=0, lt=0)]
InternalText = Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=0)]
"""The same for numbers and for maps of text. Only the decoder checks these bounds, and no value satisfies them."""

_NOTHING: Final = msgspec.Raw()
_NO_EXT: Final = (b"", b"null", b'""')


class RemotingCommand(msgspec.Struct, gc=False):
    """One decoded frame.

    The struct is also the target of the JSON decoder. The last four fields are not members of a header. Their types
    prevent the decoder from filling them: a header with a member of that name, such as `{"(send_header)":5}`, goes to
    the tolerant reader, which ignores that member like any unknown member.
    """

    code: Int32
    flag: Int32 = 0
    language: Any = None
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0
    raw_ext: msgspec.Raw = msgspec.field(name="extFields", default=msgspec.Raw())
    ext: InternalText | None = msgspec.field(name="(ext)", default=None)
    body: Internal = msgspec.field(name="(body)", default=b"")
    dialect: InternalInt = msgspec.field(name="(dialect)", default=JSON)
    send_header: InternalOrNone = msgspec.field(name="(send_header)", default=None)  # protocol.send_command

    @classmethod
    def request(cls, code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False) -> Self:
        """Return a new request. The connection that sends it assigns the opaque."""
        ext = None if header is None else header.to_ext()
        flag = Flag.ONEWAY if oneway else 0
        return cls(code=code, flag=flag, language=LANGUAGE, version=VERSION, ext=ext, body=body)

    @classmethod
    def response(
        cls,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Self:
        """Return a new response; `in_response_to` sets the opaque and the dialect of the request."""
        fields = ext.to_ext() if isinstance(ext, Header) else None if ext is None else dict(ext)
        return cls(
            code=int(code), flag=Flag.RESPONSE, language=LANGUAGE, version=VERSION, remark=remark, ext=fields, body=body
        )

    def in_response_to(self, request: "RemotingCommand") -> Self:
        """Set the opaque and the dialect of `request`; return this response."""
        self.opaque = request.opaque
        self.dialect = request.dialect
        return self

    def detached(self) -> Self:
        """Copy the body and the ext fields out of the receive buffer, so the command outlives the event-loop iteration
        that received it; return this command."""
        self.body = bytes(self.body)
        if self.ext is None:
            self.raw_ext = self.raw_ext.copy()
        return self

    def drop_payload(self) -> None:
        """Drop the body and the received ext fields. Afterward only the outer fields may be used."""
        self.body = b""
        self.raw_ext = _NOTHING
        self.ext = self.ext or {}

    @property
    def ext_bytes(self) -> int:
        """Memory of the received ext fields, in bytes."""
        return len(self.raw_ext) if self.ext is None else sum(map(len, self.ext.values()))

    @property
    def is_response(self) -> bool:
        """Whether this is a response to a request of ours."""
        return bool(self.flag & Flag.RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the requester expects no response, not even an error."""
        return bool(self.flag & Flag.ONEWAY)

    @property
    def language_code(self) -> LanguageCode | None:
        """The peer's language, from its name or its ordinal; None if unknown."""
        if isinstance(self.language, str):
            return LanguageCode.__members__.get(self.language)
        known = isinstance(self.language, int) and self.language in LanguageCode._value2member_map_
        return LanguageCode(self.language) if known else None

    def header(self, header_type: type[H]) -> H:
        """Return the ext fields as `header_type`.

        Raises RequestError(SYSTEM_ERROR) if a required field is missing or unreadable.
        """
        if self.ext is None:
            try:
                return _json_decoder(header_type).decode(self.raw_ext)
            except (ValueError, RecursionError):
                pass  # not the common case: numbers for text, nulls, single quotes ... or an invalid header
        try:
            return msgspec.convert(self.ext_fields(), header_type, strict=False)
        except msgspec.ValidationError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"request header not readable: {error}") from error

    def ext_fields(self) -> dict[str, str]:
        """Return the ext fields as text by name; empty if there are none. Raises ProtocolError if they are invalid."""
        if self.ext is None:
            self.ext = parse_ext(bytes(self.raw_ext))
        return self.ext


_json_decoders: dict[type[Header], msgspec.json.Decoder[Any]] = {}


def _json_decoder(header_type: type[H]) -> msgspec.json.Decoder[H]:
    decoder = _json_decoders.get(header_type)
    if decoder is None:
        decoder = _json_decoders[header_type] = msgspec.json.Decoder(header_type, strict=False)
    return decoder


_decode_texts: Final = msgspec.json.Decoder(dict[str, str]).decode


def parse_ext(text: bytes) -> dict[str, str]:
    """Return the ext fields in a JSON text. The tolerant reader reads everything but a map of text to text."""
    if text in _NO_EXT:
        return {}
    try:
        return _decode_texts(text)
    except (ValueError, RecursionError):
        pass  # not the common case, as above
    try:
        return ext_from_json(javajson.loads(text, number_texts=True))
    except ValueError as error:
        raise ProtocolError(f"ext fields not readable: {error}") from error


def ext_from_json(value: object) -> dict[str, str]:
    """Return the ext fields in a JSON value decoded with `number_texts`: each member becomes its text, nulls are left
    out."""
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise ProtocolError(f"ext fields must be an object, not {type(value).__name__}")
    return {str(key): _as_text(member) for key, member in value.items() if member is not None}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return str(value)  # also of a NumberText
    if isinstance(value, bool):
        return "true" if value else "false"
    return javajson.dumps(value).decode()
