"""A naive evaluator of expressions, as a reference for the compiled ones.

Expressions are tuples, as the tests generate them: `(">", ("name", "a"), ("int", 5))`. `value` evaluates such a tuple
for a dict of properties, by the rules of docs/reference/wire.md, "SQL92 expressions", one rule per line, without regard
to speed; `written` returns its text. It shares nothing with the package but the words True, False and None.
"""

import re
from collections.abc import Callable
from typing import Any

Tree = tuple[Any, ...]
QUOTE = "'"
WIDTHS = {"int": 31, "long": 63}


class CannotCompare(Exception):
    """An evaluation error."""


def written(tree: Tree) -> str:
    """Return the expression's text, with parentheses around everything except names and literals."""
    kind, *parts = tree
    if kind == "truth":
        return str(parts[0]).upper()
    if kind == "text":
        return f"'{parts[0].replace(QUOTE, QUOTE + QUOTE)}'"
    if kind == "NOT":
        return f"NOT ({written(parts[0])})"
    if kind in TESTS:
        return f"({parts[0] if isinstance(parts[0], str) else written(parts[0])}{written_test(kind, *parts[1:])})"
    if len(parts) == 2:
        return f"({written(parts[0])} {kind} {written(parts[1])})"
    return str(parts[0])


def written_test(kind: str, *parts: Any) -> str:
    """Return the text after the operand; the last part is true for NOT."""
    word = " NOT" if parts[-1] else ""
    if kind == "null":
        return f" IS{word} NULL"
    if kind == "in":
        return f"{word} IN ({', '.join(written(('text', text)) for text in parts[0])})"
    if kind == "between":
        return f"{word} BETWEEN {written(parts[0])} AND {written(parts[1])}"
    return f"{word} {kind} {written(('text', parts[0]))}"


def condition(tree: Tree, properties: dict[str, str]) -> bool | None:
    """Return the value of a condition; a bare property is a condition too."""
    result = value(tree, properties)
    return False if isinstance(result, str) else result


def value(tree: Tree, properties: dict[str, str]) -> Any:
    """Return the value of any expression."""
    kind, *parts = tree
    rule = RULES.get(kind)
    return parts[0] if rule is None else rule(kind, parts, properties)


def name(_kind: str, parts: list[Any], properties: dict[str, str]) -> str | None:
    return properties.get(parts[0]) or None


def not_(_kind: str, parts: list[Any], properties: dict[str, str]) -> bool | None:
    return opposite(condition(parts[0], properties))


def null(_kind: str, parts: list[Any], properties: dict[str, str]) -> bool:
    is_null: bool = value(parts[0], properties) is None
    return is_null is not parts[1]


def one_of(kind: str, parts: list[Any], properties: dict[str, str]) -> bool | None:
    text = name(kind, parts, properties)
    return None if text is None else (text in parts[1]) is not parts[2]


def opposite(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def joined(kind: str, parts: list[Tree], properties: dict[str, str]) -> bool | None:
    """Evaluate left to right; the right side is not evaluated if the left side decides."""
    deciding = kind == "OR"
    left = condition(parts[0], properties)
    if left is deciding:
        return deciding
    right = condition(parts[1], properties)
    if right is deciding:
        return deciding
    return None if left is None or right is None else not deciding


def holds(kind: str, parts: list[Any], properties: dict[str, str]) -> bool:
    text, piece, is_negated = name(kind, parts, properties), parts[1], parts[2]
    if text is None or not piece:
        return False
    found = {"CONTAINS": piece in text, "STARTSWITH": text.startswith(piece), "ENDSWITH": text.endswith(piece)}[kind]
    return found is not is_negated


def between(_kind: str, parts: list[Any], properties: dict[str, str]) -> bool | None:
    operand, low, high, is_negated = parts
    tests: list[Tree] = [("<" if is_negated else ">=", operand, low), (">" if is_negated else "<=", operand, high)]
    return joined("OR" if is_negated else "AND", tests, properties)


def equal(kind: str, parts: list[Any], properties: dict[str, str]) -> bool | None:
    result = are_equal(parts[0], parts[1], properties)
    return result if kind == "=" else opposite(result)


def are_equal(left: Tree, right: Tree, properties: dict[str, str]) -> bool | None:
    one, other = value(left, properties), value(right, properties)
    if one is None and other is None:
        return True
    if one is None:
        return None
    if other is None:
        return False
    if isinstance(one, str) and isinstance(other, bool):
        return (one.lower() == "true") == other
    if isinstance(one, bool) and isinstance(other, str):
        raise CannotCompare
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    one, other = as_numbers(left, one, right, other)
    return bool(one == other)


def ordered(mark: str, parts: list[Any], properties: dict[str, str]) -> bool | None:
    left, right = parts
    one, other = value(left, properties), value(right, properties)
    if one is None or other is None:
        return None
    one, other = as_numbers(left, one, right, other)
    return bool({"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[mark])


def as_numbers(left: Tree, one: Any, right: Tree, other: Any) -> tuple[Any, Any]:
    kinds = left[0], right[0]
    wanted = next((kind for kind in kinds if kind in ("int", "long", "double")), "double")
    return number(one, wanted), number(other, wanted)


def number(given: Any, kind: str) -> Any:
    """Return a literal's number, or a text as a literal of this type."""
    if not isinstance(given, str):
        return given
    if kind != "double" and re.fullmatch(r"[-+]?[0-9]+", given):
        if -(2 ** WIDTHS[kind]) <= int(given) < 2 ** WIDTHS[kind]:
            return int(given)
    elif kind == "double" and re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", given):
        return float(given)
    raise CannotCompare


TESTS = ("in", "between", "null", "CONTAINS", "STARTSWITH", "ENDSWITH")
RULES: dict[str, Callable[[str, list[Any], dict[str, str]], Any]] = {
    "name": name,
    "NOT": not_,
    "null": null,
    "in": one_of,
    "between": between,
    **dict.fromkeys(("AND", "OR"), joined),
    **dict.fromkeys(("CONTAINS", "STARTSWITH", "ENDSWITH"), holds),
    **dict.fromkeys(("=", "<>"), equal),
    **dict.fromkeys(("<", "<=", ">", ">="), ordered),
}
