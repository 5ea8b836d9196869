"""The outcomes of checks, and the report of all checks. The structs are the schema of `mqadmin doctor --json`."""

from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from skylarkmq.clients.mqadmin.doctor.subject import Subject
from skylarkmq.clients.mqadmin.people.output import Result, Rows
from skylarkmq.clients.terminal.printed_output import Summary

SCHEMA_VERSION: Final = 1


class Severity(Enum):
    """`error`: messages are not sent, stored or consumed. `warning`: they may soon not be. `note`: no effect."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(Summary, frozen=True):
    """One problem. `where`: an address, broker, topic or group. `check` is set by the examination."""

    severity: Severity
    where: str
    what: str
    next_step: str
    check: str = ""


class NotExamined(Summary, frozen=True):
    """A state that could not be read, and the reason."""

    where: str
    reason: str
    check: str = ""


class Report(Result, frozen=True):
    """The result of an examination. `checks`: the names of all checks, in their order."""

    namesrv: str
    checks: list[str]
    findings: list[Finding]
    not_examined: list[NotExamined]
    version: int = SCHEMA_VERSION

    def tables(self) -> Iterator[Rows]:
        """Yield the findings, and then a row for each place that was not examined, and the reason."""
        found = [(its.severity.value, its.where or its.check, its.what, its.next_step) for its in self.findings]
        columns = ("Severity", "Where", "What is wrong", "Next step")
        yield Rows("", columns, found, empty=f"No problem found at {self.namesrv}.")
        checks: dict[tuple[str, str], list[str]] = {}
        for each in self.not_examined:
            checks.setdefault((each.where, each.reason), []).append(each.check)
        rows = [(", ".join(names), where, reason) for (where, reason), names in checks.items()]
        yield Rows("Not examined", ("Checks", "Where", "Reason"), rows)


Outcome = Finding | NotExamined
Outcomes = AsyncIterator[Outcome]


class Check(NamedTuple):
    """A check: its name, and the function that examines."""

    name: str
    examine: Callable[[Subject], Outcomes]


def error(where: str, what: str, next_step: str) -> Finding:
    """Return a finding: messages are not sent, stored or consumed."""
    return Finding(Severity.ERROR, where, what, next_step)


def warning(where: str, what: str, next_step: str) -> Finding:
    """Return a finding: messages may soon not be sent, stored or consumed."""
    return Finding(Severity.WARNING, where, what, next_step)


def note(where: str, what: str, next_step: str) -> Finding:
    """Return a finding without effect on messages."""
    return Finding(Severity.NOTE, where, what, next_step)
