"""Tokens -> nodes, with the checks that need no message.

    any        = all { OR all }
    all        = equality { AND equality }
    equality   = order { "=" order | "<>" order | IS [NOT] NULL }
    order      = signed { (">" | ">=" | "<" | "<=") signed | [NOT] BETWEEN signed AND signed
                        | [NOT] IN "(" text { "," text } ")" | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text }
    signed     = "+" signed | "-" signed | NOT signed | primary
    primary    = text | number | TRUE | FALSE | NULL | name | "(" any ")"

So NOT binds more tightly than a comparison: `NOT a = 5` is `(NOT a) = 5`. Text after a complete expression is ignored.

The parser rejects expressions that no message can match: an order comparison with a text, a truth value or a condition;
equality with the word NULL (instead of IS NULL); equality of a truth value on the left with another literal; BETWEEN
(but not NOT BETWEEN) with its ends in the wrong order; IN with anything but a property on its left; a value where a
condition is expected.

The length of an expression, its number of tokens and its nesting are limited: the broker's only thread compiles the
expression, and tests every message with it. Source: docs/reference/wire.md, "SQL92 expressions".
"""

import math
from collections.abc import Callable
from typing import Final

from skylarkmq.protocol.filters.sql92.errors import ExpressionError
from skylarkmq.protocol.filters.sql92.lexer import FLOAT, NAME, TEXT, WHOLE, Lexer, Token
from skylarkmq.protocol.filters.sql92.nodes import (
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
    Type,
    type_of,
)

MAX_CHARACTERS: Final = 32_768
MAX_TOKENS: Final = 2_000
MAX_DEPTH: Final = 64

_LARGEST_INT: Final = 2**31 - 1
_LARGEST_LONG: Final = 2**63 - 1
_MOST_DIGITS: Final = 19
_ORDERS: Final = frozenset((">", ">=", "<", "<="))
_HOLDS: Final = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH"))
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}


def parse(text: str) -> Node:
    """Return the condition in `text`. Raises ExpressionError."""
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"{len(text)} characters are too many, the limit is {MAX_CHARACTERS}", text, 0)
    return Parser(text).condition()


