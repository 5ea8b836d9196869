"""Trials: one seed is one run, which raises where something does not hold; many seeds are tried in several processes.

A trial's program tries seeds and tells of those that fail (`--seeds`, `--first`, `--jobs`), or one alone, telling every
step (`--seed`). With `--results FILE` each `PIECE` seeds append a line, and pieces that the file has are left out.
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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from tests.harness import results
from tests.harness.stepped_helpers import SteppedHelpers, stepped_helpers

MEMORY: Final = Path("/dev/shm")  # stores of a few KiB live and die here

PIECE: Final = 1_000
COLUMNS: Final = ("date", "commit", "trial", "build", "first", "seeds", "failed", "ms_each")
"""Of the results; the time is that of a process."""

Tell = Callable[[str], None]
"""Gets a line per step."""


class Run(Protocol):
    """Everything that one seed decides."""

    def run(self) -> None:
        """From the beginning to the end; raises if something does not hold."""


class Trial:
    """The runs of one kind: `make(seed, scratch directory, helpers, tell)`."""

    def __init__(
        self, name: str, make: Callable[[int, Path, SteppedHelpers, Tell], Run], seeds: int, about: str | None
    ) -> None:
        self._name = name
        self._make = make
        self._seeds = seeds
        self._about = (about or "").split("\n")[0]

    def run(self, seed: int, tell: Tell = lambda line: None) -> None:
        """One run, in memory if there is a file system there."""
        directory = MEMORY if MEMORY.is_dir() else None
        scratch = Path(tempfile.mkdtemp(prefix=f"{self._name}-", dir=directory))
        try:
            with stepped_helpers() as helpers:
                self._make(seed, scratch, helpers, tell).run()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def failure_of(self, seed: int) -> tuple[int, str]:
        """The seed, and what did not hold: "" if all did."""
        logging.disable(logging.CRITICAL)
        try:
            self.run(seed)
        except Exception as problem:  # noqa: BLE001 (a run may fail in any way)
            return seed, f"{type(problem).__name__}: {problem}"
        return seed, ""

    def failed(self, seeds: Iterable[int]) -> list[str]:
        """Try all of them on what processors this process may use; a command and a reason for each that failed."""
        jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1
        program = f"python -m tests.crash.{self._name}"
        return [f"{program} --seed {seed}: {why}" for seed, why in failures(seeds, jobs, self.failure_of) if why]

    def main(self) -> int:
        """The command; 1 if a seed failed."""
        parser = argparse.ArgumentParser(prog=f"python -m tests.crash.{self._name}", description=self._about)
        parser.add_argument("--seeds", type=int, default=self._seeds, help="how many")
        parser.add_argument("--first", type=int, default=0)
        parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        parser.add_argument("--seed", type=int, help="this one alone, telling every step")
        parser.add_argument("--results", type=Path, help=f"CSV file to which each {PIECE:,} seeds append a line")
        options = parser.parse_args()
        if options.seed is None:
            seeds = range(options.first, options.first + options.seeds)
            if options.results is None:
                return 1 if sweep(seeds, options.jobs, self.failure_of) else 0
            return self._sweep_pieces(seeds, options.jobs, options.results)
        logging.basicConfig(level=logging.DEBUG, format="        %(name)s %(message)s", stream=sys.stdout)
        try:
            self.run(options.seed, print)
        except Exception:  # noqa: BLE001 (a run may fail in any way)
            traceback.print_exc(file=sys.stdout)
            return 1
        return 0

    def _sweep_pieces(self, seeds: range, jobs: int, file: Path) -> int:
        """The same with results."""
        build = "interpreted" if os.environ.get("SKYLARK_COMPILED") == "0" else "compiled"
        done = {(row["trial"], row["build"], int(row["first"]), int(row["seeds"])) for row in results.rows_of(file)}
        for first in range(seeds.start, seeds.stop, PIECE):
            piece = range(first, min(first + PIECE, seeds.stop))
            what = (self._name, build, first, len(piece))
            if what in done:
                continue
            began = time.monotonic()
            print(f"seeds {piece.start} to {piece.stop - 1}:")
            failed = sweep(piece, jobs, self.failure_of)
            ms = 1000 * (time.monotonic() - began) * jobs / len(piece)
            results.append(file, COLUMNS, (results.today(), results.commit(), *what, failed, f"{ms:.1f}"))
        return 1 if any(row["failed"] != "0" for row in results.rows_of(file)) else 0


def failures(seeds: Iterable[int], jobs: int, of: Callable[[int], tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """`of` every seed, in any order."""
    with multiprocessing.Pool(jobs, maxtasksperchild=20) as pool:  # a cut process leaves descriptors behind
        yield from pool.imap_unordered(of, seeds, chunksize=50)


def sweep(seeds: range, jobs: int, of: Callable[[int], tuple[int, str]]) -> int:
    """Try all seeds, tell of those that fail; returns how many."""
    began = time.monotonic()
    failed = done = 0
    for seed, problem in failures(seeds, jobs, of):
        done += 1
        if problem:
            failed += 1
            print(f"\rseed {seed}: {problem}")
        if done % 100 == 0:
            print(f"\r{done}/{len(seeds)} seeds, {failed} failed", end="", file=sys.stderr, flush=True)
    spent = time.monotonic() - began
    print(f"\r{done} seeds, {failed} failed, {spent:.0f} s, {1000 * spent * jobs / done:.1f} ms of a process each")
    return failed
