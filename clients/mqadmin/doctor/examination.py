"""Runs all checks, one after the other, each within a limit of time.

A check whose limit is reached keeps what it has found. A ClientError within a check, and a state of a broker that
cannot be read, do not end the examination.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.clients.mqadmin.doctor import (
    broker_state,
    deferred,
    groups,
    metrics,
    network,
    replication,
    topics,
)
from skylarkmq.clients.mqadmin.doctor.findings import (
    Check,
    Finding,
    NotExamined,
    Outcome,
    Report,
    Severity,
    warning,
)
from skylarkmq.clients.mqadmin.doctor.subject import NotAvailable, Subject, is_not_served
from skylarkmq.clients.sdk.base.errors import ClientError

CHECKS: Final[tuple[Check, ...]] = tuple(
    check
    for module in (network, broker_state, replication, deferred, topics, groups, metrics)
    for check in module.CHECKS
)
LIMIT_S: Final = 30.0
"""Of one check, without the pause between two readings of a lag."""
_ORDER: Final = list(Severity)


async def examine(
    subject: Subject, began: Callable[[str], None], checks: tuple[Check, ...] = CHECKS, limit_s: float = LIMIT_S
) -> Report:
    """Return the report of all checks, errors first. `began` is called with the name of each check."""
    outcomes: list[Outcome] = []
    for check in checks:
        began(check.name)
        await _run(check, subject, limit_s + subject.wanted.sample_s, outcomes)
    found = [outcome for outcome in outcomes if isinstance(outcome, Finding)]
    return Report(
        namesrv=";".join(subject.name_servers),
        checks=[check.name for check in checks],
        findings=sorted(found, key=lambda finding: _ORDER.index(finding.severity)),
        not_examined=[outcome for outcome in outcomes if isinstance(outcome, NotExamined)],
    )


async def _run(check: Check, subject: Subject, limit_s: float, outcomes: list[Outcome]) -> None:
    """Add the outcomes of a check, with its name."""

    def add(outcome: Outcome) -> None:
        outcomes.append(msgspec.structs.replace(outcome, check=check.name))

    try:
        async with asyncio.timeout(limit_s):
            async for outcome in check.examine(subject):
                add(outcome)
    except TimeoutError:
        add(NotExamined("", f"the check did not end within {limit_s:g} s"))
    except NotAvailable as reason:
        add(NotExamined("", str(reason)))
    except ClientError as problem:
        if is_not_served(problem):
            add(NotExamined("", str(problem)))
        else:
            add(warning("", f"the check failed: {problem}", "Correct the cause, and run this again."))
