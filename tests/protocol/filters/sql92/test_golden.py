"""Results of RocketMQ's own filter, from tests/golden/filters."""

import json
from pathlib import Path

from skylarkmq.protocol.filters.sql92.errors import EvaluationError, ExpressionError
from skylarkmq.protocol.filters.sql92.filter import Sql92Filter
from skylarkmq.protocol.message import encode_properties

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "filters" / "sql92.json"
LETTERS = {True: "T", False: "F", None: "N"}
NO_EXPRESSION = "C"


def result(compiled: Sql92Filter, properties: bytes) -> str:
    try:
        return LETTERS[compiled.evaluate(properties)]
    except EvaluationError:
        return "E"


def results(expression: str, messages: list[bytes]) -> str:
    try:
        compiled = Sql92Filter.compile(expression)
    except ExpressionError:
        return NO_EXPRESSION
    return "".join(result(compiled, properties) for properties in messages)


def test_results_equal_those_of_rocketmq() -> None:
    """Each expression compiles, and is true, false, unknown or an error, as with RocketMQ 5.3.3."""
    golden = json.loads(GOLDEN.read_bytes())
    messages = [encode_properties(properties).encode() for properties in golden["properties"]]
    cases: dict[str, str] = golden["cases"]
    assert len(cases) > 800
    assert {expression: results(expression, messages) for expression in cases} == cases
