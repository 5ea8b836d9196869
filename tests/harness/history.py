"""Checks of a history: the events that its processes recorded, compared with the broker's guarantees.

    report = check_history(read(directory))
    report.findings                 violations; none if all guarantees hold
    report.duplicates               duplicates, by topic or group and by the cause that explains them

The check is a pure function of the events. They are the sends and their results, the deliveries to handlers, the
content of the topics at the end, and the faults with their times (tests/harness/history_events.py). The guarantees:

    ended        no process ended unexpectedly, and every group was drained in time
    intact       every stored message, and every delivered one, is equal to the message that was sent to that topic
    kept         every acknowledged message is in its topic at the returned offset; so is every delivered message
    gapless      queue offsets count up from 0 without a gap
    handled      each group has handled all matching messages of its topics, or has them as dead letters
    wanted       no group received a message outside of its subscription
    retried      a redelivered message has failed before, as often as it states, and is not early; so have dead letters
    in_order     an orderly queue: a message starts after all before it are done, and never two at once
    in_rows      messages of one message group are in one queue, in the order in which they were acknowledged
    in_time      delayed and timer messages are never early, neither by store time nor by arrival
    atomic       a transaction is delivered if it was committed, and not if it was rolled back; each ends eventually
    forward      committed offsets never go back, except after a crash, within limits, and in a handover
    explained    no message is delivered or stored twice without a cause
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from tests.harness.history_causes import counted, explained, forward, lateness_ms
from tests.harness.history_checks import (
    atomic,
    ended,
    gapless,
    handled,
    in_order,
    in_rows,
    in_time,
    intact,
    kept,
    retried,
    wanted,
)
from tests.harness.history_events import Event, Got, Sent
from tests.harness.history_view import Finding, History

CHECKS: Final[tuple[Callable[[History], Iterator[Finding]], ...]] = (
    ended,
    intact,
    kept,
    gapless,
    handled,
    wanted,
    retried,
    in_order,
    in_rows,
    in_time,
    atomic,
    forward,
    explained,
)


class Report(NamedTuple):
    """The result of a check. `late_ms`: how late delayed messages were, sorted."""

    findings: list[Finding]
    duplicates: Counter[tuple[str, str]]
    sendings: int
    sent: int
    deliveries: int
    faults: int
    late_ms: list[int]

    def summary(self) -> str:
        """Return one line."""
        by_cause: Counter[str] = Counter()
        for (_, cause), count in self.duplicates.items():
            by_cause[cause or "?"] += count
        repeated = " ".join(f"{cause}={count}" for cause, count in sorted(by_cause.items())) or "none"
        late = f"{self.late_ms[len(self.late_ms) // 2]}/{self.late_ms[-1]} ms late" if self.late_ms else "none delayed"
        return (
            f"{self.sendings} sent, {self.sent} acknowledged, {self.deliveries} delivered, {self.faults} faults, "
            f"{late}, duplicates: {repeated}"
        )


def check_history(events: Iterable[Event]) -> Report:
    """Return every violation, in the order of CHECKS."""
    history = History(events)
    states = [fault.state for fault in history.faults] + [process.state for process in history.processes]
    return Report(
        findings=[finding for check in CHECKS for finding in check(history)],
        duplicates=counted(history),
        sendings=len(history.sending),
        sent=len(history.of(Sent)),
        deliveries=len(history.of(Got)),
        faults=sum(state in {"killing", "stopping", "pausing"} for state in states),
        late_ms=lateness_ms(history),
    )


__all__ = ["CHECKS", "Finding", "Report", "check_history"]
