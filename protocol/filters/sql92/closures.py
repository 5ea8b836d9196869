"""Nodes -> functions.

A function takes what the property string was made into (`properties.py`) and returns its node's value: a text as bytes,
a number, True, False or None. Which function a node becomes is decided by its kind and the types below it. The case
that every filter consists of, a property against a literal, has functions of its own.

Functions call each other no deeper than the tree is high. Source: docs/formats.md, "SQL92 expressions".
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
    """Makes functions; `find_of` makes the one that finds a property."""

    def __init__(self, find_of: Callable[[str], Find]) -> None:
        self._find_of = find_of
        self._finds: dict[str, Find] = {}

    def __repr__(self) -> str:
        return f"<Builder properties={len(self._finds)}>"

    def build(self, node: Node) -> Value:
        """The function of a node."""
        return _BUILDERS[type(node)](self, node)

    def property(self, node: Property) -> Value:
        """Its text."""
        if node.name not in self._finds:
            self._finds[node.name] = self._find_of(node.name)
        return self._finds[node.name]

    def literal(self, node: Literal) -> Value:
        """The same for every message."""
        return _constant(constant_of(node))

    def negated(self, node: Negated) -> Value:
        """A number from the expression, or nothing."""
        number = constant_of(node)
        if number is not None:
            return _constant(number)
        operand = self.build(node.operand)

        def nothing(text: AnyValue) -> None:
            operand(text)  # which may be an error

        return nothing

    def is_true(self, node: IsTrue) -> Value:
        """No text is true."""
        find = self.property(node.operand)

        def is_true(text: AnyValue) -> bool | None:
            return None if find(text) is None else False

        return is_true

    def not_(self, node: Not) -> Value:
        """The opposite."""
        operand = self.build(node.operand)

        def not_(text: AnyValue) -> bool | None:
            value = operand(text)
            return None if value is None else not value

        return not_

    def all(self, node: All) -> Value:
        """False as soon as one is."""
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
        """True as soon as one is."""
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
        """True if both are missing; else None without the left one, and False without the right one."""
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
        """None without both."""
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
                return None  # whatever the right side is, an error too
            other = right(text)
            return None if other is None else compare(convert_left(one), convert_right(other))

        return ordered

    def one_of(self, node: OneOf) -> Value:
        """Whether the text is among some."""
        values = frozenset(map(encoded, node.values))
        find, is_negated = self.property(node.operand), node.is_negated

        def one_of(text: AnyValue) -> bool | None:
            value = find(text)
            return None if value is None else (value in values) is not is_negated

        return one_of

    def holds(self, node: Holds) -> Value:
        """False for what is missing or no text, and for no piece, negated or not."""
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
    """The value of a literal, with its signs; None if there is none, or it depends on the message."""
    if isinstance(node, Literal):
        return encoded(node.value) if isinstance(node.value, str) else node.value
    if isinstance(node, Negated) and type_of(node) in NUMBERS:
        return -constant_of(node.operand)
    return None


def encoded(text: str) -> bytes:
    """As it would stand in a property string; half a surrogate pair is found in none."""
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
    """A property against a literal."""
    if convert is None:

        def same_text(text: AnyValue) -> bool | None:
            value = find(text)
            return None if value is None else value == constant

        return same_text

    def against(text: AnyValue) -> bool | None:
        value = find(text)
        return None if value is None else compare(convert(value), constant)

    return against
