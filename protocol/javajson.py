"""fastjson's dialect of JSON: a tolerant reader and an exact writer.

RocketMQ's clients, brokers and files contain JSON as fastjson writes it. Other clients send deviations that fastjson
accepts. msgspec handles standard JSON; this module handles the rest.

The reader accepts: bare words as member names, single quotes, extra commas, numeric map keys without quotes (`{0:"a"}`,
which become int keys), objects as map keys (`{{"queueId":0}:5}`), nulls, any surrounding white space, the escapes of C,
bytes that are not UTF-8 (replaced by U+FFFD), and `{"$ref":"$.a[0]"}` as a reference to another object of the document.

The writer writes: members of structs in alphabetical order, without those that are None; maps in their own order; no
spaces; int keys bare unless quotes are requested; object keys as raw JSON.

An object that is a map key must be hashable, so the reader passes its members to `object_key`. The default returns an
`ObjectKey`, which the writer writes in its original form. The bodies pass a constructor of `MessageQueue`, the only
struct that occurs as a key, and get an ordinary `dict[MessageQueue, int]`. The writer takes both.

Hostile input raises `JavaJsonError` (a ValueError) and nothing else. The limits are: nesting up to MAX_DEPTH, text up
to MAX_BYTES (the reader runs on the event loop, at 1-5 MB/s), and at most MAX_REFERENCED values added by references.
Source: docs/reference/wire.md, "JSON dialect".
"""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from functools import lru_cache
from json.encoder import encode_basestring, encode_basestring_ascii
from types import NoneType
from typing import Any, Final, Self

import msgspec

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 256 * 1024
MAX_REFERENCED: Final = 10_000

Members = dict[Any, Any]


class NumberText(str):
    """A number as the text of its literal, without the letter of Java's types: the value of `1e3L` is `1e3`."""

    __slots__ = ()


class JavaJsonError(ValueError):
    """The text is not readable even by fastjson's rules, or exceeds one of the limits above."""


class ObjectKey(tuple[tuple[str, Any], ...]):
    """An object that is a map key: its members, ordered by name. `dict(key)` returns the members as a dict."""

    __slots__ = ()

    def __new__(cls, members: Members) -> Self:
        return super().__new__(cls, sorted(members.items(), key=lambda member: str(member[0])))