class Parser:
    """Parses one expression; `_token` is the next token."""

    __slots__ = ("_depth", "_lexer", "_token", "_tokens_left")

    def __init__(self, text: str) -> None:
        self._lexer = Lexer(text)
        self._token = self._lexer.next()
        self._tokens_left = MAX_TOKENS
        self._depth = 0

    def __repr__(self) -> str:
        return f"<Parser next={self._token}>"

    def condition(self) -> Node:
        """Return the whole expression, which must be a condition."""
        return self._as_condition(self._any())

    # ----------------------------------------------------------------------------------------------------- precedence

    def _any(self) -> Node:
        operands = self._joined("OR", self._all)
        return operands[0] if len(operands) == 1 else Any(operands[0].at, operands, self._height(*operands))

    def _all(self) -> Node:
        operands = self._joined("AND", self._equality)
        return operands[0] if len(operands) == 1 else All(operands[0].at, operands, self._height(*operands))

    def _joined(self, word: str, operand: Callable[[], Node]) -> tuple[Node, ...]:
        first = operand()
        if self._token.kind != word:
            return (first,)
        operands = [self._as_condition(first)]
        while self._token.kind == word:
            self._advance()
            operands.append(self._as_condition(operand()))
        return tuple(operands)

    def _equality(self) -> Node:
        node = self._order()
        while True:
            kind = self._token.kind
            if kind == "=":
                node = self._equal(node)
            elif kind == "<>":
                node = self._not(self._equal(node))
            elif kind == "IS":
                node = self._null_test(node)
            else:
                return node

    def _order(self) -> Node:
        node = self._signed()
        while True:
            kind = self._token.kind
            if kind in _ORDERS:
                mark = self._advance().text
                node = self._ordered(mark, node, self._signed())
            elif kind == "NOT" or kind == "BETWEEN" or kind == "IN" or kind in _HOLDS:
                node = self._tested(node)
            else:
                return node

    def _signed(self) -> Node:
        token = self._token
        if token.kind == "-":
            operand = self._nested(self._signed)
            return Negated(token.at, operand, self._height(operand))
        if token.kind == "NOT":
            return self._not(self._as_condition(self._nested(self._signed)))
        if token.kind == "+":
            return self._nested(self._signed)
        return self._primary()

    def _nested(self, inner: Callable[[], Node]) -> Node:
        """Parse `inner` after the next token, one nesting level deeper."""
        if self._depth >= MAX_DEPTH:
            raise self._too_deep()
        self._depth += 1
        self._advance()
        node = inner()
        self._depth -= 1
        return node

    def _primary(self) -> Node:
        token = self._token
        kind = token.kind
        if kind == "(":
            node = self._nested(self._any)
            self._expect(")", "a closing parenthesis")
            return node
        if kind == NAME:
            self._advance()
            return Property(token.at, token.text)
        if kind == TEXT:
            return Literal(token.at, Type.TEXT, self._text())
        if kind == WHOLE:
            return self._whole()
        if kind == FLOAT:
            return self._float()
        if kind in _CONSTANTS:
            self._advance()
            return Literal(token.at, Type.LOGIC, _CONSTANTS[token.text.upper()])
        raise self._unexpected("a property, a text, a number or a parenthesis")

    # ------------------------------------------------------------------------------------------------------- literals

    def _text(self) -> str:
        token = self._expect(TEXT, "a text in quotes")
        return token.text[1:-1].replace("''", "'")

    def _whole(self) -> Literal:
        token = self._advance()
        digits = token.text.rstrip("lL")
        if len(digits) > _MOST_DIGITS or int(digits) > _LARGEST_LONG:
            raise self._error(token, "a whole number has at most 64 bits")
        value = int(digits)
        return Literal(token.at, Type.INT if value <= _LARGEST_INT else Type.LONG, value)

    def _float(self) -> Literal:
        token = self._advance()
        value = float(token.text)
        if not 0.0 < value < math.inf:
            raise self._error(
                token, "a number with a point or an exponent must be finite and not 0: write 0 without a point"
            )
        return Literal(token.at, Type.DOUBLE, value)

    # ---------------------------------------------------------------------------------------------------- comparisons

    def _equal(self, left: Node) -> Node:
        """Parse = or <> and its right operand, after `left`."""
        token = self._advance()
        right = self._order()
        for side in (left, right):
            if isinstance(side, Literal) and side.value is None:
                raise self._error(side, "nothing is equal to NULL: write IS NULL")
        if isinstance(left, Literal) and isinstance(right, Literal) and _is_truth(left) and not _is_truth(right):
            raise self._error(token, "TRUE and FALSE are never equal to a text or a number")
        return Equal(left.at, left, right, self._height(left, right))

    def _null_test(self, left: Node) -> Node:
        """Parse IS NULL or IS NOT NULL, after `left`."""
        self._advance()
        is_negated = self._token.kind == "NOT"
        if is_negated:
            self._advance()
        token = self._expect("NULL", "NULL" if is_negated else "NULL or NOT NULL")
        test = Equal(left.at, left, Literal(token.at, Type.LOGIC, None), self._height(left))
        return self._not(test) if is_negated else test

    def _ordered(self, mark: str, left: Node, right: Node) -> Node:
        for side in (left, right):
            if type_of(side) is Type.LOGIC or (isinstance(side, Literal) and type_of(side) is Type.TEXT):
                raise self._error(side, f"only properties and numbers can be compared by {mark}")
        return Ordered(left.at, mark, left, right, self._height(left, right))

    def _tested(self, left: Node) -> Node:
        """Parse [NOT] BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH, after `left`."""
        is_negated = self._token.kind == "NOT"
        if is_negated:
            self._advance()
        kind = self._token.kind
        if kind == "BETWEEN":
            return self._between(left, is_negated)
        if kind == "IN":
            return self._one_of(left, is_negated)
        if kind in _HOLDS:
            how = self._advance().text.upper()
            return Holds(left.at, how, left, self._text(), is_negated, self._height(left))
        raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")

    def _between(self, value: Node, is_negated: bool) -> Node:
        token = self._advance()
        low = self._signed()
        self._expect("AND", "AND between the two limits")
        high = self._signed()
        if is_negated:
            outside = (self._ordered("<", value, low), self._ordered(">", value, high))
            return Any(value.at, outside, self._height(*outside))
        inside = (self._ordered(">=", value, low), self._ordered("<=", value, high))
        self._check_ends(token, low, high)
        return All(value.at, inside, self._height(*inside))

    def _check_ends(self, token: Token, low: Node, high: Node) -> None:
        """Check literal ends, which are numbers here; an end with a sign is not a literal and is not checked."""
        if isinstance(low, Literal) and isinstance(high, Literal):
            ends = low.value, high.value
            if Type.DOUBLE in (low.type, high.type):
                ends = float(low.value or 0), float(high.value or 0)
            if ends[0] > ends[1]:  # type: ignore[operator]  # numbers, see above
                raise self._error(token, "BETWEEN requires the smaller number first")

    def _one_of(self, operand: Node, is_negated: bool) -> Node:
        token = self._advance()
        if not isinstance(operand, Property):
            raise self._error(token, "only a property can be tested by IN")
        self._expect("(", "an opening parenthesis")
        values = [self._text()]
        while self._token.kind == ",":
            self._advance()
            values.append(self._text())
        self._expect(")", "a comma or a closing parenthesis")
        return OneOf(operand.at, operand, tuple(values), is_negated, self._height(operand))

    # ---------------------------------------------------------------------------------------------------------- nodes

    def _not(self, operand: Node) -> Node:
        return Not(operand.at, operand, self._height(operand))

    def _as_condition(self, node: Node) -> Node:
        if isinstance(node, Property):
            return IsTrue(node.at, node, self._height(node))
        if type_of(node) is not Type.LOGIC:
            raise self._error(node, "expected a condition, found a value")
        return node

    def _height(self, *children: Node) -> int:
        height = 1 + max(child.height for child in children)
        if height > MAX_DEPTH:
            raise self._too_deep()
        return height

    # --------------------------------------------------------------------------------------------------------- tokens

    def _advance(self) -> Token:
        token = self._token
        self._tokens_left -= 1
        if not self._tokens_left:
            raise self._error(token, f"more than {MAX_TOKENS} tokens")
        self._token = self._lexer.next()
        return token

    def _expect(self, kind: str, what: str) -> Token:
        if self._token.kind != kind:
            raise self._unexpected(what)
        return self._advance()

    def _unexpected(self, wanted: str) -> ExpressionError:
        return self._error(self._token, f"expected {wanted}, found {self._token}")

    def _too_deep(self) -> ExpressionError:
        return self._error(self._token, f"nested deeper than {MAX_DEPTH}")

    def _error(self, place: Token | Node, reason: str) -> ExpressionError:
        return ExpressionError(reason, self._lexer.text, place.at)


def _is_truth(node: Literal) -> bool:
    return node.type is Type.LOGIC
