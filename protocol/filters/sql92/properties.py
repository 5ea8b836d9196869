"""One property out of a property string, without making a map of all of them.

The string is searched from its end, since the last entry of a name counts; empty values do not. An expression that asks
for many names, each of which would search the whole string, has it taken apart once instead (`entries_of`). Both ways
find the same. Source: docs/formats.md, "Properties".
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

ENTRY_END: Final = b"\x02"
NAME_END: Final = b"\x01"
_ENTRY_END_BYTE: Final = 2

Find = Callable[[Any], bytes | None]
"""`(what enclosed or entries_of made)` -> the value, None without one"""

_join: Final = b"".join


def enclosed(properties: bytes | memoryview) -> bytes:
    """The property string with an entry's end on both sides: what `finder` searches."""
    return _join((ENTRY_END, properties, ENTRY_END))


def entries_of(properties: bytes | memoryview) -> Mapping[bytes, bytes]:
    """All entries of a property string by name: what `getter` asks."""
    parts = [entry.partition(NAME_END) for entry in bytes(properties).split(ENTRY_END)]
    return {name: value for name, _, value in parts if name and value}


def finder(name: str) -> Find:
    """Finds the value of a name in what `enclosed` made."""
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
    """The last value that is not empty; each piece but the first begins with one."""
    for piece in reversed(pieces[1:]):
        if piece and piece[0] != _ENTRY_END_BYTE:
            return piece.partition(ENTRY_END)[0]
    return None


def getter(name: str) -> Find:
    """Finds the value of a name in what `entries_of` made."""
    key = name.encode()

    def find(entries: Mapping[bytes, bytes]) -> bytes | None:
        return entries.get(key)

    return find
