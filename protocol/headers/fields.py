"""What all typed headers share: the base struct, the integer ranges, and RocketMQ's idea of a boolean.

A header is a msgspec struct with our names; `rename="camel"` gives the names on the wire. Integers are bounded, so that
what passes here can be packed and added without another thought. Booleans are declared as text: RocketMQ reads `true`
in any case as true and everything else, "1" included, as false, which no JSON library's lax mode does.
"""

from functools import cache
from typing import Annotated, Any

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
BoolText = str | bool | int
"""As it came. The integer is there to stay one: msgspec would make a boolean of it otherwise."""


class Header(msgspec.Struct, gc=False, rename="camel"):
    """Ext fields with types; required fields have no default."""

    def to_ext(self) -> dict[str, str]:
        """The fields as ext fields: text by wire name, None left out."""
        return {
            wire: value if type(value) is str else _text(value)
            for name, wire in _wire_names(type(self))
            if (value := getattr(self, name)) is not None
        }


def is_true(value: BoolText | None) -> bool:
    """Whether a boolean ext field is true: the word in any case, or JSON's own. No number is."""
    return value is True or (value != "false" and isinstance(value, str) and value.lower() == "true")


def renamed(base: type[Header], name: str, wire_names: dict[str, str]) -> Any:
    """A subclass of `base` that differs in the names on the wire only."""
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
