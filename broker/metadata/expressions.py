"""Expressions that are no tag expressions, compiled: once, however many subscribe with them or pull by them.

What does not compile is remembered too, with the reason; but not what is too long anyway.
Source: docs/formats.md, "SQL92 expressions".
"""

from functools import lru_cache
from typing import TypeAlias

from skylarkmq.protocol.bodies.heartbeat import SQL92
from skylarkmq.protocol.filters.sql92.errors import ExpressionError, shown
from skylarkmq.protocol.filters.sql92.filter import Sql92Filter
from skylarkmq.protocol.filters.sql92.parser import MAX_CHARACTERS

Compiled: TypeAlias = tuple[Sql92Filter | None, str | None]
"""A test of properties; or None, and why there is none."""


def compiled(kind: str | None, expression: str | None) -> Compiled:
    """The test that an expression of that type stands for."""
    if kind != SQL92:
        return None, f"there are no expressions of type {shown(kind or '')}"
    text = expression or ""
    return _compiled(text) if len(text) <= MAX_CHARACTERS else _compiled.__wrapped__(text)


@lru_cache(maxsize=128)  # a large one takes half a megabyte
def _compiled(text: str) -> Compiled:
    try:
        return Sql92Filter.compile(text), None
    except ExpressionError as error:
        return None, str(error)
