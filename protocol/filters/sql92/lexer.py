"""Text -> tokens.

    names       letters, digits, _ and $, not beginning with a digit; case-sensitive. Keywords are names in any case.
    numbers     5, 5L (the letter has no effect), 5. .5 5.1 5E1. After a leading 0 a new token begins: 012 is 0, 12.
    texts       'it''s'
    marks       = <> > >= < <= ( ) , + -
    space       blanks, -- to the end of a line, /* to */

The longest token wins. `--` without a line end after it is two minus signs. The parser requests tokens one at a time:
of the text after a complete expression only the first token is read.

Source: docs/reference/wire.md, "SQL92 expressions".
"""

import re
from typing import Final, NamedTuple

from skylarkmq.protocol.filters.sql92.errors import ExpressionError, quoted

NAME: Final = "name"
TEXT: Final = "text"
WHOLE: Final = "whole number"
FLOAT: Final = "float"
END: Final = "end"
KEYWORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)

_LONGEST_KEYWORD: Final = max(map(len, KEYWORDS))
_SPACE: Final = re.compile(
    r"(?: [ \t\n\r\f]++ | --[^\n\r]*+(?:\r\n|\n|\r) | /\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/ )*+", re.VERBOSE
)
_SPACE_OF_LAST_LINE: Final = re.compile(r"(?: [ \t\f]++ | /\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/ )*+", re.VERBOSE)
_TOKEN: Final = re.compile(
    r"""  ([A-Za-z_$][A-Za-z0-9_$]*+)
        | ((?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+ | [0-9]++[eE][+-]?[0-9]++)
        | (0|[1-9][0-9]*+[lL]?)
        | '((?:[^']++|'')*)'
        | (<>|<=|>=|[=<>(),+-])""",
    re.VERBOSE,
)
_KINDS: Final = ("", NAME, FLOAT, WHOLE, TEXT, "")


class Token(NamedTuple):
    """`kind`: one of the constants above, a keyword in capitals, or a mark. `text`: the source text, from index `at`
    on."""

    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind is END else quoted(self.text)


class Lexer:
    """The tokens of `text`, made one at a time."""

    __slots__ = ("_at", "_last_line_at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._at = 0
        self._last_line_at = 1 + max(text.rfind("\n"), text.rfind("\r"))

    def __repr__(self) -> str:
        return f"<Lexer at={self._at} of={len(self.text)}>"

    def next(self) -> Token:
        """Return the next token; after the last one always END. Raises ExpressionError if no token begins here."""
        text = self.text
        at = self._at
        space = (_SPACE if at < self._last_line_at else _SPACE_OF_LAST_LINE).match(text, at)
        if space is not None:
            at = space.end()
        match = _TOKEN.match(text, at)
        if match is None:
            if at == len(text):
                return Token(END, "", at)
            raise ExpressionError(_unknown(text, at), text, at)
        self._at = match.end()
        group = match.lastindex or 0
        piece = match[0]
        kind = _KINDS[group] or piece
        if kind is NAME and len(piece) <= _LONGEST_KEYWORD and (word := piece.upper()) in KEYWORDS:
            kind = word
        return Token(kind, piece, at)


def _unknown(text: str, at: int) -> str:
    if text[at] == "'":
        return "unterminated text: the closing quote is missing"
    if text.startswith("/*", at):
        return "unterminated comment: */ is missing"
    return f"unexpected character {quoted(text[at])}"
