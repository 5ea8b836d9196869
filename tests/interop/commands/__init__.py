"""The commands whose output test_mqadmin_output.py compares with that of RocketMQ's tool: one table a module.

    CASES = [
        Case("topicStatus", "-t {topic}"),
        Case("deleteTopic", "-c {cluster} -t Doomed", before=["updateTopic -c {cluster} -t Doomed"]),
    ]

`{broker}`, `{namesrv}`, `{cluster}`, `{name}` (of the broker), `{topic}`, `{group}` and `{member}` (the client id of
the group's member) are those of the test's broker.
The topic has 4 queues and 8 messages, which the one member of the group has consumed.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

TIME = (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "TIME")
REASON = re.compile(r"(?<=trackType=UNKNOWN, exceptionDesc=)(?!null)[^\]]*")
STACK_TRACE = "\tat "
"""In the output of RocketMQ's tool, if a command fails."""
NUMBER = (r"\d+(\.\d+)?", "N")


class Case(NamedTuple):
    """One command with its arguments. Both tools run it, each in the same state of the broker.

    `before`: commands that RocketMQ's tool runs before each of both. `masks`: regular expressions of texts that differ
    between two runs, and their replacements; times are always masked. `unordered`: the order of lines is Java's order
    of hashes. `fails`: RocketMQ's tool prints a stack trace, ours one line. `requires_5`: RocketMQ's tool 5.3.3 fails
    against 4.9, which does not serve a request that it needs, such as GET_TOPIC_CONFIG (351); ours goes without it.
    The reasons of tracks, which are Java's exceptions, are always masked.
    """

    command: str
    arguments: str = ""
    before: Sequence[str] = ()
    masks: Sequence[tuple[str, str]] = ()
    unordered: bool = False
    fails: bool = False
    requires_5: bool = False

    def __str__(self) -> str:
        return f"{self.command} {self.arguments}".strip()


def masked(case: Case, text: str) -> list[str]:
    """Return the lines of an output without what differs between two runs.

    The spacing of a line counts unless something in it was masked: then the width of columns differs, too.
    """
    text = REASON.sub("REASON", text)
    lines = [_masked(line, (TIME, *case.masks)) for line in text.rstrip("\n").split("\n")]
    return sorted(lines) if case.unordered else lines


def _masked(line: str, masks: Sequence[tuple[str, str]]) -> str:
    result = line
    for pattern, replacement in masks:
        result = re.sub(pattern, replacement, result)
    return result if result == line else re.sub(r"\s+", " ", result).strip()
