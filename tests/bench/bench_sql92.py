"""Cost of a SQL92 filter: to compile it, and per tested message.

    python -m tests.bench.bench_sql92                          # the usual expressions, ten properties per message
    python -m tests.bench.bench_sql92 "price BETWEEN 1 AND 5"  # these expressions
    python -m tests.bench.bench_sql92 --properties 100

A figure is the minimum of many short rounds. `bound` is the filter's own estimate of a call's cost, which limits how
many messages are tested in a row; it should not be far below the figure.

Budget: 2 us for `a > 5 AND b = 'x'` on ten properties.
"""

import argparse
from timeit import repeat
from typing import Final

from skylarkmq.protocol.filters.sql92.filter import Sql92Filter

EXPRESSIONS: Final = (
    "a > 5 AND b = 'x'",
    "b = 'x'",
    "zz = 'x'",
    "a BETWEEN 1 AND 9",
    "a IN ('1', '7')",
    "price > 9.5",
    "(a > 50 OR b = 'x') AND TAGS = 'TagA' AND NOT (a = 6) AND zz IS NULL",
    " AND ".join(f"a <> {n + 10}" for n in range(100)),
)
PROPERTIES: Final = (
    b"KEYS\x01order-1 order-2\x02UNIQ_KEY\x01C0A8010A0001000000000001\x02TAGS\x01TagA\x02WAIT\x01true\x02"
    b"CLUSTER\x01DefaultCluster\x02a\x017\x02b\x01x\x02price\x0112.5\x02"
)
SHOWN: Final = 60
ROUND_NS: Final = 2_000_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("expression", nargs="*", default=EXPRESSIONS)
    parser.add_argument("--properties", type=int, default=10, help="properties per message")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    more = b"".join(b"name-%d\x01value-%d\x02" % (n, n) for n in range(options.properties - PROPERTIES.count(b"\x01")))
    properties = PROPERTIES + more
    print(f"{options.properties} properties, {len(properties)} bytes")
    print(f"{'compile us':>10}{'match ns':>10}{'bound ns':>10}")
    for text in options.expression:
        compiled = Sql92Filter.compile(text)
        compile_ns = least(lambda text=text: Sql92Filter.compile(text), 20_000, options.rounds)
        bound_ns = compiled.cost_ns + compiled.cost_ns_per_kib * len(properties) // 1024
        match_ns = least(lambda test=compiled.matches: test(properties), bound_ns, options.rounds)
        print(f"{compile_ns / 1000:10.1f}{match_ns:10.0f}{bound_ns:10}  {text[:SHOWN]}")


def least(call: object, guess_ns: int, rounds: int) -> float:
    """Return the minimum time of a call, in ns, without the loop's own time."""
    number = max(1, ROUND_NS // guess_ns)

    def of(statement: str) -> float:
        return min(repeat(statement, globals={"call": call}, number=number, repeat=rounds)) / number * 1e9

    return of("call()") - of("pass")


if __name__ == "__main__":
    main()
