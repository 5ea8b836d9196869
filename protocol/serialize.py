"""The header dialects: how a frame's header encodes the outer fields of a command.

    0  JSON      a JSON object; members in alphabetical order, null members left out
    1  ROCKETMQ  binary: code i16, language u8, version i16, opaque i32, flag i32, remark (i32 length, UTF-8),
                 ext block (i32 length; entries: key i16 length, UTF-8; value i32 length, UTF-8)
    4D MSGPACK   only between Skylark's broker and SDK: a MessagePack array, see protocol.msgpack_header

The dialect is a byte of the frame, so each request can use its own; the response uses the dialect of its request.
msgspec decodes a header in standard JSON in one step. A header that it rejects (unquoted keys, single quotes, numbers
as text ...) is read by the tolerant reader; only if that fails too, the connection is closed. Text is UTF-8. A
zero-length text in a binary header means null. Source: docs/reference/wire.md, "Header dialects".
"""

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, Final

import msgspec

from skylarkmq.protocol import javajson
from skylarkmq.protocol.codes import LanguageCode
from skylarkmq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand, ext_from_json
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.frame import Frame, encode_frame, encode_prefix
from skylarkmq.protocol.msgpack_header import decode_msgpack, encode_msgpack

BINARY_FIXED: Final = Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
MAX_TOLERANT_HEADER: Final = 128 * 1024
"""Limit for JSON headers that only the tolerant reader accepts: it needs 60 ms for a header of this size."""
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_SHORT_ENTRY: Final = Struct(">hci")  # the beginning of an entry with a key of one byte
_decode_plain_json: Final = msgspec.json.Decoder(RemotingCommand, strict=False).decode
_encode_json: Final = msgspec.json.Encoder().encode


def decode_command(frame: Frame) -> RemotingCommand | None:
    """Return the command in a frame; None for a header that is a JSON array (ignored, as by RocketMQ).

    Raises ProtocolError for an unknown dialect and for an invalid header.
    """
    dialect, header, body = frame
    if dialect == MSGPACK:
        command = decode_msgpack(header)
    elif dialect == JSON:
        try:
            command = _decode_plain_json(header)
        except (ValueError, RecursionError):  # msgspec.DecodeError is a ValueError
            tolerant = _decode_tolerant_json(bytes(header))
            if tolerant is None:
                return None
            command = tolerant
    elif dialect == ROCKETMQ:
        command = _decode_binary(header)
    else:
        raise ProtocolError(f"unknown header dialect {dialect}")
    command.dialect = dialect
    command.body = body
    return command


def encode_command(command: RemotingCommand) -> bytes:
    """Return the whole frame of a command."""
    return encode_frame(command.dialect, encode_header(command), command.body)


def encode_head(command: RemotingCommand, body_length: int) -> bytes:
    """Return the frame up to its body, for a body that is written separately."""
    header = encode_header(command)
    return encode_prefix(command.dialect, len(header), body_length) + header


def encode_header(command: RemotingCommand) -> bytes:
    """Return the header alone, in the command's dialect."""
    return _ENCODERS[command.dialect](command)


# ---------------------------------------------------------------------------------------------------------- JSON (0)


def _decode_tolerant_json(text: bytes) -> RemotingCommand | None:
    try:
        header = javajson.loads(text, number_texts=True, max_bytes=MAX_TOLERANT_HEADER)
    except ValueError as error:
        raise ProtocolError(f"header is not JSON: {error}") from error
    if isinstance(header, list):
        return None
    if not isinstance(header, Mapping):
        raise ProtocolError(f"header must be an object, not {type(header).__name__}")
    language, remark = header.get("language"), header.get("remark")
    if isinstance(language, javajson.NumberText):
        language = int(language) if language.isdigit() and len(language) < 4 else None
    return RemotingCommand(
        code=_json_int(header, "code"),
        flag=_json_int(header, "flag"),
        language=language,
        opaque=_json_int(header, "opaque"),
        remark=None if remark is None else str(remark),
        version=_json_int(header, "version"),
        ext=ext_from_json(header.get("extFields")),
    )


