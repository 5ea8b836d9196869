"""Write docs/reference/compatibility.md from the results of a test run.

A test reports facts, each a tuple of words: it tries a client with a feature (the marks of matrix.py), or a command of
mqadmin. The verdict of a fact follows from its tests: one failed test makes it fail, one skipped test makes it "not
run". The document is a function of the plan and the verdicts, and the verdicts can be read back from it. So a test
compares the document with the plan without running the clients.

    pytest tests/interop --compatibility docs/reference/compatibility.md
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import pytest

from tests.interop.cases import CLIENTS
from tests.interop.differences import PROTECTION, REPLICATION, USERS_AND_POLICIES
from tests.interop.matrix import FEATURES, LACKING, LEFT_OUT, MEANINGS
from tests.interop.mqadmin_process import VERSIONS

Fact: TypeAlias = tuple[str, ...]
"""CLIENT, client, feature; TRIED, version, command; OFFERED, version, command."""
Verdicts: TypeAlias = Mapping[Fact, str]

CLIENT, TRIED, OFFERED = "client", "tried", "offered"
PASSES, FAILS, NOT_RUN, NONE = "✓", "**fails**", "not run", "–"
FACTS: Final = "facts"
"""The name of the property of a test report that contains its facts."""

OPENING: Final = """\
# Compatibility

The results of `tests/interop`: RocketMQ's official clients and tools, unchanged from their registries, run against this
broker. The tests write this page: `pytest tests/interop --compatibility docs/reference/compatibility.md`. Another test
compares it with their plan, `tests/interop/matrix.py`.

✓: passes. –: the client does not have the feature; the reason is below the table.

## Clients
"""


TOOLS: Final = """
## Commands of mqadmin

✓: passes. –: not tested; the reason is below the table. Empty: the version has no such command.
"""


ACCESS_CONTROL: Final = """\

## Access control of RocketMQ 4.9

