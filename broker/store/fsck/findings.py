"""What a check has to say: findings, and how far it has come.

Damage is what a start, a read or a query would trip over, and no start repairs by itself. A warning is what is not as
it should be and harms nobody, or what the next start sets right: after a crash that is the torn end of the log and
whatever lags behind it. A note is what an operator may wonder about.

Findings of one kind come in crowds (a queue file lost its last block). `Findings.add` passes the first ten of a kind
and file on, and counts the rest into one more finding at the end.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

import msgspec

_TOLD_ONE_BY_ONE: Final = 10


class Severity(Enum):
    """How bad it is."""

    DAMAGE = "damage"
    WARNING = "warning"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True):
    """`file` is relative to the store's root, `offset` a byte of that file; None where it concerns no single byte."""

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
    """Nobody watches."""


class Findings:
    """Gathers what the parts of a check find, until `take` passes it on."""

    def __init__(self) -> None:
        self._gathered: list[Finding] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._first_untold: dict[tuple[str, str], Finding] = {}

    def add(self, kind: str, finding: Finding) -> None:
        """`kind` is one word for what several findings of a file have in common."""
        key = kind, finding.file
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= _TOLD_ONE_BY_ONE:
            self._gathered.append(finding)
        else:
            self._first_untold.setdefault(key, finding)

    def take(self) -> list[Finding]:
        """What came since the last time."""
        taken, self._gathered = self._gathered, []
        return taken

    def rest(self) -> list[Finding]:
        """At the end: one finding for each kind and file of which not all were told."""
        return [
            Finding(
                first.severity,
                first.file,
                first.offset,
                f"{self._counts[key] - _TOLD_ONE_BY_ONE} more of the same kind, the first: {first.what}",
                first.follows,
            )
            for key, first in self._first_untold.items()
        ]

    def __repr__(self) -> str:
        return f"<Findings kinds={len(self._counts)}>"
