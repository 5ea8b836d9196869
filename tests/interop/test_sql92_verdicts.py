"""Random valid and invalid SQL92 expressions have the same results as in RocketMQ's own filter, version 5.3.3."""

import random
import subprocess
from pathlib import Path

import pytest

from skylarkmq.protocol.message import encode_properties
from tests.interop.toolchain import apache_broker
from tests.protocol.filters.sql92.test_golden import results

PROGRAM = Path(__file__).parent / "filters" / "Verdicts.java"
SMALL_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

VALUES = (
    "5", "5.5", "x", "TrUe", "false", "-3", "+5", "3000000000", "-2147483648", "2147483648", "9223372036854775808",
    "1e5", "5d", " 5 ", "NaN", "-Infinity", "-0.0", "0.0", "0", "0x1p3", "0x10", "٥", "𝟓", "it's", "1_000", "1E400",
)  # fmt: skip
OPERANDS = (
    "a", "b", "c", "$d", "zz", "5", "-3", "5.5", "3000000000", "'5'", "'x'", "TRUE", "FALSE", "NULL", "0", "1E5",
    "'true'", "5L", "- -5", "+a", "-a", "-TRUE", "(a)", "('x')", "-2147483648",
)  # fmt: skip
WORDS = (
    *OPERANDS,
    "012",
        "0l",
        "0.0",
        ".5",
        "5.",
        "00.5",
        "9223372036854775808",
        "''",
        "'it''s'",
        "'",
        " 'a'' ",
        "#",
        "!",
        ".",
        "%",
    "AND", "AND", "OR", "OR", "NOT", "NOT", "=", "<>", ">", ">=", "<", "<=", "IN", "('x','5')", "(", ")", ")", ",",
    "BETWEEN", "IS", "IS NULL", "IS NOT NULL", "CONTAINS", "STARTSWITH 'x'", "not ENDSWITH '5'", "+", "-", "--",
    "/* c */", "/*", "-- c\n", "LIKE", "1e400", "\n", "\t",
)  # fmt: skip
FORMS = (
    "{} = {}", "{} <> {}", "{} < {}", "{} >= {}", "{} AND {}", "{} or {}", "NOT {}", "({})", "({} = {})", "-{}",
    "{} BETWEEN {} AND {}", "{} NOT BETWEEN {} AND {}", "{} IN ('x', '5', 'true')", "{} NOT IN ('x')", "{} IS NULL",
    "{} IS NOT NULL", "{} CONTAINS 'x'", "{} NOT CONTAINS ''", "{} STARTSWITH '5'", "{} ENDSWITH 'e'",
)  # fmt: skip

pytestmark = pytest.mark.interop


def expression(rng: random.Random) -> str:
    """Return an expression, usually of one of FORMS, otherwise a sequence of WORDS."""
    if rng.random() < 0.7:
        return formed(rng, rng.randrange(1, 4))
    return rng.choice(("", " ", " ")).join(rng.choices(WORDS, k=rng.randrange(1, 9)))


def formed(rng: random.Random, depth: int) -> str:
    """Return an expression of nested FORMS."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(OPERANDS)
    form = rng.choice(FORMS)
    return form.format(*(formed(rng, depth - 1) for _ in range(form.count("{}"))))


def message(rng: random.Random) -> bytes:
    properties = {name: rng.choice(VALUES) for name in ("a", "b", "c", "$d") if rng.random() < 0.7}
    return encode_properties(properties).encode()


def test_expressions_have_the_results_of_rocketmq(fuzz_rounds: int) -> None:
    """The same expressions compile, and have the same results for the same messages."""
    jars = apache_broker("5.3.3") / "lib" / "*"
    rng = random.Random(20_261_124)
    cases = [(expression(rng), [message(rng) for _ in range(4)]) for _ in range(fuzz_rounds)]
    lines = ["\t".join(part.hex() for part in (text.encode(), *messages)) for text, messages in cases]
    printed = subprocess.run(
        ["java", *SMALL_JVM, "-cp", str(jars), str(PROGRAM)],
        input="\n".join(lines),
        capture_output=True,
        check=True,
        text=True,
    )
    rocketmq_results = printed.stdout.splitlines()
    assert len(rocketmq_results) == len(cases)
    assert rocketmq_results.count("C") < len(cases) * 0.9
    differing = [
        (text, messages, expected, skylark_results)
        for (text, messages), expected in zip(cases, rocketmq_results, strict=True)
        if (skylark_results := results(text, messages)) != expected
    ]
    assert differing == []
