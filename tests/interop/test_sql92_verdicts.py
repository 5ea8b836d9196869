"""Random expressions, sensible and senseless, mean what they mean to RocketMQ's own filter, that of 5.3.3."""

import random
import subprocess
from pathlib import Path

import pytest

from skylarkmq.protocol.message import encode_properties
from tests.interop.toolchain import apache_broker
from tests.protocol.filters.sql92.test_golden import results

PROGRAM = Path(__file__).parent / "filters" / "Verdicts.java"
SPARING = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

VALUES = (
    *("5", "5.5", "x", "TrUe", "false", "-3", "+5", "3000000000", "-2147483648", "2147483648", "9223372036854775808"),
    *("1e5", "5d", " 5 ", "NaN", "-Infinity", "-0.0", "0.0", "0", "0x1p3", "0x10", "٥", "𝟓", "it's", "1_000", "1E400"),
)
OPERANDS = (
    *("a", "b", "c", "$d", "zz", "5", "-3", "5.5", "3000000000", "'5'", "'x'", "TRUE", "FALSE", "NULL", "0", "1E5"),
    *("'true'", "5L", "- -5", "+a", "-a", "-TRUE", "(a)", "('x')", "-2147483648"),
)
WORDS = (
    *OPERANDS,
    *(
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
    ),
    *("AND", "AND", "OR", "OR", "NOT", "NOT", "=", "<>", ">", ">=", "<", "<=", "IN", "('x','5')", "(", ")", ")", ","),
    *("BETWEEN", "IS", "IS NULL", "IS NOT NULL", "CONTAINS", "STARTSWITH 'x'", "not ENDSWITH '5'", "+", "-", "--"),
    *("/* c */", "/*", "-- c\n", "LIKE", "1e400", "\n", "\t"),
)
FORMS = (
    *("{} = {}", "{} <> {}", "{} < {}", "{} >= {}", "{} AND {}", "{} or {}", "NOT {}", "({})", "({} = {})", "-{}"),
    *("{} BETWEEN {} AND {}", "{} NOT BETWEEN {} AND {}", "{} IN ('x', '5', 'true')", "{} NOT IN ('x')", "{} IS NULL"),
    *("{} IS NOT NULL", "{} CONTAINS 'x'", "{} NOT CONTAINS ''", "{} STARTSWITH '5'", "{} ENDSWITH 'e'"),
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def expression(choice: random.Random) -> str:
    """Mostly one of a form; else words in a row."""
    if choice.random() < 0.7:
        return formed(choice, choice.randrange(1, 4))
    return choice.choice(("", " ", " ")).join(choice.choices(WORDS, k=choice.randrange(1, 9)))


def formed(choice: random.Random, depth: int) -> str:
    if depth == 0 or choice.random() < 0.1:
        return choice.choice(OPERANDS)
    form = choice.choice(FORMS)
    return form.format(*(formed(choice, depth - 1) for _ in range(form.count("{}"))))


def message(choice: random.Random) -> bytes:
    properties = {name: choice.choice(VALUES) for name in ("a", "b", "c", "$d") if choice.random() < 0.7}
    return encode_properties(properties).encode()


def test_verdicts_are_those_of_rocketmq(fuzz_rounds: int) -> None:
    """The same expressions compile, and say the same of the same messages."""
    jars = apache_broker("5.3.3") / "lib" / "*"
    choice = random.Random(20_261_124)
    asked = [(expression(choice), [message(choice) for _ in range(4)]) for _ in range(fuzz_rounds)]
    lines = ["\t".join(part.hex() for part in (text.encode(), *messages)) for text, messages in asked]
    answered = subprocess.run(
        ["java", *SPARING, "-cp", str(jars), str(PROGRAM)],
        input="\n".join(lines),
        capture_output=True,
        check=True,
        text=True,
    )
    theirs = answered.stdout.splitlines()
    assert len(theirs) == len(asked)
    assert theirs.count("C") < len(asked) * 0.9
    others = [
        (text, messages, expected, ours)
        for (text, messages), expected in zip(asked, theirs, strict=True)
        if (ours := results(text, messages)) != expected
    ]
    assert others == []
