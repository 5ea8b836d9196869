"""RemotingCommand: one request or response, in either direction, in any header dialect.

The outer fields (code, opaque, flag ...) are decoded at once. The ext fields stay as they came, JSON text or a map,
until somebody who knows their type asks: `command.header(SendMessageHeader)`. The code that handles a request code is
the one place that knows its header, so no table of types by code is needed, answers are read the same way (the caller
knows what it asked), and the received text is still there for whoever must sign or log it.

Reading a header follows RocketMQ's own reader (docs/formats.md, "Reading ext fields"): numbers and booleans are taken
from JSON values and from their text, unknown keys are ignored, a null counts as absent. The plain case is decoded by
msgspec straight into the struct; whatever it refuses goes through the tolerant reader before it counts as an error.

A received `body` (and raw ext text) is a view into the receive buffer and lives until the handler returns.
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
NOT_ANSWERED: Final = "not set any response code"

if TYPE_CHECKING:
    Own: TypeAlias = Any
    OwnOrNone: TypeAlias = Any
else:

    class Own:
        """The type of a field that no JSON value can fill: the JSON decoder rejects a header that names it."""

    OwnOrNone = Own | None


OwnInt = Annotated[int, msgspec.Meta(gt=0, lt=0)]
OwnText = Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=0)]
"""The same for numbers and for maps of text: only the decoder checks these bounds, and no value meets them."""

_NOTHING: Final = msgspec.Raw()
_NO_EXT: Final = (b"", b"null", b'""')


class RemotingCommand(msgspec.Struct, gc=False):
    """One frame's meaning.

    The struct is also the JSON decoder's target. The last four fields are no members of a header. Their types keep the
    decoder from filling them: a header that names one of them, such as `{"(sent)":5}`, goes to the tolerant reader,
    which ignores the member as it does any unknown one.
    """

    code: Int32
    flag: Int32 = 0
    language: Any = None
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0
    raw_ext: msgspec.Raw = msgspec.field(name="extFields", default=msgspec.Raw())
    ext: OwnText | None = msgspec.field(name="(ext)", default=None)
    body: Own = msgspec.field(name="(body)", default=b"")
    dialect: OwnInt = msgspec.field(name="(dialect)", default=JSON)
    sent: OwnOrNone = msgspec.field(name="(sent)", default=None)  # protocol.send_command

    @classmethod
    def request(cls, code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False) -> Self:
        """A request of ours; whoever sends it gives it its opaque."""
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
        """An answer; `answer_to` gives it the opaque and the dialect of its request."""
        fields = ext.to_ext() if isinstance(ext, Header) else None if ext is None else dict(ext)
        return cls(
            code=int(code), flag=Flag.RESPONSE, language=LANGUAGE, version=VERSION, remark=remark, ext=fields, body=body
        )

    def answer_to(self, request: "RemotingCommand") -> Self:
        """Address this response to `request`."""
        self.opaque = request.opaque
        self.dialect = request.dialect
        return self

    def detached(self) -> Self:
        """This command with memory of its own, to be kept beyond the turn that received it."""
        self.body = bytes(self.body)
        if self.ext is None:
            self.raw_ext = self.raw_ext.copy()
        return self

    def let_go(self) -> None:
        """Only the outer fields will be asked for from now on: keep nothing of what was received."""
        self.body = b""
        self.raw_ext = _NOTHING
        self.ext = self.ext or {}

    @property
    def ext_bytes(self) -> int:
        """Memory that the ext fields take, as they came."""
        return len(self.raw_ext) if self.ext is None else sum(map(len, self.ext.values()))

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of ours."""
        return bool(self.flag & Flag.RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the requester wants no answer, not even an error."""
        return bool(self.flag & Flag.ONEWAY)

    @property
    def language_code(self) -> LanguageCode | None:
        """The peer's language, given by name or by ordinal; None if unknown."""
        if isinstance(self.language, str):
            return LanguageCode.__members__.get(self.language)
        known = isinstance(self.language, int) and self.language in LanguageCode._value2member_map_
        return LanguageCode(self.language) if known else None

    def header(self, header_type: type[H]) -> H:
        """The ext fields as `header_type`; RequestError(SYSTEM_ERROR) if a required one is missing or unreadable."""
        if self.ext is None:
            try:
                return _json_decoder(header_type).decode(self.raw_ext)
            except (ValueError, RecursionError):
                pass  # not the plain case: numbers for text, nulls, single quotes ... or really wrong
        try:
            return msgspec.convert(self.ext_fields(), header_type, strict=False)
        except msgspec.ValidationError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"request header not readable: {error}") from error

    def ext_fields(self) -> dict[str, str]:
        """The ext fields as text by name; empty if there are none. ProtocolError if they are no such thing."""
        if self.ext is None:
            self.ext = parse_ext(bytes(self.raw_ext))
        return self.ext


_json_decoders: dict[type[Header], msgspec.json.Decoder[Any]] = {}


def _json_decoder(header_type: type[H]) -> msgspec.json.Decoder[H]:
    decoder = _json_decoders.get(header_type)
    if decoder is None:
        decoder = _json_decoders[header_type] = msgspec.json.Decoder(header_type, strict=False)
    return decoder


def parse_ext(text: bytes) -> dict[str, str]:
    """Read the JSON text of ext fields the tolerant way."""
    if text in _NO_EXT:
        return {}
    try:
        return ext_from_json(javajson.loads(text))
    except ValueError as error:
        raise ProtocolError(f"ext fields not readable: {error}") from error


def ext_from_json(value: object) -> dict[str, str]:
    """Ext fields out of a decoded JSON value: every member becomes its text, nulls are left out."""
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise ProtocolError(f"ext fields must be an object, not {type(value).__name__}")
    return {str(key): _as_text(member) for key, member in value.items() if member is not None}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return javajson.dumps(value).decode()
