"""What a producer gets for a timer message to take it back with.

URL-safe base64 of `v1 <topic> <broker name> <time> <unique key>`, where the time, Unix ms, is 1 more than that of the
slot in which the message waits. Source: docs/formats.md, "Timer messages".
"""

import base64
import binascii
from typing import Final, NamedTuple, Self

VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """The parts of a handle; `deliver_ms` is a text."""

    topic: str
    broker_name: str
    deliver_ms: str
    unique_key: str

    def encode(self) -> str:
        """The handle as it stands in answers."""
        return base64.urlsafe_b64encode(" ".join((VERSION, *self)).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """From what a producer hands in. ValueError: it is none."""
        try:
            version, *parts = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, UnicodeError) as problem:
            raise ValueError(f"no recall handle: {problem}") from problem
        if version != VERSION or len(parts) < len(cls._fields):
            raise ValueError(f"no recall handle: version {version}, {len(parts)} parts")
        return cls(*parts[: len(cls._fields)])
