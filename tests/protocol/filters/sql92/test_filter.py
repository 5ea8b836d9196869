"""Compiled expressions: compared with a naive evaluator, and applied to property strings of records."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylarkmq.protocol.filters.sql92.errors import EvaluationError, ExpressionError
from skylarkmq.protocol.filters.sql92.filter import MOST_SEARCHES, Sql92Filter
from skylarkmq.protocol.message import encode_properties
from tests.harness.rounds import rounds
from tests.protocol.filters.sql92.naive import CannotCompare, Tree, condition, written

NAMES = st.sampled_from(["a", "b", "c", "TAGS"])
PIECES = st.sampled_from(["", "x", "5", "it's", "ü", "true"])
TEXTS = st.one_of(
    st.sampled_from(
        ["5", "-3", "5.5", "x", "xyz", "it's", "true", "TRUE", "ü5", "+5", "1e2", "3000000000", "-2147483648"]
    ),
    st.integers(-(2**65), 2**65).map(str),
    st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs", "Nd"]), min_size=1, max_size=4),
)

properties_maps = st.dictionaries(NAMES, TEXTS, max_size=4)

names = NAMES.map(lambda name: ("name", name))
numbers = st.one_of(
    st.integers(-10, 10).map(lambda n: ("int", n)),
    st.integers(2**31, 2**40).map(lambda n: ("long", n)),
    st.sampled_from([5.5, -3.25, 100.0, 0.125, 1e20]).map(lambda x: ("double", x)),
)
texts = PIECES.map(lambda text: ("text", text))
truths = st.booleans().map(lambda truth: ("truth", truth))

leaves = st.one_of(
    names,
    st.tuples(st.sampled_from(["=", "<>"]), names, st.one_of(names, numbers, texts, truths)),
    st.tuples(st.sampled_from(["=", "<>"]), st.one_of(numbers, texts), names),
    st.tuples(st.sampled_from(["<", "<=", ">", ">="]), names, st.one_of(names, numbers)),
    st.tuples(st.sampled_from(["<", "<=", ">", ">="]), numbers, names),
    st.tuples(st.just("in"), NAMES, st.lists(PIECES, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]), NAMES, PIECES, st.booleans()),
    st.tuples(st.just("between"), names, names, numbers, st.booleans()),
    st.tuples(st.just("null"), st.one_of(names, numbers), st.booleans()),
    truths,
)


def branches(conditions: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.sampled_from(["AND", "OR", "AND", "OR"]), conditions, conditions),
        st.tuples(st.just("NOT"), conditions),
        st.tuples(st.sampled_from(["=", "<>"]), conditions.filter(lambda tree: tree[0] != "name"), truths),
        st.tuples(st.just("null"), conditions, st.booleans()),
    )


conditions = st.recursive(leaves, branches, max_leaves=12)


def naive_result(tree: Tree, properties: dict[str, str]) -> object:
    try:
        return condition(tree, properties)
    except CannotCompare:
        return "error"


def result(compiled: Sql92Filter, data: bytes) -> object:
    try:
        return compiled.evaluate(data)
    except EvaluationError:
        return "error"


@settings(max_examples=rounds(200))
@given(conditions, st.lists(properties_maps, min_size=1, max_size=4))
def test_compiled_expressions_agree_with_the_naive_evaluator(tree: Tree, messages: list[dict[str, str]]) -> None:
    """A compiled expression has the same value as the naive evaluator, and matches if that is true."""
    compiled = Sql92Filter.compile(written(tree))
    for properties in messages:
        data = encode_properties(properties).encode()
        expected = naive_result(tree, properties)
        assert result(compiled, data) == expected
        assert compiled.matches(memoryview(data)) is (expected is True)


@settings(max_examples=rounds(50))
@given(st.lists(conditions, min_size=3, max_size=3), properties_maps)
def test_expressions_with_many_properties_agree_too(trees: list[Tree], properties: dict[str, str]) -> None:
    """An expression with many properties, which splits the property string once, has the same value."""
    data = encode_properties(properties).encode()
    unknown = " ".join("OR (zz = 'x')" for _ in range(MOST_SEARCHES + 1))
    for tree in trees:
        if naive_result(tree, properties) is True:
            assert Sql92Filter.compile(f"{written(tree)} {unknown}").matches(data)
        assert result(Sql92Filter.compile(f"{written(tree)} AND (TRUE {unknown})"), data) == naive_result(
            tree, properties
        )


def test_properties_are_found_in_any_form() -> None:
    """Properties are found in any order, twice, without a value, and with the last entry open."""
    wanted = Sql92Filter.compile("a > 5 AND b = 'x'")
    assert wanted.matches(b"b\x01x\x02a\x017")
    assert wanted.matches(b"a\x013\x02b\x01x\x02a\x017\x02")
    assert wanted.matches(b"a\x017\x02a\x01\x02b\x01x\x02")
    assert not wanted.matches(b"a\x017\x02b\x01x\x02b\x01y\x02")
    assert not wanted.matches(b"aa\x017\x02b\x01x\x02")
    assert not wanted.matches(b"")


def test_an_evaluation_error_does_not_match() -> None:
    """A text that is not a number ends the evaluation, unless an earlier operand decides."""
    assert Sql92Filter.compile("b = 'x' OR a > 5").matches(b"a\x01no\x02b\x01x\x02")
    assert not Sql92Filter.compile("a > 5 OR b = 'x'").matches(b"a\x01no\x02b\x01x\x02")
    with pytest.raises(EvaluationError):
        Sql92Filter.compile("a > 5 OR b = 'x'").evaluate(b"a\x01no\x02b\x01x\x02")


def test_larger_expressions_have_a_higher_cost() -> None:
    """Larger expressions, and those with more properties, have a higher estimated cost."""
    small, large = Sql92Filter.compile("a = 1"), Sql92Filter.compile("a = 1 AND b = 2 AND c = 3")
    assert small.cost_ns < large.cost_ns
    assert small.cost_ns_per_kib < large.cost_ns_per_kib
    assert repr(small) == "<Sql92Filter 'a = 1'>"


def test_half_a_surrogate_pair_matches_nothing() -> None:
    """Half a surrogate pair in an expression matches no message."""
    assert not Sql92Filter.compile("a = '\ud800' OR a CONTAINS '\udc00'").matches("a\x01😀\x02".encode())


RAW = """a b 5 -3 0 012 5.5 0.0 .5 5E1 9223372036854775808 'x' '' 'it''s' ' /* */ -- ( ) ) , = <> > >= < <= + - # . !
AND OR NOT IN BETWEEN IS NULL TRUE FALSE CONTAINS STARTSWITH ENDSWITH LIKE ('x') \0 ü \ud800"""
WORDS = RAW.split()
CHARACTERS = "ab5'()=<>-+.eE \n/*\x00ü"


@pytest.mark.fuzz
def test_random_text_compiles_or_raises_expression_error(fuzz_rounds: int) -> None:
    """Random text compiles or raises ExpressionError; a compiled filter raises nothing but EvaluationError."""
    choice = random.Random(20_261_122)
    compiled = 0
    for _ in range(fuzz_rounds):
        if choice.random() < 0.8:
            text = " ".join(choice.choices(WORDS, k=choice.randrange(1, 12)))
        else:
            text = "".join(choice.choices(CHARACTERS, k=choice.randrange(1, 30)))
        try:
            expression = Sql92Filter.compile(text)
        except ExpressionError:
            continue
        compiled += 1
        for data in (b"", b"a\x01x\x02b\x015", choice.randbytes(40), b"a\x01\xff\x02b\x01-3\x02"):
            result(expression, data)
            expression.matches(data)
    assert 0 < compiled < fuzz_rounds
