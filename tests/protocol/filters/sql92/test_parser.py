"""Which expressions compile, how they are parsed, and the errors of the others."""

import pytest

from skylarkmq.protocol.filters.sql92.errors import ExpressionError
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
)
from skylarkmq.protocol.filters.sql92.parser import MAX_CHARACTERS, MAX_DEPTH, MAX_TOKENS, parse


def written(node: Node) -> str:
    """Return the node's text with all its parentheses."""
    if isinstance(node, All | Any):
        mark = " & " if isinstance(node, All) else " | "
        return f"({mark.join(map(written, node.operands))})"
    if isinstance(node, Equal | Ordered):
        mark = node.mark if isinstance(node, Ordered) else "="
        return f"({written(node.left)} {mark} {written(node.right)})"
    if isinstance(node, OneOf | Holds):
        test = f"in {' '.join(node.values)}" if isinstance(node, OneOf) else f"{node.how} {node.piece}"
        return f"{'!' * node.is_negated}({written(node.operand)} {test})"
    return written_alone(node)


def written_alone(node: Property | Literal | Negated | IsTrue | Not) -> str:
    if isinstance(node, Property):
        return node.name
    if isinstance(node, Literal):
        return repr(node.value)
    operand = written(node.operand)
    return f"{operand}?" if isinstance(node, IsTrue) else f"{'!' if isinstance(node, Not) else '-'}{operand}"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a = 1 OR b = 2 AND c = 3", "((a = 1) | ((b = 2) & (c = 3)))"),
        ("(a = 1 OR b = 2) AND c = 3", "(((a = 1) | (b = 2)) & (c = 3))"),
        ("a OR b OR c AND TRUE", "(a? | b? | (c? & True))"),
        ("NOT a = 5", "(!a? = 5)"),
        ("NOT (a = 5)", "!(a = 5)"),
        ("a <> 5", "!(a = 5)"),
        ("a < 5 = b > 3", "((a < 5) = (b > 3))"),
        ("a = 5 = TRUE", "((a = 5) = True)"),
        ("a IS NULL", "(a = None)"),
        ("a IS NOT NULL", "!(a = None)"),
        ("a BETWEEN 1 AND 5 AND b", "(((a >= 1) & (a <= 5)) & b?)"),
        ("a NOT BETWEEN 5 AND 1", "((a < 5) | (a > 1))"),
        ("a BETWEEN 5 AND -1", "((a >= 5) & (a <= -1))"),
        ("a IN ('x', 'it''s')", "(a in x it's)"),
        ("(+a) not in ('x')", "!(a in x)"),
        ("a CONTAINS 'x'", "(a CONTAINS x)"),
        ("a not startswith 'x'", "!(a STARTSWITH x)"),
        ("'abc' ENDSWITH 'c'", "('abc' ENDSWITH c)"),
        ("- -5 < +a", "(--5 < a)"),
        ("-a = 5", "(-a = 5)"),
        ("a > 5.", "(a > 5.0)"),
        ("a = 9223372036854775807L", "(a = 9223372036854775807)"),
        ("NULL", "None"),
        ("a LIKE 'x' AND (", "a?"),
        ("a = 5)", "(a = 5)"),
        ("a = 012", "(a = 0)"),
    ],
)
def test_precedence(text: str, meaning: str) -> None:
    """Precedence is OR, AND, equality, order, sign and NOT; text after a complete expression is ignored."""
    assert written(parse(text)) == meaning


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "1:1: expected a property, a text, a number or a parenthesis, found the end"),
        ("a = 5 AND", "1:10: expected a property, a text, a number or a parenthesis, found the end"),
        ("a = \n )", "2:2: expected a property, a text, a number or a parenthesis, found ')'"),
        ("(a = 5", "1:7: expected a closing parenthesis, found the end"),
        ("a IS 5", "1:6: expected NULL or NOT NULL, found '5'"),
        ("a IS NOT 5", "1:10: expected NULL, found '5'"),
        ("a NOT LIKE 'x'", "1:7: expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH, found 'LIKE'"),
        ("a IN ()", "1:7: expected a text in quotes, found ')'"),
        ("a IN ('x' 'y')", "1:11: expected a comma or a closing parenthesis, found \"'y'\""),
        ("a IN 5", "1:6: expected an opening parenthesis, found '5'"),
        ("-a IN ('5')", "1:4: only a property can be tested by IN"),
        ("a BETWEEN 1 OR 2", "1:13: expected AND between the two limits, found 'OR'"),
        ("a BETWEEN 5 AND 3", "1:3: BETWEEN requires the smaller number first"),
        ("a BETWEEN 5 AND 4.9", "1:3: BETWEEN requires the smaller number first"),
        ("a CONTAINS b", "1:12: expected a text in quotes, found 'b'"),
        ("5", "1:1: expected a condition, found a value"),
        ("a AND 'x'", "1:7: expected a condition, found a value"),
        ("NOT -a", "1:5: expected a condition, found a value"),
        ("a > 'x'", "1:5: only properties and numbers can be compared by >"),
        ("TRUE < a", "1:1: only properties and numbers can be compared by <"),
        ("a > 5 >= 3", "1:1: only properties and numbers can be compared by >="),
        ("a <= NULL", "1:6: only properties and numbers can be compared by <="),
        ("a = NULL", "1:5: nothing is equal to NULL: write IS NULL"),
        ("TRUE = 5", "1:6: TRUE and FALSE are never equal to a text or a number"),
        ("a = 9223372036854775808", "1:5: a whole number has at most 64 bits"),
        ("a = 0.0", "1:5: a number with a point or an exponent must be finite and not 0: write 0 without a point"),
        ("a = 1e400", "1:5: a number with a point or an exponent must be finite and not 0: write 0 without a point"),
        ("contains = 5", "1:1: expected a property, a text, a number or a parenthesis, found 'contains'"),
        ("a = 5 #", "1:7: unexpected character '#'"),
    ],
)
def test_errors_have_position_and_reason(text: str, what: str) -> None:
    """An expression that can never match does not compile; the error has line, column and reason."""
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    error = caught.value
    assert f"{error.line}:{error.column}: {error.reason}" == what