def loads(
    data: bytes | bytearray | memoryview | str,
    *,
    nulls: bool = True,
    object_key: Callable[[Members], Hashable] = ObjectKey,
    object_hook: Callable[[Members], object] | None = None,
    number_texts: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Return the value in `data`. Raises JavaJsonError if `data` is not a value of this dialect.

    With `nulls=False` members with the value null count as absent. `object_hook` is called with the members of every
    object, and may change them. With `number_texts=True` every number is a NumberText.
    """
    if len(data) > max_bytes:
        raise JavaJsonError(f"{len(data)} bytes are too many, the limit is {max_bytes}")
    text = data if isinstance(data, str) else str(data, "utf-8", "replace")
    reader = _Reader(text, nulls, object_key, object_hook, NumberText if number_texts else _number)
    value = reader.document()
    return _resolve_references(value) if "$ref" in text else value


def dumps(value: object, *, quote_numeric_keys: bool = False, ascii_only: bool = False) -> bytes:
    """Return `value` as JSON in UTF-8: structs, dicts, lists, tuples, text, numbers, booleans, enums (by name),
    None."""
    writer = _Writer(quote_numeric_keys, ascii_only)
    writer.write(value)
    return "".join(writer.parts).encode("utf-8", "replace")


def quote_numeric_keys(data: bytes | bytearray | memoryview) -> bytes:
    """Return `data` with quotes around bare numeric keys, for a strict JSON decoder. A regular expression does it.

    The expression does not track string boundaries. A match inside a string closes that string before a digit, which no
    decoder accepts: the result is either the intended document or invalid JSON.
    """
    return _NUMERIC_KEY.sub(rb'\1"\2"\3', bytes(data))


_NUMERIC_KEY: Final = re.compile(rb"([{,]\s*)(-?\d+)(\s*:)")

# --- reading ---------------------------------------------------------------------------------------

# One token after any white space; the number of the group is its type. Possessive repeats keep the match linear.
_TOKEN: Final = re.compile(
    r"""\s*+(?: "([^"\\]*+(?:\\.[^"\\]*+)*+)"
             |  '([^'\\]*+(?:\\.[^'\\]*+)*+)'
             |  ([-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?+[LSBFD]?)
             |  ([A-Za-z_$][\w$.-]*+)
             |  ([{}\[\]:,]) )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_SPACE: Final = re.compile(r"\s*", re.ASCII)
_TEXT, _SINGLE_QUOTED, _NUMBER, _WORD, _MARK = range(1, 6)
_COMMA: Final = (_MARK, ",")
_COLON: Final = (_MARK, ":")
_WORDS: Final = {"null": None, "true": True, "false": False, "NaN": math.nan, "undefined": None}


class _Reader:
    __slots__ = ("_at", "_make_number", "_nulls", "_object_hook", "_object_key", "_text")

    def __init__(
        self,
        text: str,
        nulls: bool,
        object_key: Callable[[Members], Hashable],
        object_hook: Callable[[Members], object] | None,
        make_number: Callable[[str], int | float | NumberText],
    ) -> None:
        self._text = text
        self._at = 0
        self._nulls = nulls
        self._object_key = object_key
        self._object_hook = object_hook
        self._make_number = make_number

    def document(self) -> Any:
        value = self._value(self._next(), 0)
        rest = _SPACE.match(self._text, self._at)
        if rest is not None and rest.end() != len(self._text):
            raise self._error("text after the value")
        return value

    def _next(self) -> tuple[int, str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._error("not JSON")
        self._at = match.end()
        kind = match.lastindex or 0
        return kind, match[kind]

    def _value(self, token: tuple[int, str], depth: int) -> Any:
        kind, text = token
        if kind <= _SINGLE_QUOTED:
            return self._unescaped(text)
        if kind == _NUMBER:
            return self._number(text)
        if kind == _WORD and text in _WORDS:
            return _WORDS[text]
        if text == "{":
            return self._object(depth + 1)
        if text == "[":
            return [self._value(element, depth + 1) for element in self._elements("]", depth + 1)]
        raise self._error(f"not a value: {text[:40]!r}")

    def _object(self, depth: int) -> Members:
        members: Members = {}
        for token in self._elements("}", depth):
            key = self._key(token, depth)
            if self._next() != _COLON:
                raise self._error("a colon is missing")
            value = self._value(self._next(), depth)
            if value is not None or self._nulls:
                members[key] = value
        if self._object_hook is not None:
            self._object_hook(members)
        return members

    def _key(self, token: tuple[int, str], depth: int) -> Hashable:
        kind, text = token
        if kind <= _SINGLE_QUOTED:
            return self._unescaped(text)
        if kind == _NUMBER:
            return self._number(text)
        if kind == _WORD:
            return text
        if text != "{":
            raise self._error(f"not a map key: {text!r}")
        members = self._object(depth + 1)
        if any(isinstance(value, dict | list) for value in members.values()):
            raise self._error("an object or list inside a map key")
        return self._object_key(members)

    def _elements(self, closing: str, depth: int) -> Iterator[tuple[int, str]]:
        """Yield the first token of each element up to `closing`."""
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}")
        end = (_MARK, closing)
        token = self._next()
        while True:
            while token == _COMMA:
                token = self._next()
            if token == end:
                return
            yield token
            token = self._next()
            if token not in (_COMMA, end):
                raise self._error("a comma is missing")

    def _number(self, text: str) -> int | float | NumberText:
        try:
            return self._make_number(text.rstrip("LSBFD"))
        except ValueError as error:  # thousands of digits
            raise self._error("a number with too many digits") from error

    def _unescaped(self, text: str) -> str:
        if "\\" not in text:
            return text
        try:
            plain = _ESCAPE.sub(_escaped_character, text)
        except KeyError as error:
            raise self._error(f"an unknown escape {error}") from error
        if _SURROGATE.search(plain):  # a pair is one character; a single one is invalid
            return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return plain

    def _error(self, what: str) -> JavaJsonError:
        return JavaJsonError(f"{what}, at character {self._at}")


def _number(text: str) -> int | float:
    return float(text) if "." in text or "e" in text or "E" in text else int(text)


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_CONTROLS: Final = {str(n): chr(n) for n in range(8)} | {
    '"': '"', "'": "'", "\\": "\\", "/": "/",
    "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "F": "\f", "r": "\r",
}  # fmt: skip


def _escaped_character(match: re.Match[str]) -> str:
    unit, byte, control = match.groups()
    return _CONTROLS[control] if control else chr(int(unit or byte, 16))


# --- references ------------------------------------------------------------------------------------

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]")


def _resolve_references(root: Any) -> Any:
    """Replace every reference by the object it refers to; an object that contains itself is an error."""
    allowed = MAX_REFERENCED
    containers = [root]
    while containers:
        container = containers.pop()
        for place, child in list(_children(container)):
            if _is_reference(child):
                target = _follow(root, child["$ref"])
                allowed -= _count(target, allowed)
                container[place] = target
            else:
                containers.append(child)
    return root


def _children(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return (key or index, value) of each member of an object or list; nothing for other values."""
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _is_reference(value: object) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$ref"), str)


def _follow(root: Any, path: str) -> Any:
    value, at = root, 1
    try:
        while step := _STEP.match(path, at):
            name, index = step.groups()
            value, at = value[name] if name else value[int(index)], step.end()
    except (LookupError, TypeError) as error:
        raise JavaJsonError(f"unresolvable reference: {path[:80]!r}") from error
    if not path.startswith("$") or at != len(path):
        raise JavaJsonError(f"unresolvable reference: {path[:80]!r}")
    return value


def _count(value: Any, allowed: int) -> int:
    """Return the number of values in `value`. Raises JavaJsonError above `allowed`, or if it contains references."""
    count = 0
    values = [value]
    while values:
        value = values.pop()
        count += 1
        if count > allowed or _is_reference(value):
            raise JavaJsonError("references multiply the document, or lead into themselves")
        values += (child for _, child in _children(value))
    return count


# --- writing ---------------------------------------------------------------------------------------

_SCALARS: Final[dict[type, Callable[[Any], str]]] = {
    NoneType: lambda _: "null",
    bool: lambda flag: "true" if flag else "false",
    int: str,
    float: lambda number: repr(number) if math.isfinite(number) else "null",
    NumberText: str,
}


class _Writer:
    __slots__ = ("_quote_numeric_keys", "_scalars", "_text", "parts")

    def __init__(self, quote_numeric_keys: bool, ascii_only: bool) -> None:
        self.parts: list[str] = []
        self._quote_numeric_keys = quote_numeric_keys
        self._text: Callable[[str], str] = encode_basestring_ascii if ascii_only else encode_basestring
        self._scalars: dict[type, Callable[[Any], str]] = _SCALARS | {str: self._text}

    def write(self, value: object) -> None:
        if scalar := self._scalars.get(type(value)):
            self.parts.append(scalar(value))
        elif isinstance(value, msgspec.Struct):
            self._write_members((head, getattr(value, attribute)) for head, attribute in _members(type(value)))
        elif isinstance(value, ObjectKey):
            self._write_members((f"{self._text(name)}:", member) for name, member in value)
        elif isinstance(value, dict):
            self._write_map(value)
        elif isinstance(value, list | tuple):
            self._write_list(value)
        elif isinstance(value, Enum):
            self.parts.append(f'"{value.name}"')
        else:
            raise TypeError(f"no JSON form for {type(value).__name__}")

    def _write_members(self, members: Iterable[tuple[str, object]]) -> None:
        separator = "{"
        for head, member in members:
            if member is not None:
                self.parts += (separator, head)
                self.write(member)
                separator = ","
        self.parts.append("{}" if separator == "{" else "}")

    def _write_map(self, value: Members) -> None:
        separator = "{"
        for key, member in value.items():
            if member is not None:
                self.parts.append(separator)
                self._write_key(key)
                self.parts.append(":")
                self.write(member)
                separator = ","
        self.parts.append("{}" if separator == "{" else "}")

    def _write_key(self, key: object) -> None:
        if self._quote_numeric_keys and isinstance(key, int | float) and not isinstance(key, Enum):
            self.parts.append(f'"{key}"')
        else:
            self.write(key)

    def _write_list(self, value: list[object] | tuple[object, ...]) -> None:
        separator = "["
        for element in value:
            self.parts.append(separator)
            self.write(element)
            separator = ","
        self.parts.append("[]" if separator == "[" else "]")


@lru_cache(maxsize=256)
def _members(struct: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return (`"name":`, attribute) of a struct's fields, ordered by name."""
    names = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    return tuple((f'"{name}":', attribute) for name, attribute in sorted(names))
