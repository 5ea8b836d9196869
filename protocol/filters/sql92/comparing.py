"""Comparison of two values, by their types: how each side is converted before Python's own operator compares them.

    text, text          equality by the bytes; order as floats
    text, number        the text as a number of that type
    numbers             as the wider type
    text, TRUE/FALSE    the text is true if it is `true` in any case; only with the text on the left, and only equality
    TRUE/FALSE, text    an error
    truth, number       never equal

Source: docs/reference/wire.md, "SQL92 expressions".
"""

from collections.abc import Callable
from typing import Any, Final

from skylarkmq.protocol.filters.sql92.errors import EvaluationError
from skylarkmq.protocol.filters.sql92.nodes import NUMBERS, Type
from skylarkmq.protocol.filters.sql92.numbers import double_for_literal, double_in_order, int32, int64

Convert = Callable[[Any], Any] | None
"""None: no conversion."""

_AS_NUMBER: Final[dict[Type, Callable[[bytes], Any]]] = {
    Type.INT: int32,
    Type.LONG: int64,
    Type.DOUBLE: double_for_literal,
}


def for_equality(left: Type, right: Type) -> tuple[Convert, Convert]:
    """Return the conversions for values of these types before a comparison by =."""
    if left is right:
        return None, None
    if left is Type.TEXT and right is Type.LOGIC:
        return _truth, None
    if left is Type.LOGIC and right is Type.TEXT:
        return _cannot_compare, None
    if Type.LOGIC in (left, right):
        return _nothing_equal, None
    return for_order(left, right)


def for_order(left: Type, right: Type) -> tuple[Convert, Convert]:
    """Return the conversions for texts and numbers of these types before a comparison by <, <=, > or >=."""
    if left is Type.TEXT:
        return (double_in_order, double_in_order) if right is Type.TEXT else (_AS_NUMBER.get(right), None)
    if right is Type.TEXT:
        return None, _AS_NUMBER.get(left)
    if left is not right and Type.DOUBLE in (left, right) and {left, right} <= NUMBERS:
        return float, float
    return None, None


def _truth(text: bytes) -> bool:
    return text.lower() == b"true"


def _nothing_equal(_value: Any) -> object:
    return object()


def _cannot_compare(_value: Any) -> Any:
    raise EvaluationError("a condition cannot be compared with a text")
