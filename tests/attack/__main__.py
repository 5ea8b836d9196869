"""Attack daemons with unusual requests, one run per seed, and append a line per seed to a results file.

    python -m tests.attack --requests 10000000 --seeds 0-199 --jobs 2 --results docs/benchmarks/attack.csv
    python -m tests.attack --requests 25000 --seeds 17              only this seed
    python -m tests.attack ... --asan                               compiled modules with AddressSanitizer and UBSan
    python -m tests.attack ... --interpreted                        the daemon runs without compiled modules
    python -m tests.attack ... --access both                        access control of RocketMQ 4.9 and of 5.3, in turns

The requests are distributed evenly over the seeds. Seeds that are in the results file are skipped, so an interrupted
command continues when it is repeated. Exit code 1 if a seed has findings, or if the p99 of normal sends is above 200 ms
on the ordinary build; the p99 of other builds is only printed. The checks: tests/attack/run.py.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.attack.accounts import GENERATIONS
from tests.attack.run import Outcome, run_in_scratch
from tests.fuzz import sanitized
from tests.harness import results

P99_LIMIT_MS: Final = 200.0
SHOWN: Final = 20
COLUMNS: Final = (
    "date",
    "commit",
    "build",
    "access",
    "seed",
    "requests",
    "seconds",
    "p99_ms",
    "max_rss_mb",
    "findings",
)
ACCESS: Final[Mapping[str, tuple[str | None, ...]]] = {
    "off": (None,),
    **{name: (name,) for name in GENERATIONS},
    "both": tuple(GENERATIONS),
}
INTERPRETED: Final[Mapping[str, str]] = {"SKYLARK_COMPILED": "0"}


def main() -> int:
    """Run the command; return 1 if a check fails, 2 for invalid arguments."""
    options = _options()
    build, environment = _build(options)
    accesses = ACCESS[options.access]
    runs = _todo(options.seeds, accesses, options.results)
    each = options.requests // (len(options.seeds) * len(accesses))
    failed: list[tuple[int, str | None]] = []
    total_requests = total_seconds = 0.0
    console = Console(stderr=True)
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*bar, console=console) as progress, _pool(options.jobs) as pool:
        task = progress.add_task("seeds", total=len(runs))
        pending = {pool.submit(run_in_scratch, seed, each, access, environment): access for seed, access in runs}
        for future in as_completed(pending):
            outcome, access = future.result(), pending[future]
            _append(options.results, (build, access or "off"), outcome)
            total_requests += outcome.requests
            total_seconds += outcome.seconds
            is_slow = build == "compiled" and outcome.p99_ms > P99_LIMIT_MS
            if outcome.findings or is_slow:
                failed.append((outcome.seed, access))
                _show(outcome, is_slow)
            progress.update(task, advance=1, description=f"seeds, {len(failed)} failed")
    rate = total_requests / total_seconds if total_seconds else 0.0
    print(f"{len(runs)} seeds, {total_requests:.0f} requests, {rate:.0f}/s a job, {len(failed)} seeds failed")
    for seed, access in failed:
        option = f" --access {access}" if access else ""
        print(f"repeat with: python -m tests.attack --requests {each} --seeds {seed}{option}")
    return 1 if failed else 0


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


def _build(options: argparse.Namespace) -> tuple[str, Mapping[str, str]]:
    if options.asan:
        if not sanitized.can_build():
            sys.exit("--asan needs gcc with libasan and libubsan, and Cython")
        sanitized.build()
        return "asan", sanitized.environment()
    return ("interpreted", INTERPRETED) if options.interpreted else ("compiled", {})


def _todo(seeds: Iterable[int], accesses: Sequence[str | None], file: Path | None) -> list[tuple[int, str | None]]:
    """Return the seeds with the generations of access control that are not in the results file."""
    done = {(int(row["seed"]), row["access"]) for row in results.rows_of(file)} if file else set()
    return [(seed, access) for seed in seeds for access in accesses if (seed, access or "off") not in done]


def _append(file: Path | None, daemon: tuple[str, str], outcome: Outcome) -> None:
    """Append a line; `daemon` is its build and its access control."""
    if file is None:
        return
    row = (
        results.today(),
        results.commit(),
        *daemon,
        outcome.seed,
        outcome.requests,
        f"{outcome.seconds:.1f}",
        f"{outcome.p99_ms:.1f}",
        outcome.max_rss_bytes >> 20,
        len(outcome.findings),
    )
    results.append(file, COLUMNS, row)


def _show(outcome: Outcome, is_slow: bool) -> None:
    if is_slow:
        print(f"seed {outcome.seed}: p99 of normal sends {outcome.p99_ms:.1f} ms, limit {P99_LIMIT_MS:g}")
    for found in outcome.findings[:SHOWN]:
        print(f"seed {outcome.seed}: {found}")
    if len(outcome.findings) > SHOWN:
        print(f"seed {outcome.seed}: ... and {len(outcome.findings) - SHOWN} more")
    sys.stdout.flush()


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise ValueError(text)
    return seeds


def _options() -> argparse.Namespace:
    about, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.attack",
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--requests", type=int, default=100_000, help="total number; each seed gets an equal share")
    parser.add_argument("--seeds", type=_range, default=range(4), metavar="A-B", help="the first and the last seed")
    parser.add_argument("--jobs", type=int, default=2, help="number of seeds that run in parallel")
    parser.add_argument("--results", type=Path, help="CSV file to which each seed appends a line")
    parser.add_argument("--asan", action="store_true", help="run the daemon with sanitized compiled modules")
    parser.add_argument("--access", choices=ACCESS, default="off", help="access control of the daemon")
    parser.add_argument("--interpreted", action="store_true", help="run the daemon without compiled modules")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
