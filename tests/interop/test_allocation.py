"""Who reads which queue in a mixed group: RocketMQ's own strategies, and ours, given the same queues and members.

`python -m tests.interop.test_allocation` writes tests/golden/allocation/allocations.json, which holds tests without
Java to the same results.
"""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.clients.consuming.allocation import share
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from tests.clients.consuming.test_allocation import RULES
from tests.interop.toolchain import java_driver

PROGRAM = Path(__file__).parent / "allocation" / "Shares.java"
GOLDEN = Path(__file__).parents[1] / "golden" / "allocation" / "allocations.json"
SPARING = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8")
BROKERS = (
    *(
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
    ),
    *("@e", "é", "\uff5e-x", "\U0001f600-x"),
)
MEMBERS = ("10.0.0.{}@{}#7{}", "room1-{}@{}{}", "room2-{}@{}{}", "\uff5e-{}@{}{}", "\U0001f600-{}@{}{}")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def case(choice: random.Random) -> tuple[list[MessageQueue], list[str]]:
    """Some brokers with some queues each, and some members, in no order."""
    brokers = choice.sample(BROKERS, choice.randrange(1, 6))
    topic = choice.choice(("Orders", "%RETRY%billing"))
    queues = [MessageQueue(topic, name, n) for name in brokers for n in range(choice.choice((1, 2, 4, 8, 11)))]
    digits = range(10, 99)
    members = {
        choice.choice(MEMBERS).format(*choice.sample(digits, 3)) for _ in range(choice.choice((1, 2, 3, 5, 9, 20)))
    }
    return choice.sample(queues, len(queues)), choice.sample(sorted(members), len(members))


def rocketmq(version: str, asked: list[tuple[list[MessageQueue], list[str]]]) -> list[dict[str, list[list[int]]]]:
    """For each case the shares by strategy: for each member the places of its queues in the case's list."""
    lines = [
        "\t".join((name, " ".join(f"{q.topic}/{q.broker_name}/{q.queue_id}" for q in queues), " ".join(members)))
        for queues, members in asked
        for name in RULES
    ]
    command = ["java", *SPARING, "-cp", str(java_driver(version) / "lib" / "*"), str(PROGRAM)]
    text = "\n".join(lines).encode()
    answered = subprocess.run(command, input=text, capture_output=True, check=True).stdout.decode().splitlines()
    rows = [[[int(n) for n in mine.split(",") if n] for mine in line.split(";")] for line in answered]
    assert len(rows) == len(lines)
    each = len(RULES)
    return [dict(zip(RULES, rows[at : at + each], strict=True)) for at in range(0, len(rows), each)]


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_members_in_either_language_agree(version: str) -> None:
    """Every rule gives every member the queues that RocketMQ's strategy gives it, in the same order."""
    choice = random.Random(20_261_122)
    asked = [case(choice) for _ in range(100)]
    differing = [
        (name, queues, members)
        for (queues, members), shares in zip(asked, rocketmq(version, asked), strict=True)
        for name, rule in RULES.items()
        if [[queues.index(queue) for queue in share(rule, queues, members, own)] for own in members] != shares[name]
    ]
    assert differing == []


def golden_cases() -> list[dict[str, Any]]:
    choice = random.Random(1)
    asked = [case(choice) for _ in range(40)]
    old, new = rocketmq("4.9.8", asked), rocketmq("5.3.3", asked)
    assert old == new
    return [
        {"queues": [[q.topic, q.broker_name, q.queue_id] for q in queues], "members": members, "shares": shares}
        for (queues, members), shares in zip(asked, new, strict=True)
    ]


if __name__ == "__main__":
    cases = ",\n".join(json.dumps(each, separators=(",", ":")) for each in golden_cases())
    GOLDEN.write_text(f'{{"cases":[\n{cases}\n]}}\n')
