"""Compiled filter expressions other than tag expressions: each is compiled once, for all subscriptions and pulls.

Expressions that do not compile are cached too, with the reason; expressions that exceed the length limit are not.
Source: docs/reference/wire.md, "SQL92 expressions".
"""

from functools import lru_cache
from typing import TypeAlias

from skylarkmq.protocol.bodies.heartbeat import SQL92
from skylarkmq.protocol.filters.sql92.errors import ExpressionError, quoted
from skylarkmq.protocol.filters.sql92.filter import Sql92Filter
from skylarkmq.protocol.filters.sql92.parser import MAX_CHARACTERS

Compiled: TypeAlias = tuple[Sql92Filter | None, str | None]
"""A test of properties; or None and the reason why there is none."""


def compile_expression(kind: str | None, expression: str | None) -> Compiled:
    """Return the test for an expression of the type `kind`."""
    if kind != SQL92:
        return None, f"there are no expressions of type {quoted(kind or '')}"
    text = expression or ""
    return _compiled(text) if len(text) <= MAX_CHARACTERS else _compiled.__wrapped__(text)


@lru_cache(maxsize=128)  # a large expression takes 0.5 MB
def _compiled(text: str) -> Compiled:
    try:
        return Sql92Filter.compile(text), None
    except ExpressionError as error:
        return None, str(error)
