"""Runs simulated groups of three nodes (`simulated_group`): the real core, with faulty machines, disks and networks.

    python -m tests.ha.simulator --seeds 0-2999              # 3,000 schedules; two processes
    python -m tests.ha.simulator --seeds 1234 --trace        # one of them, with every fault, term and record
    python -m tests.ha.simulator --seeds 0-999999 --results docs/benchmarks/replication.csv

One seed is one run. With `--results` each 10,000 seeds append a line, and seeds that the file has are skipped, so a
long run can be interrupted. Exit code 1 if a check fails.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.ha.simulated_group import SimulatedGroup, Summary
from tests.harness import results

BLOCK: Final = 250
"""Seeds that one process runs at a time."""
PIECE: Final = 10_000
"""Seeds of one line of the results."""


def run(seed: int, trace: Callable[[str], None] | None = None) -> Summary:
    """Run one seed. Raises Violation."""
    return SimulatedGroup(seed, trace).run()


def run_block(seeds: range) -> tuple[Summary, list[tuple[int, str]]]:
    """Run seeds in this process; return their counts, and the seeds that failed with the reason."""
    total, failed = Summary(), []
    begun = time.process_time()
    for seed in seeds:
        try:
            total.add(run(seed))
        except Exception as error:  # noqa: BLE001 - the seed of any error matters
            failed.append((seed, f"{type(error).__name__}: {error}"))
    total.cpu_s = time.process_time() - begun
    return total, failed


def main() -> int:
    """Run the command; return 1 if a check fails."""
    options = _options()
    if options.trace:
        for seed in options.seeds:
            print(run(seed, print))
        return 0
    commit = results.commit()
    failures = 0
    for seeds in missing(options.seeds, options.results) if options.results else [options.seeds]:
        total, failed = _sweep(seeds, options.jobs)
        failures += len(failed)
        for seed, problem in failed[:20]:
            print(f"seed {seed}: {problem}")
        print(f"seeds {seeds[0]} to {seeds[-1]}: {len(failed)} failed, {total}")
        if options.results:
            _record(options.results, commit, seeds, total, [seed for seed, _ in failed])
    return 1 if failures else 0


def missing(seeds: range, file: Path) -> Iterator[range]:
    """Yield the ranges of these seeds that a results file does not have, each of at most PIECE seeds."""
    at = seeds.start
    recorded = sorted((int(row["first"]), int(row["last"]) + 1) for row in results.rows_of(file))
    for begin, end in (*recorded, (seeds.stop, seeds.stop)):
        stop = min(begin, seeds.stop)
        while at < stop:
            piece = range(at, min(at + PIECE, stop))
            yield piece
            at = piece.stop
        at = max(at, end)


def _sweep(seeds: range, jobs: int) -> tuple[Summary, list[tuple[int, str]]]:
    total, failed = Summary(), []
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    blocks = [seeds[n : n + BLOCK] for n in range(0, len(seeds), BLOCK)]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(seeds))
        for summary, problems in _results_of(blocks, jobs):
            total.add(summary)
            failed += problems
            progress.advance(task, summary.runs + len(problems))
    return total, sorted(failed)


def _results_of(blocks: list[range], jobs: int) -> Iterator[tuple[Summary, list[tuple[int, str]]]]:
    if jobs == 1:
        yield from map(run_block, blocks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("forkserver")) as pool:
        for done in as_completed([pool.submit(run_block, block) for block in blocks]):
            yield done.result()


def _record(file: Path, commit: str, seeds: range, total: Summary, failed: list[int]) -> None:
    """Append a line to a results file. `findings`: the seeds that failed."""
    row: dict[str, object] = {
        "date": results.today(),
        "commit": commit,
        "first": seeds[0],
        "last": seeds[-1],
        "findings": " ".join(map(str, failed)),
        **msgspec.structs.asdict(total),
        "cpu_s": round(total.cpu_s),
    }
    results.append(file, list(row), list(row.values()))


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.ha.simulator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=_seeds, default=range(3000), help="one seed, or FIRST-LAST (default 0-2999)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per processor)")
    parser.add_argument("--trace", action="store_true", help="print what happens, in this process")
    parser.add_argument("--results", type=Path, help="CSV file that gets a line for each 10,000 seeds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