@pytest.mark.parametrize("before", ["(", "NOT ", "- ", "+"])
def test_nesting_is_limited(before: str) -> None:
    """Nesting is limited to MAX_DEPTH, whatever is nested."""
    assert parse("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH).height == 2
    with pytest.raises(ExpressionError, match="nested deeper than 64"):
        parse(before * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1))
    with pytest.raises(ExpressionError, match="nested deeper than 64"):
        parse(before * 6_000 + "a" + ")" * 6_000)


def test_a_chain_of_equalities_counts_as_nesting() -> None:
    """A chain of equalities is as deep as it is long; chains of AND and OR are not."""
    with pytest.raises(ExpressionError, match="nested deeper than 64"):
        parse("a" + " = 1" * (MAX_DEPTH + 1))
    assert parse("a" + " AND a" * 400).height < 5


def test_length_and_tokens_are_limited() -> None:
    """A text of a megabyte is rejected before it is parsed; too many tokens are rejected too."""
    with pytest.raises(ExpressionError, match=f"the limit is {MAX_CHARACTERS}"):
        parse("a = 1 AND " * 100_000 + "b")
    assert parse("a = 'x" + "x" * 30_000 + "'").height == 2
    with pytest.raises(ExpressionError, match=f"more than {MAX_TOKENS} tokens"):
        parse("a=1 OR " * (MAX_TOKENS // 4) + "b")


def test_unterminated_line_comments_are_searched_for_once() -> None:
    """Unterminated line comments are searched for only once."""
    with pytest.raises(ExpressionError, match="nested deeper"):
        parse("--" * (MAX_CHARACTERS // 2))