def _json_int(header: Mapping[Any, Any], key: str) -> int:
    value = header.get(key)
    try:
        if isinstance(value, javajson.NumberText) and not value.lstrip("+-").isdigit():
            value = float(value)
        number = 0 if value is None else int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"header member {key!r} is not a number") from error
    if not -(2**31) <= number < 2**31:
        raise ProtocolError(f"header member {key!r} does not fit into 32 bits")
    return number


def _encode_json_header(command: RemotingCommand) -> bytes:
    language = command.language_code
    members: dict[str, Any] = {"code": command.code}
    if command.ext is not None:
        members["extFields"] = command.ext
    elif bytes(command.raw_ext):
        members["extFields"] = command.raw_ext
    members["flag"] = command.flag
    members["language"] = (LanguageCode.OTHER if language is None else language).name
    members["opaque"] = command.opaque
    if command.remark is not None:
        members["remark"] = command.remark
    members["serializeTypeCurrentRPC"] = "JSON"
    members["version"] = command.version
    return _encode_json(members)


# ------------------------------------------------------------------------------------------------------ ROCKETMQ (1)


def _decode_binary(header: memoryview) -> RemotingCommand:
    try:
        code, language, version, opaque, flag, remark_length = BINARY_FIXED.unpack_from(header)
        remark, at = _text(header, BINARY_FIXED.size, remark_length)
        (ext_length,) = _I32.unpack_from(header, at)
        at += 4
        if ext_length < 0 or at + ext_length > len(header):
            raise ProtocolError(f"ext block of {ext_length} bytes does not fit into its header")
        ext = _decode_binary_ext(header[at : at + ext_length])
    except (StructError, UnicodeDecodeError) as error:
        raise ProtocolError(f"binary header not readable: {error}") from error
    return RemotingCommand(
        code=code, flag=flag, language=language, opaque=opaque, remark=remark or None, version=version, ext=ext
    )


def _decode_binary_ext(block: memoryview) -> dict[str, str]:
    ext: dict[str, str] = {}
    data = bytes(block)
    end = len(data)
    key_length_of, value_length_of, short_entry = _I16.unpack_from, _I32.unpack_from, _SHORT_ENTRY.unpack_from
    at = 0
    last = end - _SHORT_ENTRY.size
    while at < end:
        if at <= last:  # sends have keys of one letter
            size, letter, length = short_entry(data, at)
            value_at = at + 7
            if size == 1 and length > 0 and value_at + length <= end:
                at = value_at + length
                ext[letter.decode()] = data[value_at:at].decode()
                continue
        key_at = at + 2
        value_length_at = key_at + key_length_of(data, at)[0]
        value_at = value_length_at + 4
        at = value_at + value_length_of(data, value_length_at)[0]
        if not key_at <= value_length_at < value_at <= at <= end:
            raise ProtocolError("an ext entry does not fit into its block")
        if at > value_at:
            ext[data[key_at:value_length_at].decode()] = data[value_at:at].decode()
    return ext


def _text(buffer: memoryview, at: int, length: int) -> tuple[str, int]:
    if length < 0 or at + length > len(buffer):
        raise ProtocolError(f"text of {length} bytes does not fit into its header")
    return str(buffer[at : at + length], "utf-8"), at + length


def _encode_binary_header(command: RemotingCommand) -> bytes:
    language = command.language_code
    remark = (command.remark or "").encode()
    ext = b"".join(binary_entry(key, value) for key, value in command.ext_fields().items())
    fixed = BINARY_FIXED.pack(
        _as_i16(command.code),
        LanguageCode.OTHER if language is None else language,
        _as_i16(command.version),
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((fixed, remark, _I32.pack(len(ext)), ext))


def binary_entry(key: str, value: str) -> bytes:
    """Return one ext field of a binary header: key length, key, value length, value."""
    name, text = key.encode(), value.encode()
    return b"".join((_I16.pack(len(name)), name, _I32.pack(len(text)), text))


def _as_i16(value: int) -> int:
    return (value + 0x8000 & 0xFFFF) - 0x8000


_ENCODERS: Final[dict[int, Callable[[RemotingCommand], bytes]]] = {
    JSON: _encode_json_header,
    ROCKETMQ: _encode_binary_header,
    MSGPACK: encode_msgpack,
}
