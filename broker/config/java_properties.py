"""Java's properties format: reading and rewriting.

    `key=value`, `key: value` or `key value`; `#` and `!` comments; a backslash at the end continues the line;
    `\\t \\n \\r \\f \\\\ \\uXXXX` escapes

`rewritten` changes values in a hand-written file: comments, order, and all other lines stay unchanged. A key that
occurs several times is changed at its last occurrence, which is the effective one; a new key is appended.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from skylarkmq.broker.base.errors import StartError

BLANK: Final = " \t\f"
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
# A key ends at the first unescaped space, `=` or `:`; one `=` or `:` and the space around it is dropped.
KEY: Final = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
LINE_END: Final = re.compile(r"\r\n|\r|\n")

_TO_ESCAPE_IN_VALUES: Final = re.compile(r"[\\\t\n\r\f]|^ ")
_TO_ESCAPE_IN_KEYS: Final = re.compile(r"[\\\t\n\r\f =:#!]")
_ESCAPED: Final = {character: "\\" + letter for letter, character in ESCAPES.items()}


class LogicalLine(NamedTuple):
    """A line joined with its continuation lines; it consists of the lines `first` up to `end` (exclusive) of the
    text."""

    first: int
    end: int
    text: str


def parse_properties(text: str, name: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, key, value) of each logical line. Raises StartError for an escape that Java rejects."""
    for line in logical_lines(text):
        match = KEY.match(line.text)
        assert match is not None  # the pattern matches the empty string
        number = line.first + 1
        try:
            yield number, unescaped(match["key"]), unescaped(line.text[match.end() :])
        except ValueError:
            raise StartError(f"{name}:{number}: malformed \\u escape, expected four hexadecimal digits") from None


def logical_lines(text: str) -> Iterator[LogicalLine]:
    """Yield the logical lines without blank lines and comments."""
    lines = LINE_END.split(text)
    end = 0
    while end < len(lines):
        first = end
        line = lines[end].lstrip(BLANK)
        end += 1
        if not line or line[0] in "#!":
            continue
        while continues(line):
            line = line[:-1] + (lines[end].lstrip(BLANK) if end < len(lines) else "")
            end += 1
        yield LogicalLine(first, min(end, len(lines)), line)


def continues(line: str) -> bool:
    """Return whether a line ends in an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def unescaped(text: str) -> str:
    """Return a text with its escapes resolved; a backslash before any other character is dropped."""
    halves = ESCAPE.sub(_resolve, text)  # Java escapes UTF-16 units, two for some characters
    return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _resolve(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] != "u":
        return ESCAPES.get(escape, escape)
    return chr(int(escape[1:], 16))


# Writing.


def entry(key: str, value: str) -> str:
    """Return `key=value` on one line, escaped for `parse_properties`."""
    return f"{_TO_ESCAPE_IN_KEYS.sub(_escape, key)}={_TO_ESCAPE_IN_VALUES.sub(_escape, value)}"


def _escape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[0], "\\" + match[0])


def rewritten(text: str, changes: Mapping[str, str]) -> str:
    """Return the text with changed values. Raises StartError as `parse_properties` does."""
    keys = {number - 1: key for number, key, _ in parse_properties(text, "")}
    last_place = {key: first for first, key in keys.items() if key in changes}
    lines = LINE_END.split(text)
    for line in reversed(list(logical_lines(text))):
        key = keys[line.first]
        if last_place.get(key) == line.first:
            lines[line.first : line.end] = [entry(key, changes[key])]
    if lines[-1]:
        lines.append("")
    lines[-1:-1] = [entry(key, value) for key, value in changes.items() if key not in last_place]
    line_end = LINE_END.search(text)
    return ("\n" if line_end is None else line_end[0]).join(lines)
