"""The base struct of all typed headers, the integer ranges, and RocketMQ's rules for booleans.

A header is a msgspec struct with Python names; `rename="camel"` produces the names on the wire. Integers are bounded,
so a decoded value can be packed and added without further checks. Booleans are declared as text: RocketMQ reads `true`,
in any case, as true and everything else, "1" included, as false; no JSON library's lax mode does so.
"""

from functools import cache
from typing import Annotated, Any

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
BoolText = str | bool | int
"""The received value. `int` is included because msgspec would otherwise convert a number to a boolean."""


class Header(msgspec.Struct, gc=False, rename="camel"):
    """Base of all typed ext fields. Required fields have no default."""

    def to_ext(self) -> dict[str, str]:
        """Return the fields as text by wire name; None values are left out."""
        return {
            wire: value if type(value) is str else _text(value)
            for name, wire in _wire_names(type(self))
            if (value := getattr(self, name)) is not None
        }


def is_true(value: BoolText | None) -> bool:
    """Return whether a boolean ext field is true: `true` in any case, or JSON's true. No number is true."""
    return value is True or (value != "false" and isinstance(value, str) and value.lower() == "true")


def renamed(base: type[Header], name: str, wire_names: dict[str, str]) -> Any:
    """Return a subclass of `base` that differs only in its names on the wire."""
    fields = [
        (field.name, field.type, msgspec.field(name=wire_names[field.name], default=field.default))
        for field in msgspec.structs.fields(base)
    ]
    return msgspec.defstruct(name, fields, bases=(base,), gc=False, module=base.__module__)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@cache
def _wire_names(header_type: type[Header]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(header_type))
