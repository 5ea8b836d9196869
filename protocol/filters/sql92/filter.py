"""Sql92Filter: an expression, compiled.

Compiling takes some ten microseconds for each comparison, once for each subscription. `matches` is called for every
message, with its property string as it stands in the record.

What a call may cost is told beforehand, so that whoever tests many messages in a row can stop in time: a part for the
expression, and one for each KiB of properties, which are searched once for each property that the expression names, or
taken apart once if it names more than MOST_SEARCHES.
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
    """`matches(properties)`: whether a message with that property string is wanted. Never raises.

    `evaluate` is the same with all that may come of it: True, False, None for unknown, or EvaluationError.
    `cost_ns` and `cost_ns_per_kib`: see the module's story.
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
        """ExpressionError if `text` is no condition."""
        return cls(text, parse(text))

    def __repr__(self) -> str:
        return f"<Sql92Filter {self.text!r}>"
