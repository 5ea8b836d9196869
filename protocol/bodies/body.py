"""Body: what all JSON bodies have in common, which is how they become structs and bytes.

Decoding goes from fast to tolerant: msgspec; msgspec once more with bare numeric keys quoted; then the tolerant reader,
which also drops nulls, names ordinals and knows objects as map keys. All three are lax about scalars, as fastjson is:
numbers may come as text, and absent members have defaults. Encoding is fastjson's.

`decode` is for files and for responses that this process asked for. Requests go through `decode_request`, which bounds
the time that a hostile body costs on the event loop: each kind of body has a largest size, and the two tolerant readers
(10 and 2 MB/s) see small bodies only.
"""

from functools import lru_cache
from typing import Any, ClassVar, Final, Self

import msgspec

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.enums import name_ordinals
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

REQUEST_BYTES: Final = 1 << 20
"""The largest body of a request, unless its kind has another limit."""
QUOTED_BYTES: Final = 256 << 10
"""The largest request body in which bare numeric keys are quoted: about 25 ms."""
TOLERANT_BYTES: Final = 128 << 10
"""The largest request body that the tolerant reader sees: about 60 ms."""


class BodyError(RequestError, ValueError):
    """A body that is none: SYSTEM_ERROR for who sent it in a request, a ValueError for who read it from a file."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


class Body(msgspec.Struct, rename="camel"):
    """Base of the structs; members in camelCase unless a field says otherwise."""

    most_request_bytes: ClassVar[int] = REQUEST_BYTES
    most_quoted_bytes: ClassVar[int] = QUOTED_BYTES

    def encode(self) -> bytes:
        return javajson.dumps(self)

    @classmethod
    def decode_request(cls, data: bytes | bytearray | memoryview) -> Self:
        """Return the body of a request. Raises BodyError, and nothing else, also for a body above its limits."""
        size = len(data)
        if size > cls.most_request_bytes:
            raise BodyError(f"the body is no {cls.__name__}: {size} bytes, the limit is {cls.most_request_bytes}")
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
        raise BodyError(f"the body is no {cls.__name__}: {problem}") from problem

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Raises BodyError, and nothing else, if `data` does not hold this body."""
        decoder = _decoder(cls)
        for plain in (bytes, javajson.quote_numeric_keys):
            try:
                body: Self = decoder.decode(plain(data))
                return body
            except (ValueError, RecursionError):
                continue  # no plain JSON, or not in these types: the next way is more tolerant
        try:
            members = javajson.loads(data, nulls=False, object_key=MessageQueue.of, object_hook=name_ordinals)
            return msgspec.convert(members, cls, strict=False, str_keys=True)
        except (ValueError, RecursionError) as error:
            raise BodyError(f"the body is no {cls.__name__}: {error}") from error


@lru_cache(maxsize=256)
def _decoder(body: type[Body]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(body, strict=False)
