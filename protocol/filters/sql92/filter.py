"""Sql92Filter: a compiled expression.

Compiling takes about ten microseconds per comparison, once per subscription. `matches` is called for every message,
with its property string as it is stored in the record.

The cost of a call can be estimated in advance, so that a caller that tests many messages in a row can stop in time: one
part for the expression, and one part per KiB of properties. The properties are searched once for each property in the
expression; if the expression has more than MOST_SEARCHES of them, the properties are split into a dict once instead.
"""

from collections.abc import Callable
from typing import Any, Final, Self

from skylarkmq.protocol.filters.sql92.closures import Builder
from skylarkmq.protocol.filters.sql92.errors import EvaluationError
from skylarkmq.protocol.filters.sql92.nodes import Node, Property, walk
from skylarkmq.protocol.filters.sql92.parser import parse
from skylarkmq.protocol.filters.sql92.properties import enclosed, entries_of, finder, getter

MOST_SEARCHES: Final = 16

_CALL_NS: Final = 400
_NODE_NS: Final = 150
_SEARCH_NS_PER_KIB: Final = 600
_TAKE_APART_NS_PER_KIB: Final = 16_000


class Sql92Filter:
    """`matches(properties)` returns whether a message with that property string matches. It never raises.

    `evaluate(properties)` returns True, False, or None for unknown, and raises EvaluationError.
    `cost_ns` and `cost_ns_per_kib` estimate the cost of a call, see the module docstring.
    """

    __slots__ = ("cost_ns", "cost_ns_per_kib", "evaluate", "matches", "text")

    def __init__(self, text: str, root: Node) -> None:
        nodes = list(walk(root))
        searches = sum(isinstance(node, Property) for node in nodes)
        is_searched = searches <= MOST_SEARCHES
        self.text = text
        self.cost_ns = _CALL_NS + _NODE_NS * len(nodes)
        self.cost_ns_per_kib = searches * _SEARCH_NS_PER_KIB if is_searched else _TAKE_APART_NS_PER_KIB
        value = Builder(finder if is_searched else getter).build(root)
        prepare: Callable[[bytes | memoryview], Any] = enclosed if is_searched else entries_of

        def evaluate(properties: bytes | memoryview) -> bool | None:
            result: bool | None = value(prepare(properties))
            return result

        def matches(properties: bytes | memoryview) -> bool:
            try:
                return value(prepare(properties)) is True
            except EvaluationError:
                return False

        self.evaluate = evaluate
        self.matches = matches

    @classmethod
    def compile(cls, text: str) -> Self:
        """Return the compiled filter. Raises ExpressionError if `text` is not a condition."""
        return cls(text, parse(text))

    def __repr__(self) -> str:
        return f"<Sql92Filter {self.text!r}>"
