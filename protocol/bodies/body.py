"""Body: the base of all JSON bodies, which decodes and encodes them.

Decoding tries four readers, from fast to tolerant: msgspec; msgspec with quotes added to bare numeric keys; msgspec
with queues as keys of maps; the tolerant reader, which also drops nulls, replaces ordinals by names and resolves
references. All accept numbers as text, as fastjson does, and absent members get their defaults. Encoding follows
fastjson.

`decode` is for files and for responses to our own requests. `decode_request` is for requests: it limits the time that a
hostile body takes on the event loop. Each type of body has a maximum size, and the two tolerant readers (10 and 2 MB/s)
read only small bodies.
"""

import re
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

import msgspec

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.enums import name_ordinals
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

REQUEST_BYTES: Final = 1 << 20
"""Maximum size of a request body, unless its type has another limit."""
QUOTED_BYTES: Final = 256 << 10
"""Maximum size of a request body in which bare numeric keys are quoted: about 25 ms."""
TOLERANT_BYTES: Final = 128 << 10
"""Maximum size of a request body for the tolerant reader: about 60 ms."""


class BodyError(RequestError, ValueError):
    """The body is invalid. As a RequestError it becomes the response SYSTEM_ERROR to a request; it is also a
    ValueError."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


class Body(msgspec.Struct, rename="camel"):
    """Base of all bodies; member names are in camelCase unless a field has its own name."""

    most_request_bytes: ClassVar[int] = REQUEST_BYTES
    most_quoted_bytes: ClassVar[int] = QUOTED_BYTES

    def encode(self) -> bytes:
        """Return the body of a request or response, as RocketMQ writes it."""
        return javajson.dumps(self)

    @classmethod
    def decode_request(cls, data: bytes | bytearray | memoryview) -> Self:
        """Return the body of a request. Raises BodyError, and nothing else; also if the body exceeds its limits."""
        size = len(data)
        if size > cls.most_request_bytes:
            raise BodyError(
                f"the body is not a valid {cls.__name__}: {size} bytes, the limit is {cls.most_request_bytes}"
            )
        if size <= TOLERANT_BYTES:
            return cls.decode(data)
        decoder = _decoder(cls)
        readers = (bytes, javajson.quote_numeric_keys) if size <= cls.most_quoted_bytes else (bytes,)
        problem: Exception | None = None
        for plain in readers:
            try:
                body: Self = decoder.decode(plain(data))
                return body
            except (ValueError, RecursionError) as error:
                problem = problem or error
        raise BodyError(f"the body is not a valid {cls.__name__}: {problem}") from problem

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Return the body in `data`. Raises BodyError, and nothing else, if the data is invalid."""
        decoder = _decoder(cls)
        for plain in (bytes, javajson.quote_numeric_keys):
            try:
                body: Self = decoder.decode(plain(data))
                return body
            except (ValueError, RecursionError):
                continue  # invalid for this reader: the next one is more tolerant
        try:
            return msgspec.convert(_with_queue_keys(data), cls, strict=False, str_keys=True)
        except (ValueError, RecursionError):
            pass  # no queues as keys, or more deviations from JSON than these
        try:
            members = javajson.loads(data, nulls=False, object_key=MessageQueue.of, object_hook=name_ordinals)
            return msgspec.convert(members, cls, strict=False, str_keys=True)
        except (ValueError, RecursionError) as error:
            raise BodyError(f"the body is not a valid {cls.__name__}: {error}") from error


@lru_cache(maxsize=256)
def _decoder(body: type[Body]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(body, strict=False)


_OBJECT_KEY: Final = re.compile(rb'([{,])(\{(?:[^"\\{}\[\]]++|"[^"\\]*+")++\}):')
"""A map key that is an object, as fastjson writes it: without nested objects and without escapes."""


def _with_queue_keys(data: bytes | bytearray | memoryview) -> object:
    """Return the document of a body with queues as keys of maps. Raises ValueError if it is another document.

    Each key becomes a text first. A match inside a string closes that string, and the result is invalid JSON.
    """
    text = bytes(data)
    quoted, count = _OBJECT_KEY.subn(lambda key: b'%b"%b":' % (key[1], key[2].replace(b'"', b'\\"')), text)
    if not count or b'"$ref"' in text:
        raise ValueError("no object is a map key, or some are references")
    return _queues_as_keys(msgspec.json.decode(quoted))


def _queues_as_keys(value: object) -> object:
    if isinstance(value, dict):
        return {_queue_of(name) if name[:1] == "{" else name: _queues_as_keys(item) for name, item in value.items()}
    return [_queues_as_keys(item) for item in value] if isinstance(value, list) else value


_queue_of: Final = msgspec.json.Decoder(MessageQueue, strict=False).decode
