"""Nodes -> functions.

A function takes the prepared property string (see `properties.py`) and returns the value of its node: text as bytes, a
number, True, False or None. The type of a node and the types below it select its function. The most common case, the
comparison of a property with a literal, has functions of its own.

The call depth is at most the height of the tree. Source: docs/reference/wire.md, "SQL92 expressions".
"""

import operator
from collections.abc import Callable
from typing import Any as AnyValue
from typing import Final, TypeAlias

from skylarkmq.protocol.filters.sql92.comparing import Convert, for_equality, for_order
from skylarkmq.protocol.filters.sql92.nodes import (
    NUMBERS,
    All,
    Any,
    Equal,
    Holds,
    IsTrue,
    Literal,
    Negated,
    Node,
    Not,
    OneOf,
    Ordered,
    Property,
    type_of,
)
from skylarkmq.protocol.filters.sql92.properties import Find

Value: TypeAlias = Callable[[AnyValue], AnyValue]
Compare = Callable[[AnyValue, AnyValue], bool]

_COMPARE: Final[dict[str, Compare]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HOLDS: Final[dict[str, Compare]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": bytes.startswith,
    "ENDSWITH": bytes.endswith,
}


class Builder:
    """Builds the functions of nodes. `find_of(name)` returns the function that finds a property."""

    def __init__(self, find_of: Callable[[str], Find]) -> None:
        self._find_of = find_of
        self._finds: dict[str, Find] = {}

    def __repr__(self) -> str:
        return f"<Builder properties={len(self._finds)}>"

    def build(self, node: Node) -> Value:
        """Return the function of a node."""
        return _BUILDERS[type(node)](self, node)

    def property(self, node: Property) -> Value:
        """Return the property's text."""
        if node.name not in self._finds:
            self._finds[node.name] = self._find_of(node.name)
        return self._finds[node.name]

    def literal(self, node: Literal) -> Value:
        """Return the literal's value for every message."""
        return _constant(constant_of(node))

    def negated(self, node: Negated) -> Value:
        """Return the negative number; None if the operand is not a number of the expression."""
        number = constant_of(node)
        if number is not None:
            return _constant(number)
        operand = self.build(node.operand)

        def nothing(text: AnyValue) -> None:
            operand(text)  # for its errors only

        return nothing

    def is_true(self, node: IsTrue) -> Value:
        """Return False, or None without the property: no text is true."""
        find = self.property(node.operand)

        def is_true(text: AnyValue) -> bool | None:
            return None if find(text) is None else False

        return is_true

    def not_(self, node: Not) -> Value:
        """Return the opposite; None of None."""
        operand = self.build(node.operand)

        def not_(text: AnyValue) -> bool | None:
            value = operand(text)
            return None if value is None else not value

        return not_

    def all(self, node: All) -> Value:
        """Return False at the first operand that is False, else None if one is None, else True."""
        operands = tuple(map(self.build, node.operands))

        def all_(text: AnyValue) -> bool | None:
            result: bool | None = True
            for operand in operands:
                value = operand(text)
                if value is None:
                    result = None
                elif not value:
                    return False
            return result

        return all_

    def any(self, node: Any) -> Value:
        """Return True at the first operand that is True, else None if one is None, else False."""
        operands = tuple(map(self.build, node.operands))

        def any_(text: AnyValue) -> bool | None:
            result: bool | None = False
            for operand in operands:
                value = operand(text)
                if value is None:
                    result = None
                elif value:
                    return True
            return result

        return any_

    def equal(self, node: Equal) -> Value:
        """Return True if both sides are missing. Otherwise return None without the left side, False without the
        right."""
        converts = for_equality(type_of(node.left), type_of(node.right))
        constant = constant_of(node.right)
        if isinstance(node.left, Property) and constant is not None:
            return _against(self.property(node.left), converts[0], operator.eq, constant)
        left, right = self.build(node.left), self.build(node.right)
        convert_left, convert_right = _or_as_it_is(converts)

        def equal(text: AnyValue) -> bool | None:
            one, other = left(text), right(text)
            if one is None:
                return True if other is None else None
            return False if other is None else convert_left(one) == convert_right(other)

        return equal

    def ordered(self, node: Ordered) -> Value:
        """Return None unless both sides have a value."""
        converts = for_order(type_of(node.left), type_of(node.right))
        low, high = constant_of(node.left), constant_of(node.right)
        if isinstance(node.left, Property) and high is not None:
            return _against(self.property(node.left), converts[0], _COMPARE[node.mark], high)
        if isinstance(node.right, Property) and low is not None:
            return _against(self.property(node.right), converts[1], _COMPARE[_MIRRORED[node.mark]], low)
        left, right, compare = self.build(node.left), self.build(node.right), _COMPARE[node.mark]
        convert_left, convert_right = _or_as_it_is(converts)

        def ordered(text: AnyValue) -> bool | None:
            one = left(text)
            if one is None:
                return None  # the right side is not evaluated, so its errors do not count
            other = right(text)
            return None if other is None else compare(convert_left(one), convert_right(other))

        return ordered

    def one_of(self, node: OneOf) -> Value:
        """Return whether the text is one of the values."""
        values = frozenset(map(encoded, node.values))
        find, is_negated = self.property(node.operand), node.is_negated

        def one_of(text: AnyValue) -> bool | None:
            value = find(text)
            return None if value is None else (value in values) is not is_negated

        return one_of

    def holds(self, node: Holds) -> Value:
        """Return False, negated or not, if the operand is missing or not text, or if the piece is empty."""
        if not node.piece:
            return _constant(False)
        operand, piece = self.build(node.operand), encoded(node.piece)
        holds, is_negated = _HOLDS[node.how], node.is_negated

        def holds_piece(text: AnyValue) -> bool:
            value = operand(text)
            return type(value) is bytes and holds(value, piece) is not is_negated

        return holds_piece


_BUILDERS: Final[dict[type, Callable[[Builder, AnyValue], Value]]] = {
    Property: Builder.property,
    Literal: Builder.literal,
    Negated: Builder.negated,
    IsTrue: Builder.is_true,
    Not: Builder.not_,
    All: Builder.all,
    Any: Builder.any,
    Equal: Builder.equal,
    Ordered: Builder.ordered,
    OneOf: Builder.one_of,
    Holds: Builder.holds,
}


def constant_of(node: Node) -> AnyValue:
    """Return the value of a literal, including its signs; None if it has no value or depends on the message."""
    if isinstance(node, Literal):
        return encoded(node.value) if isinstance(node.value, str) else node.value
    if isinstance(node, Negated) and type_of(node) in NUMBERS:
        return -constant_of(node.operand)
    return None


def encoded(text: str) -> bytes:
    """Return the text's encoding in a property string. A text with half a surrogate pair never matches."""
    return text.encode("utf-8", "surrogatepass")


def _constant(value: AnyValue) -> Value:
    def constant(_text: AnyValue) -> AnyValue:
        return value

    return constant


def _or_as_it_is(converts: tuple[Convert, Convert]) -> tuple[Value, Value]:
    return converts[0] or _as_it_is, converts[1] or _as_it_is


def _as_it_is(value: AnyValue) -> AnyValue:
    return value


def _against(find: Find, convert: Convert, compare: Compare, constant: AnyValue) -> Value:
    """Return the function that compares a property with a literal."""
    if convert is None:

        def same_text(text: AnyValue) -> bool | None:
            value = find(text)
            return None if value is None else value == constant

        return same_text

    def against(text: AnyValue) -> bool | None:
        value = find(text)
        return None if value is None else compare(convert(value), constant)

    return against
