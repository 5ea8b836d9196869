"""Trials: one seed is one run, which raises if a check fails; many seeds run in several processes.

A trial's program runs seeds and prints those that fail (`--seeds`, `--first`, `--jobs`), or runs one seed with every
step (`--seed`). With `--results FILE` each piece of seeds appends a line, and pieces that are in the file are skipped.
The runs of some trials count events, such as power cuts; the sums are printed, and are columns of the results.
"""

import argparse
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tests.harness import results
from tests.harness.stepped_helpers import SteppedHelpers, stepped_helpers

MEMORY: Final = Path("/dev/shm")  # for stores of a few KiB

PIECE: Final = 1_000
COLUMNS: Final = ("date", "commit", "trial", "build", "first", "seeds", "failed", "ms_each")
"""Columns of the results; the time is that of one process."""

LogStep = Callable[[str], None]
"""Receives a line per step."""


class Run(Protocol):
    """One run; the seed decides everything."""

    def run(self) -> Counter[str] | None:
        """Run to the end; return the counts of a trial that counts. Raises if a check fails."""


class Outcome(NamedTuple):
    """The result of one seed. `problem`: why it failed; "" if it did not."""

    seed: int
    problem: str
    counts: Counter[str] | None = None


class Trial:
    """Runs of one kind: `make(seed, scratch directory, helpers, log_step)`. `counted`: the names of their counts.

    `piece`: the number of seeds of a line of the results.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[int, Path, SteppedHelpers, LogStep], Run],
        seeds: int,
        about: str | None,
        counted: Sequence[str] = (),
        piece: int = PIECE,
    ) -> None:
        self._piece = piece
        self._name = name
        self._make = make
        self._seeds = seeds
        self._about = (about or "").split("\n")[0]
        self._counted = counted

    def run(self, seed: int, log_step: LogStep = lambda line: None) -> Counter[str] | None:
        """Run one seed, in memory if possible. Return its counts."""
        directory = MEMORY if MEMORY.is_dir() else None
        scratch = Path(tempfile.mkdtemp(prefix=f"{self._name}-", dir=directory))
        try:
            with stepped_helpers() as helpers:
                return self._make(seed, scratch, helpers, log_step).run()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def outcome_of(self, seed: int) -> Outcome:
        """Return the result of a seed."""
        logging.disable(logging.CRITICAL)
        try:
            return Outcome(seed, "", self.run(seed))
        except Exception as problem:  # noqa: BLE001 (a run may fail in any way)
            return Outcome(seed, f"{type(problem).__name__}: {problem}")

    def failed(self, seeds: Iterable[int], counts: Counter[str] | None = None) -> list[str]:
        """Run all seeds on all available processors; return a command and a reason for each that failed.

        The counts of the runs are added to `counts`.
        """
        jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1
        failed = []
        for outcome in outcomes(seeds, jobs, self.outcome_of):
            if outcome.problem:
                failed.append(f"python -m tests.crash.{self._name} --seed {outcome.seed}: {outcome.problem}")
            if counts is not None and outcome.counts:
                counts.update(outcome.counts)
        return failed

    def main(self) -> int:
        """Run the command; return 1 if a seed failed."""
        parser = argparse.ArgumentParser(prog=f"python -m tests.crash.{self._name}", description=self._about)
        parser.add_argument("--seeds", default=str(self._seeds), help="number of seeds, or a range: FIRST-LAST")
        parser.add_argument("--first", type=int, default=0, help="the first seed, if --seeds is a number")
        parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        parser.add_argument("--seed", type=int, help="only this seed, with every step")
        parser.add_argument("--results", type=Path, help=f"CSV file to which each {self._piece:,} seeds append a line")
        options = parser.parse_args()
        if options.seed is None:
            first, dash, last = options.seeds.partition("-")
            seeds = range(int(first), int(last) + 1) if dash else range(options.first, options.first + int(first))
            if options.results is None:
                return 1 if sweep(seeds, options.jobs, self.outcome_of)[0] else 0
            return self._sweep_pieces(seeds, options.jobs, options.results)
        logging.basicConfig(level=logging.DEBUG, format="        %(name)s %(message)s", stream=sys.stdout)
        try:
            self.run(options.seed, print)
        except Exception:  # noqa: BLE001 (a run may fail in any way)
            traceback.print_exc(file=sys.stdout)
            return 1
        return 0

    def _sweep_pieces(self, seeds: range, jobs: int, file: Path) -> int:
        """Run all pieces that the results file does not contain."""
        build = "interpreted" if os.environ.get("SKYLARK_COMPILED") == "0" else "compiled"
        done = {(row["trial"], row["build"], int(row["first"]), int(row["seeds"])) for row in results.rows_of(file)}
        for first in range(seeds.start, seeds.stop, self._piece):
            piece = range(first, min(first + self._piece, seeds.stop))
            what = (self._name, build, first, len(piece))
            if what in done:
                continue
            began = time.monotonic()
            print(f"seeds {piece.start} to {piece.stop - 1}:")
            failed, counts = sweep(piece, jobs, self.outcome_of)
            ms = 1000 * (time.monotonic() - began) * jobs / len(piece)
            row = (results.today(), results.commit(), *what, failed, f"{ms:.1f}")
            results.append(file, (*COLUMNS, *self._counted), (*row, *(counts[name] for name in self._counted)))
        return 1 if any(row["failed"] != "0" for row in results.rows_of(file)) else 0


def outcomes(seeds: Iterable[int], jobs: int, of: Callable[[int], Outcome]) -> Iterator[Outcome]:
    """Yield `of` every seed, in any order.

    The processes are not forked from this one, which may have threads of earlier tests: a fork that copies a lock that
    such a thread holds never returns.
    """
    processes = multiprocessing.get_context("forkserver")
    with processes.Pool(jobs, maxtasksperchild=20) as pool:  # a process with power cuts leaks descriptors
        yield from pool.imap_unordered(of, seeds, chunksize=50)


def sweep(seeds: range, jobs: int, of: Callable[[int], Outcome]) -> tuple[int, Counter[str]]:
    """Run all seeds, print those that fail; return their number, and the sums of the counts."""
    began = time.monotonic()
    failed = done = 0
    counts: Counter[str] = Counter()
    for seed, problem, counted in outcomes(seeds, jobs, of):
        done += 1
        counts.update(counted or {})
        if problem:
            failed += 1
            print(f"\rseed {seed}: {problem}")
        if done % 100 == 0:
            print(f"\r{done}/{len(seeds)} seeds, {failed} failed", end="", file=sys.stderr, flush=True)
    spent = time.monotonic() - began
    summary = "".join(f", {count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    each = f"{1000 * spent * jobs / done:.1f} ms of a process each"
    print(f"\r{done} seeds, {failed} failed{summary}, {spent:.0f} s, {each}")
    return failed, counts
