"""The exhaustive model of replication: the rules of a broker group as a transition system, explored breadth-first.

    python -m tests.ha.model                        all rules, 10^7 states; exit code 1 with a trace on a finding
    python -m tests.ha.model --scope small          every state of a small scope
    python -m tests.ha.model --mutant blind-swap    one rule taken out: the shortest trace to a finding
    python -m tests.ha.model --mutant all           every mutant; exit code 1 if one is not found

A group is one log with one leader. The store of decisions (etcd) keeps the record of the group: epoch, leader and the
set of stores that count as copies. The rules, and where the model has them (tests/ha/transitions.py):

 1. Promise. A node that learns of an epoch writes it to haState before it acts on it. From then on it refuses
    handshakes, data and acknowledgements of lower epochs (`_promise`, `_campaign`, `_is_accepted`).
 2. One decider. Only the leader of the recorded epoch changes the set. Only a member of the set begins a term, with an
    epoch above the record's and above its own promise. Both are compare-and-swap (`_decisions`, `_requested`). Without
    an answer the node reads the record again. **A record that is unchanged concludes nothing**, because the request
    may still arrive: the swap stays open, and counts, until the record has changed (`_conclude`). A node that restarts
    never resumes its term.
 3. Commit. committed = the least synced end, acknowledged in this term, of all stores in the known and the proposed
    set, the leader's own included; it never goes back (`_commit`). A removal counts when the store of decisions has
    confirmed it, an addition before it is requested. **A store is added only when it has acknowledged all that the
    leader has committed, and the epoch record of the term** (`_have_caught_up`).
 4. Visible = committed, for queues, index, arrivals and answers to producers (`visible`). A follower's mark never
    exceeds its own synced end, so that no power cut can lose bytes below it (`_receive`).
 5. The recorded set keeps at least `min` members (`_sets`).
 6. A term begins with an epoch record in the log (`_lead`). A message belongs to the epoch of the last epoch record
    before it: nothing beside the log is needed to compare two logs (`state.history`).
 7. Truncation. A follower cuts its log to the longest common prefix of both epoch histories and syncs the cut before it
    writes the first new byte. It never cuts below its committed mark: it stops as damaged (`_connect`).
 8. Acknowledged = synced (`_acknowledged`). A store that lost synced bytes gets a new storeId, so it leaves every set
    for good (`_with_new_store_id`).
 9. Queue offsets of a leader follow its whole log, uncommitted tail included (`_next_queue_offset`).

The sentences in bold were added because the model found counterexamples without them. The counterexamples are in
docs/decisions/0014-replication-rules.md. Not modelled: time (leases, timeouts and clocks decide nothing, so anything
may happen at any moment), store times of messages, full copies, more than one queue, and disks that lose synced bytes
above the committed mark without an error.

tests/ha/state.py has the values, tests/ha/invariants.py what must hold, tests/ha/explorer.py the search,
tests/ha/mutants.py the scopes and mutants.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tests.ha.explorer import Exploration, explore
from tests.ha.mutants import MUTANTS, SCOPES
from tests.ha.rules import Rules, Scope
from tests.ha.state import state_text
from tests.ha.transitions import Model
from tests.harness import results

STATES: Final = 10_000_000
MUTANT_STATES: Final = 400_000
COLUMNS: Final = (
    "date", "commit", "mutant", "scope", "min", "epochs", "writes", "crashes", "losses",
    "states", "transitions", "depth", "complete", "seconds", "finding", "trace",
)  # fmt: skip
"""Columns of the results; `trace` is the number of steps to the finding."""
EPILOG: Final = """\
examples:
  python -m tests.ha.model --states 10000000 --results docs/benchmarks/replication_model.csv
  python -m tests.ha.model --scope small
  python -m tests.ha.model --mutant no-epoch-record
  python -m tests.ha.model --mutant all --jobs 2

