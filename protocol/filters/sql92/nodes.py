"""The nodes of an expression.

Every node has its `height`, which bounds the recursion of functions that walk the tree, and its position in the text
(`at`), for errors. BETWEEN, <>, IS NULL and their opposites are built from the other nodes.

`type_of` returns the type of a node's value when it is not None. Only properties and logic depend on the message.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, TypeAlias

import msgspec


class Type(Enum):
    """Types of values. A number has the type of the literal that it comes from."""

    TEXT = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    LOGIC = auto()
    NOTHING = auto()  # always None


class Property(msgspec.Struct, frozen=True):
    """The text of a property; None without the property."""

    at: int
    name: str
    height: int = 1


class Literal(msgspec.Struct, frozen=True):
    """A value in the expression; `value` None is NULL."""

    at: int
    type: Type
    value: str | int | float | bool | None
    height: int = 1


class Negated(msgspec.Struct, frozen=True):
    """`-operand`; None if the operand is not a number."""

    at: int
    operand: "Node"
    height: int


class IsTrue(msgspec.Struct, frozen=True):
    """A property where a condition is expected. Its value is text, so the result is False; None without the
    property."""

    at: int
    operand: Property
    height: int


class Not(msgspec.Struct, frozen=True):
    """NOT: the opposite; None of None."""

    at: int
    operand: "Node"
    height: int


class All(msgspec.Struct, frozen=True):
    """Operands joined by AND."""

    at: int
    operands: tuple["Node", ...]
    height: int


class Any(msgspec.Struct, frozen=True):
    """Operands joined by OR."""

    at: int
    operands: tuple["Node", ...]
    height: int


class Equal(msgspec.Struct, frozen=True):
    """`left = right`, or `left IS NULL`, with the literal NULL as the right side."""

    at: int
    left: "Node"
    right: "Node"
    height: int


class Ordered(msgspec.Struct, frozen=True):
    """`left mark right`; the mark is one of < <= > >=."""

    at: int
    mark: str
    left: "Node"
    right: "Node"
    height: int


class OneOf(msgspec.Struct, frozen=True):
    """`operand IN (values)`."""

    at: int
    operand: Property
    values: tuple[str, ...]
    is_negated: bool
    height: int


class Holds(msgspec.Struct, frozen=True):
    """`operand how 'piece'`, where how is CONTAINS, STARTSWITH or ENDSWITH."""

    at: int
    how: str
    operand: "Node"
    piece: str
    is_negated: bool
    height: int


Node: TypeAlias = Property | Literal | Negated | IsTrue | Not | All | Any | Equal | Ordered | OneOf | Holds

NUMBERS: Final = frozenset((Type.INT, Type.LONG, Type.DOUBLE))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    yield node
    for child in _children(node):
        yield from walk(child)


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Property | Literal):
        return ()
    if isinstance(node, All | Any):
        return node.operands
    if isinstance(node, Equal | Ordered):
        return node.left, node.right
    return (node.operand,)


def type_of(node: Node) -> Type:
    """Return the type of a node's value."""
    if isinstance(node, Property):
        return Type.TEXT
    if isinstance(node, Literal):
        return node.type
    if isinstance(node, Negated):
        return kind if (kind := type_of(node.operand)) in NUMBERS else Type.NOTHING
    return Type.LOGIC
