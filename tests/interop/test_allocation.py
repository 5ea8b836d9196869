"""Queue allocation in a group of Java and Skylark clients: both allocate the same queues to the same members.

`python -m tests.interop.test_allocation` writes tests/golden/allocation/allocations.json, with which tests without
Java check the same results.
"""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.clients.sdk.consuming.allocation import share
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from tests.clients.sdk.consuming.test_allocation import RULES
from tests.interop.toolchain import java_driver

PROGRAM = Path(__file__).parent / "allocation" / "Shares.java"
GOLDEN = Path(__file__).parents[1] / "golden" / "allocation" / "allocations.json"
SMALL_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8")
BROKERS = (
    "broker-a",
        "broker-b",
        "room1-a",
        "room2-b",
        "room3-c",
        "r1@a",
        "r2@a",
        "r3@a",
        "r1@b",
        "r1@b@c",
        "r2@",
        "r1@d@",
    "@e", "é", "\uff5e-x", "\U0001f600-x",
)  # fmt: skip
MEMBERS = ("10.0.0.{}@{}#7{}", "room1-{}@{}{}", "room2-{}@{}{}", "\uff5e-{}@{}{}", "\U0001f600-{}@{}{}")

pytestmark = pytest.mark.interop


def case(rng: random.Random) -> tuple[list[MessageQueue], list[str]]:
    """Return the queues of some brokers, and some members, both in random order."""
    brokers = rng.sample(BROKERS, rng.randrange(1, 6))
    topic = rng.choice(("Orders", "%RETRY%billing"))
    queues = [MessageQueue(topic, name, n) for name in brokers for n in range(rng.choice((1, 2, 4, 8, 11)))]
    digits = range(10, 99)
    members = {rng.choice(MEMBERS).format(*rng.sample(digits, 3)) for _ in range(rng.choice((1, 2, 3, 5, 9, 20)))}
    return rng.sample(queues, len(queues)), rng.sample(sorted(members), len(members))


def rocketmq_allocations(
    version: str, cases: list[tuple[list[MessageQueue], list[str]]]
) -> list[dict[str, list[list[int]]]]:
    """Return the allocations of each case by strategy: for each member the indexes of its queues in the case's list."""
    lines = [
        "\t".join((name, " ".join(f"{q.topic}/{q.broker_name}/{q.queue_id}" for q in queues), " ".join(members)))
        for queues, members in cases
        for name in RULES
    ]
    command = ["java", *SMALL_JVM, "-cp", str(java_driver(version) / "lib" / "*"), str(PROGRAM)]
    text = "\n".join(lines).encode()
    printed = subprocess.run(command, input=text, capture_output=True, check=True).stdout.decode().splitlines()
    rows = [[[int(n) for n in indexes.split(",") if n] for indexes in line.split(";")] for line in printed]
    assert len(rows) == len(lines)
    each = len(RULES)
    return [dict(zip(RULES, rows[at : at + each], strict=True)) for at in range(0, len(rows), each)]


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_java_and_skylark_allocate_the_same_queues(version: str) -> None:
    """Every strategy gives every member the same queues, in the same order, as RocketMQ's strategy."""
    rng = random.Random(20_261_122)
    cases = [case(rng) for _ in range(100)]
    differing = [
        (name, queues, members)
        for (queues, members), shares in zip(cases, rocketmq_allocations(version, cases), strict=True)
        for name, rule in RULES.items()
        if [[queues.index(queue) for queue in share(rule, queues, members, member)] for member in members]
        != shares[name]
    ]
    assert differing == []


def golden_cases() -> list[dict[str, Any]]:
    rng = random.Random(1)
    cases = [case(rng) for _ in range(40)]
    old, new = rocketmq_allocations("4.9.8", cases), rocketmq_allocations("5.3.3", cases)
    assert old == new
    return [
        {"queues": [[q.topic, q.broker_name, q.queue_id] for q in queues], "members": members, "shares": shares}
        for (queues, members), shares in zip(cases, new, strict=True)
    ]


if __name__ == "__main__":
    rows = ",\n".join(json.dumps(each, separators=(",", ":")) for each in golden_cases())
    GOLDEN.write_text(f'{{"cases":[\n{rows}\n]}}\n')
