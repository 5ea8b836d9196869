"""The results of a check: findings, and progress.

Damage makes a start, a read or a query fail, and no start repairs it. A warning is an irregularity that does no harm,
or that the next start repairs: after a crash, the torn end of the log and files that lag behind it. A note is a fact
that may matter to an operator.

Findings of one kind come in large numbers (for example if a queue file lost its last block). `Findings.add` reports the
first ten per kind and file, and sums up the others in one more finding at the end.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

import msgspec

_REPORTED_EACH: Final = 10


class Severity(Enum):
    """Severity of a finding."""

    DAMAGE = "damage"
    WARNING = "warning"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True):
    """`file` is relative to the store's root. `offset` is a byte of that file; None if no single byte is concerned."""

    severity: Severity
    file: str
    offset: int | None
    what: str
    follows: str


class Progress(msgspec.Struct, frozen=True):
    """`done` of `total` bytes of a stage."""

    stage: str
    done: int
    total: int


OnProgress: TypeAlias = Callable[[Progress], None]


def no_progress(_: Progress) -> None:
    """Ignore the progress."""


class Findings:
    """Collects the findings of the parts of a check until `take` returns them."""

    def __init__(self) -> None:
        self._collected: list[Finding] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._first_unreported: dict[tuple[str, str], Finding] = {}

    def add(self, kind: str, finding: Finding, times: int = 1) -> None:
        """Add a finding that stands for `times` of them. `kind` is one word that groups similar findings of a file."""
        key = kind, finding.file
        count = self._counts[key] = self._counts.get(key, 0) + times
        if count <= _REPORTED_EACH:
            self._collected.append(finding)
        else:
            self._first_unreported.setdefault(key, finding)

    def take(self) -> list[Finding]:
        """Return the findings since the last call."""
        taken, self._collected = self._collected, []
        return taken

    def summaries(self) -> list[Finding]:
        """Return, at the end, one finding for each kind and file with findings that were not reported."""
        return [
            Finding(
                first.severity,
                first.file,
                first.offset,
                f"{self._counts[key] - _REPORTED_EACH} more of the same kind, the first: {first.what}",
                first.follows,
            )
            for key, first in self._first_unreported.items()
        ]

    def __repr__(self) -> str:
        return f"<Findings kinds={len(self._counts)}>"


class Doubts:
    """Findings that later records may disprove: the first ones of each kind and file, and how many there are."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], list[Finding]] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, kind: str, finding: Finding) -> None:
        """Add a finding, as `Findings.add` does."""
        key = kind, finding.file
        self._counts[key] = self._counts.get(key, 0) + 1
        first = self._first.setdefault(key, [])
        if len(first) <= _REPORTED_EACH:
            first.append(finding)

    def confirm(self, found: Findings) -> None:
        """Add all of them to `found`."""
        for key, first in self._first.items():
            for finding in first[:-1]:
                found.add(key[0], finding)
            found.add(key[0], first[-1], self._counts[key] - len(first) + 1)

    def __repr__(self) -> str:
        return f"<Doubts kinds={len(self._counts)}>"
