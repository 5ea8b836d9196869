"""Expressions that are no tag expressions, compiled: once, however many subscribe with them or pull by them.

What does not compile is remembered too, with the reason. Source: docs/formats.md, "SQL92 expressions".
"""

from functools import lru_cache

from protocol.bodies.heartbeat import SQL92
from protocol.filters.sql92.errors import ExpressionError
from protocol.filters.sql92.filter import Sql92Filter


@lru_cache(maxsize=128)  # a large one takes half a megabyte
def compiled(kind: str | None, expression: str | None) -> tuple[Sql92Filter | None, str | None]:
    """The test of properties that an expression of that type stands for; or None, and what is wrong with it."""
    if kind != SQL92:
        return None, f"there are no expressions of type {kind}"
    try:
        return Sql92Filter.compile(expression or ""), None
    except ExpressionError as error:
        return None, str(error)