mutants:
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One exploration: the model with all rules, or a mutant ("")."""

    mutant: str
    scope_name: str
    scope: Scope
    limit: int

    def model(self) -> Model:
        return Model(self.scope, MUTANTS[self.mutant].rules if self.mutant else Rules())

    def run(self) -> Exploration:
        return explore(self.model(), self.limit)


def main() -> int:
    """Run the command; return 1 if an invariant does not hold, or a mutant was not found."""
    options = _options()
    jobs = _jobs(options)
    failed = 0
    for job, result in _explorations(jobs, options.jobs):
        failed += bool(result.found) != bool(job.mutant)
        row = _row(job, result)
        if options.json:
            print(json.dumps(row | {"steps": [str(step) for step, _ in result.trace]}))
        else:
            _print(job, result)
        if options.results:
            results.append(options.results, COLUMNS, list(row.values()))
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    epilog = EPILOG + "\n".join(f"  {name:28} {mutant.about}" for name, mutant in MUTANTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.ha.model",
        description="Explore every behaviour of a broker group within a scope.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--states", type=int, help=f"distinct states to visit (default {STATES:,}; mutants 400,000)")
    parser.add_argument("--scope", choices=SCOPES, default="full", help="limits of the exploration (default full)")
    parser.add_argument("--mutant", choices=(*MUTANTS, "all"), metavar="NAME", help="take out one rule; or: all")
    parser.add_argument("--jobs", type=int, default=1, help="explorations at a time (with --mutant all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each exploration")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="CSV file to which each exploration appends a line"
    )
    options = parser.parse_args()
    if options.states is not None and options.states < 1:
        parser.error("--states must be at least 1")
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    return options


def _jobs(options: argparse.Namespace) -> list[Job]:
    if options.mutant is None:
        return [Job("", options.scope, SCOPES[options.scope], options.states or STATES)]
    names = list(MUTANTS) if options.mutant == "all" else [options.mutant]
    return [Job(name, "mutant", MUTANTS[name].scope, options.states or MUTANT_STATES) for name in names]


def _explorations(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, Exploration]]:
    if len(jobs) == 1 or processes == 1:
        for job in jobs:
            with _progress(job.limit) as report:
                result = explore(job.model(), job.limit, report=report)
            yield job, result
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
        yield from zip(jobs, pool.map(Job.run, jobs), strict=True)


@contextmanager
def _progress(limit: int) -> Iterator[Callable[[Exploration], None]]:
    """Show the progress on the terminal's error output; yield the function that receives it."""
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=limit)

        def report(so_far: Exploration) -> None:
            text = f"{so_far.states:,} states, {so_far.transitions:,} transitions, depth {so_far.depth}"
            progress.update(task, completed=so_far.states, description=text)

        yield report


def _row(job: Job, result: Exploration) -> dict[str, object]:
    scope = job.scope
    limits = (scope.minimum, scope.epochs, scope.writes, scope.crashes, scope.losses)
    what = (results.today(), results.commit(), job.mutant, job.scope_name, *limits)
    size = (result.states, result.transitions, result.depth, result.is_complete, round(result.seconds, 1))
    return dict(zip(COLUMNS, (*what, *size, result.found, len(result.trace)), strict=True))


def _print(job: Job, result: Exploration) -> None:
    name = f"mutant {job.mutant}: {MUTANTS[job.mutant].about}" if job.mutant else f"scope {job.scope_name}"
    print(name)
    for number, (step, _) in enumerate(result.trace, 1):
        print(f"  {number:2}. {step}")
    if result.trace:
        print(*(f"      {line}" for line in state_text(result.trace[-1][1])), sep="\n")
    finding = f"broken: {result.found}" if result.found else "no finding"
    extent = "every state" if result.is_complete else f"depth {result.depth}"
    print(
        f"  {finding}; {result.states:,} states, {result.transitions:,} transitions, {extent}, {result.seconds:.0f} s\n"
    )


if __name__ == "__main__":
    sys.exit(main())
