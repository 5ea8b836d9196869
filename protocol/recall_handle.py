"""Recall handles: with such a text a producer can cancel a timer message that it has sent.

A handle is the URL-safe base64 of `v1 <topic> <broker name> <time> <unique key>`. The time, Unix ms, is the time of the
slot in which the message waits, plus 1. Source: docs/reference/wire.md, "Timer messages".
"""

import base64
import binascii
from typing import Final, NamedTuple, Self

VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """The parts of a handle; `deliver_ms` is text."""

    topic: str
    broker_name: str
    deliver_ms: str
    unique_key: str

    def encode(self) -> str:
        """Return the handle in the form that responses contain."""
        return base64.urlsafe_b64encode(" ".join((VERSION, *self)).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Decode the handle in a producer's request. Raises ValueError if it is invalid."""
        try:
            version, *parts = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, UnicodeError) as problem:
            raise ValueError(f"invalid recall handle: {problem}") from problem
        if version != VERSION or len(parts) < len(cls._fields):
            raise ValueError(f"invalid recall handle: version {version}, {len(parts)} parts")
        return cls(*parts[: len(cls._fields)])
