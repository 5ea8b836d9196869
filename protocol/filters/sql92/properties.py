"""Lookup of one property in a property string, without a dict of all of them.

The string is searched from its end, because the last entry of a name counts; empty values do not count. An expression
with many names would search the whole string for each; for it the string is split into a dict once (`entries_of`).
Both ways return the same value. Source: docs/reference/wire.md, "Properties".
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

ENTRY_END: Final = b"\x02"
NAME_END: Final = b"\x01"
_ENTRY_END_BYTE: Final = 2

Find = Callable[[Any], bytes | None]
"""`(result of enclosed or entries_of)` -> the value; None if the property is missing"""

_join: Final = b"".join


def enclosed(properties: bytes | memoryview) -> bytes:
    """Return the property string between two entry ends, for `finder`."""
    return _join((ENTRY_END, properties, ENTRY_END))


def entries_of(properties: bytes | memoryview) -> Mapping[bytes, bytes]:
    """Return all entries of a property string by name, for `getter`."""
    parts = [entry.partition(NAME_END) for entry in bytes(properties).split(ENTRY_END)]
    return {name: value for name, _, value in parts if name and value}


def finder(name: str) -> Find:
    """Return a function that finds the value of a name in the result of `enclosed`."""
    key = _join((ENTRY_END, name.encode(), NAME_END))
    size = len(key)

    def find(text: bytes) -> bytes | None:
        at = text.rfind(key)
        if at < 0:
            return None
        at += size
        return text[at : text.find(b"\x02", at)] or _last_value(text.split(key))

    return find


def _last_value(pieces: list[bytes]) -> bytes | None:
    """Return the last value that is not empty; each piece but the first begins with a value."""
    for piece in reversed(pieces[1:]):
        if piece and piece[0] != _ENTRY_END_BYTE:
            return piece.partition(ENTRY_END)[0]
    return None


def getter(name: str) -> Find:
    """Return a function that finds the value of a name in the result of `entries_of`."""
    key = name.encode()

    def find(entries: Mapping[bytes, bytes]) -> bytes | None:
        return entries.get(key)

    return find
