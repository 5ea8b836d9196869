"""Histories of a real broker and real clients, which are killed, stopped and paused, and the checks of these histories.

    python -m tests.crash.histories --runs 10 --seconds 30 --seed 0    ten runs with seeds 0 to 9, two in parallel
    python -m tests.crash.histories --runs 1 --seed 7 --keep runs      only this one, with every step; its events and
                                                                       logs are kept in runs/7
    python -m tests.crash.histories --check runs/7                     check it again, from these files

The seed decides the participants, their settings, and the faults with their times. Real processes are not
deterministic: the same seed fails often again, not always. So a failing run prints where its history is kept.
Exit code 1 if a check fails. The checks: tests/harness/history.py.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from tests.harness.history import check_history
from tests.harness.history_events import read
from tests.harness.history_plan import plan_of
from tests.harness.history_run import Run, remove_store

PROGRAM: Final = "tests.crash.histories"
SHOWN: Final = 30


def main() -> int:
    """Run the command; return 1 if a check fails."""
    options = _options()
    if options.check is not None:
        return report_on(options.check)
    keep = options.keep or Path(tempfile.mkdtemp(prefix="histories-"))
    if options.runs == 1:
        failed = one_run(options.seed, options.seconds, keep / str(options.seed))
    else:
        failed = sweep(range(options.seed, options.seed + options.runs), options.seconds, options.jobs, keep)
    if not failed and options.keep is None:
        shutil.rmtree(keep)
    return failed


def one_run(seed: int, seconds: float, directory: Path) -> int:
    """Run one seed in this process, and check it; return 1 if a check fails, 2 if its directory exists."""
    if directory.exists():
        print(f"{directory} contains a history already: remove it, or use another directory")
        return 2
    directory.mkdir(parents=True)
    Run(plan_of(seed, seconds), directory, lambda line: print(f"seed {seed}: {line}", flush=True)).run()
    failed = report_on(directory)
    if not failed:
        remove_store(directory)
    return failed


def report_on(directory: Path) -> int:
    """Check a stored history; return 1 if a check fails."""
    report = check_history(read(directory))
    for finding in report.findings[:SHOWN]:
        print(finding)
    if len(report.findings) > SHOWN:
        print(f"... and {len(report.findings) - SHOWN} more")
    verdict = f"{len(report.findings)} findings, kept in {directory}" if report.findings else "all well"
    print(f"{verdict}: {report.summary()}")
    return 1 if report.findings else 0


def sweep(seeds: Iterable[int], seconds: float, jobs: int, keep: Path) -> int:
    """Run all seeds, and report each; return 1 if one has failed."""
    begun_s = time.monotonic()
    done = failed = 0
    for seed, code, output in outcomes(seeds, seconds, jobs, keep):
        done += 1
        failed += code != 0
        lines = output.splitlines()
        shown = lines if code else lines[-1:]
        print("\n".join(f"seed {seed}: {line.removeprefix(f'seed {seed}: ')}" for line in shown), flush=True)
        print(f"\r{done} runs, {failed} failed", end="", file=sys.stderr, flush=True)
    print(f"\r{done} runs of {seconds:g} s, {failed} failed, {time.monotonic() - begun_s:.0f} s")
    return 1 if failed else 0


def outcomes(seeds: Iterable[int], seconds: float, jobs: int, keep: Path) -> Iterator[tuple[int, int, str]]:
    """Yield seed, exit code and output of each run, as they end."""
    with ThreadPoolExecutor(jobs) as pool:
        under_way = {pool.submit(_outcome, seed, seconds, keep): seed for seed in seeds}
        for future in as_completed(under_way):
            yield under_way[future], *future.result()


def _outcome(seed: int, seconds: float, keep: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", PROGRAM, "--runs", "1", "--seed", str(seed), "--seconds", str(seconds)]
    run = subprocess.run([*command, "--keep", str(keep)], capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + (run.stderr if run.returncode else "")


def _options() -> argparse.Namespace:
    about, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}",
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0, help="of faults and load; the rest takes about 10 s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; each further run adds one")
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel runs")
    parser.add_argument("--keep", type=Path, help="directory of the histories, with a subdirectory per seed")
    parser.add_argument("--check", type=Path, metavar="DIRECTORY", help="check a stored history again, and run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
