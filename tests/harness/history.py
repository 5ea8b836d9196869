"""A history, judged: what its processes told, held against what was promised.

    report = judge(read(directory))
    report.findings                 what must not be; none if all is well
    report.duplicates               what came more than once, by where and by what explains it

The judge is pure: events in, findings out. It knows what producers sent and heard, what handlers got, what lay in the
topics at the end, and what befell whom and when (tests/harness/history_events.py). What it holds these to:

    ended        nobody ended without being asked to, and everybody had everything in time
    sound        nothing is in a topic, or was handed to anybody, that was not sent, exactly so, to that topic
    kept         what was acknowledged is in its topic, at the place that was named; what anybody got is where it was
    gapless      queue offsets count up from 0 without a gap
    handled      each group has handled all that it wanted of its topics, or it is a dead letter of the group
    wanted       nobody got what it had not asked for
    retried      what comes again has failed before, as often as it says, and is not too early; so have dead letters
    in_order     an orderly queue: nothing is begun before all in front of it was done, and never two at once
    in_rows      messages of one message group lie in one queue, in the order in which they were acknowledged
    in_time      delays and timers are never early, neither by store time nor by arrival
    atomic       a transaction comes if it was committed, and not if it was rolled back; each is ended some time
    forward      committed offsets never go back, but for what a crash may take back, and a handover
    explained    nothing comes twice without a failure
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
    kept,
    retried,
    sound,
    wanted,
)
from tests.harness.history_events import Event, Got, Sent
from tests.harness.history_view import Finding, History

CHECKS: Final[tuple[Callable[[History], Iterator[Finding]], ...]] = (
    ended,
    sound,
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
    """What the judge has found. `late_ms`: how late delayed messages were, sorted."""

    findings: list[Finding]
    duplicates: Counter[tuple[str, str]]
    sendings: int
    sent: int
    deliveries: int
    blows: int
    late_ms: list[int]

    def summary(self) -> str:
        """One line."""
        by_cause: Counter[str] = Counter()
        for (_, cause), count in self.duplicates.items():
            by_cause[cause or "?"] += count
        again = " ".join(f"{cause}={count}" for cause, count in sorted(by_cause.items())) or "none"
        late = f"{self.late_ms[len(self.late_ms) // 2]}/{self.late_ms[-1]} ms late" if self.late_ms else "none delayed"
        return (
            f"{self.sendings} sent, {self.sent} acknowledged, {self.deliveries} delivered, {self.blows} blows, "
            f"{late}, again: {again}"
        )


def judge(events: Iterable[Event]) -> Report:
    """Everything that does not hold, in the order of CHECKS."""
    history = History(events)
    states = [blow.state for blow in history.blows] + [process.state for process in history.processes]
    return Report(
        findings=[finding for check in CHECKS for finding in check(history)],
        duplicates=counted(history),
        sendings=len(history.sending),
        sent=len(history.of(Sent)),
        deliveries=len(history.of(Got)),
        blows=sum(state in {"killing", "stopping", "pausing"} for state in states),
        late_ms=lateness_ms(history),
    )


__all__ = ["CHECKS", "Finding", "Report", "judge"]