`aclEnable=true` with `aclStrict=false` decides as RocketMQ 4.9 does. `aclStrict=true`, the default, also checks
requests that 4.9 permits to every account ([behaviour.md](behaviour.md#access-control-of-rocketmq-49)):

| Code | Name | Needs with `aclStrict` |
| --- | --- | --- |
| 320, 324, 325 | SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE, SEND_REPLY_MESSAGE_V2 | PUB on the topic |
| 37 | END_TRANSACTION | PUB on the topic of the half message, and on the topic of the request, if it has one |
| 36 | CONSUMER_SEND_MSG_BACK | also SUB on the topic of the message |
| 352 | GET_SUBSCRIPTIONGROUP_CONFIG, which may create the group | SUB on the group |
| 41, 42 | LOCK_BATCH_MQ, UNLOCK_BATCH_MQ | SUB on the group and the topics |
| 10, 310 | SEND_MESSAGE, SEND_MESSAGE_V2 to a retry topic | also SUB on the group of the retry topic |
| 50, 51, 53 | UPDATE_AND_CREATE_ACL_CONFIG, DELETE_ACL_CONFIG, UPDATE_GLOBAL_WHITE_ADDRS_CONFIG | an administrator |
| 222, 309 | INVOKE_BROKER_TO_RESET_OFFSET, CONSUME_MESSAGE_DIRECTLY | an administrator |
| 306, 316, 329 | CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC, DELETE_EXPIRED_COMMITLOG | an administrator |
| 323 | RESUME_CHECK_HALF_MESSAGE | an administrator |

Requests that 4.9 does not have are checked like the requests that they replace: 361 as 11, 370 as 10, 18 as 17, 225 as
200.

With `aclStrict`, transaction checks (39), which contain the half message, go only to producers whose account has PUB on
its topic: the account of their last heartbeat (34). RocketMQ 4.9 sends them to every producer of the group, and a
heartbeat needs no right to a producer group.
"""


class Run:
    """The outcomes and facts of the tests so far."""

    def __init__(self) -> None:
        self._ends: dict[str, set[str]] = {}
        self._facts: dict[str, set[Fact]] = {}

    def note(self, report: pytest.TestReport) -> None:
        """Record the report of one phase of a test."""
        if report.when == "call" or report.outcome != "passed":
            self._ends.setdefault(report.nodeid, set()).add(report.outcome)
        facts = {tuple(fact) for name, value in report.user_properties if name == FACTS for fact in value}  # type: ignore[attr-defined]
        self._facts.setdefault(report.nodeid, set()).update(facts)

    def verdicts(self) -> dict[Fact, str]:
        """Return the verdict of every reported fact."""
        ends: dict[Fact, set[str]] = {}
        for test, facts in self._facts.items():
            for fact in facts:
                ends.setdefault(fact, set()).update(self._ends.get(test, ()))
        return {fact: _verdict(of_fact) for fact, of_fact in ends.items()}


def _verdict(ends: set[str]) -> str:
    if "failed" in ends:
        return FAILS
    return PASSES if ends == {"passed"} else NOT_RUN


# ------------------------------------------------------------------------------------------------------------- writing


def document(verdicts: Verdicts) -> str:
    """Return the page."""
    clients, commands = Reasons(), Reasons()
    matrix = list(_matrix(verdicts, clients))
    tried = list(_commands(verdicts, commands))
    parts = (
        OPENING,
        _table(["Client", "Package", "Sends"], ([c.title, c.package, ", ".join(c.modes)] for c in CLIENTS.values())),
        "\n## Features\n",
        _table(["", *(client.title for client in CLIENTS.values())], matrix),
        *clients.lines(),
        "\nThe features:\n",
        *(f"- {heading}: {MEANINGS[feature]}" for feature, heading in FEATURES.items()),
        TOOLS,
        _table(["Command", *VERSIONS], tried),
        *commands.lines(),
        ACCESS_CONTROL.removesuffix("\n"),
        USERS_AND_POLICIES.rstrip("\n"),
        PROTECTION.rstrip("\n"),
        REPLICATION.rstrip("\n"),
    )
    return "\n".join(parts) + "\n"


class Reasons:
    """Reasons, numbered in order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, reason: str) -> str:
        """Return the cell that refers to a reason."""
        return f"{NONE} ({self._numbers.setdefault(reason, len(self._numbers) + 1)})"

    def lines(self) -> Iterator[str]:
        """Return the lines of the numbered list."""
        yield ""
        yield from (f"{number}. {reason}" for reason, number in self._numbers.items())


def _matrix(verdicts: Verdicts, reasons: Reasons) -> Iterator[list[str]]:
    for feature, heading in FEATURES.items():
        cells = [
            reasons.mark(LACKING[client, feature])
            if (client, feature) in LACKING
            else verdicts.get((CLIENT, client, feature), NOT_RUN)
            for client in CLIENTS
        ]
        yield [heading, *cells]


def _commands(verdicts: Verdicts, reasons: Reasons) -> Iterator[list[str]]:
    for command in sorted({fact[2] for fact in verdicts if fact[0] in {TRIED, OFFERED}}):
        yield [f"`{command}`", *(_command(verdicts, version, command, reasons) for version in VERSIONS)]


def _command(verdicts: Verdicts, version: str, command: str, reasons: Reasons) -> str:
    if (OFFERED, version, command) not in verdicts and (TRIED, version, command) not in verdicts:
        return ""
    if command in LEFT_OUT:
        return reasons.mark(LEFT_OUT[command])
    return verdicts.get((TRIED, version, command), NOT_RUN)


def _table(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# ------------------------------------------------------------------------------------------------------------- reading


def read(text: str) -> dict[Fact, str]:
    """Return the verdicts of a page. KeyError if a row or a column is not in the plan."""
    verdicts: dict[Fact, str] = {}
    for heads, row in _rows(text):
        if heads[0] == "":
            feature = _names(FEATURES)[row[0]]
            clients = _names({name: client.title for name, client in CLIENTS.items()})
            verdicts |= {(CLIENT, clients[head], feature): cell for head, cell in zip(heads[1:], row[1:], strict=True)}
        elif heads[0] == "Command":
            for version, cell in zip(heads[1:], row[1:], strict=True):
                if cell:
                    is_open = cell == NOT_RUN or cell.startswith(NONE)
                    verdicts[OFFERED if is_open else TRIED, version, row[0].strip("`")] = cell
    return {fact: verdict for fact, verdict in verdicts.items() if not (fact[0] == CLIENT and NONE in verdict)}


def _names(headings: Mapping[str, str]) -> dict[str, str]:
    return {heading: name for name, heading in headings.items()}


def _rows(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Return the rows of all tables, each with the headings of its table."""
    heads: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            heads = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not heads:
            heads = cells
        elif set(cells) != {"---"}:
            yield heads, cells
