"""Untrusted text, made safe for log lines and terminals.

Names, keys, tags, client ids and remarks come from clients and from store directories. A newline in them would forge a
log line, an escape sequence would reach the operator's terminal, and bidirectional overrides would reorder the text.
Every character that is not printable (C0, C1, DEL, formatting characters, line separators, lone surrogates) is
replaced by its escape: `\\n`, `\\x1b`, `\\u202e`. Text without any is returned unchanged.
"""

import json
import logging
from typing import Final

_CONTINUED: Final = "    "


def printable(text: str) -> str:
    """Return the text with escapes, as in a Python literal, in place of characters that are not printable."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_json(document: bytes) -> str:
    """Return a JSON document with JSON escapes in place of characters that are not printable; JSON allows those above
    U+001F inside strings."""
    text = document.decode()
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


class LineFormatter(logging.Formatter):
    """Formats a record as one line. Traceback lines follow, indented, so that none of them can be taken for a
    record."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        return printable(super().formatMessage(record))

    def formatException(self, ei: "logging._SysExcInfoType") -> str:  # noqa: N802 (the name is logging's)
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 (the name is logging's)
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(_CONTINUED + printable(line) for line in text.split("\n"))
